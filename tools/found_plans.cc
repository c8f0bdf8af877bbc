// The lines of epl plan --why and --devices.
#include "tools/found_plans.h"

#include <algorithm>

#include "tools/json.h"
#include "tools/text.h"

namespace epl::tools {
namespace {

constexpr std::string_view note_of_search = "why: auto.auto_parallel: ";
constexpr int64_t most_devices = 16384;  // that the library makes a plan for
constexpr double hardly = 0.9;           // of the seconds with fewer

std::string text_of_stage(const Plan& plan, std::string_view stage) {
  return text_of(epl_plan_print, plan.get(), stage.data(), stage.size(), nullptr);
}

Json document_of(const Plan& plan, std::string_view name) {
  return parse_json(text_of(epl_plan_describe, plan.get(), name.data(), name.size(), nullptr));
}

int64_t count_of(const std::string& text, const std::string& all) {
  const bool digits = !text.empty() && text.size() < 6 && text.find_first_not_of("0123456789") == std::string::npos;
  const int64_t count = digits ? std::stoll(text) : 0;
  if (count < 1 || count > most_devices)
    throw UsageError("--devices: \"" + all + "\" is not like 1,2,4 or 1..8, of numbers from 1 to " +
                     std::to_string(most_devices));
  return count;
}

// What was taken: the first note says it, before its seconds.
std::string taken_plan(const Plan& plan) {
  const std::vector<std::string> notes = search_notes(plan);
  return notes.empty() ? std::string() : notes.front().substr(0, notes.front().find(" takes "));
}

std::string percent(double share) { return fixed(100 * share, 0) + " %"; }

std::string without_numbers(std::string text) {
  text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || c == '.'; }),
             text.end());
  return text;
}

// Numbers of devices that no plan is possible for: one line for those of one reason.
class Refusals {
 public:
  void add(int64_t devices, const std::string& why) {
    if (!why_.empty() && without_numbers(why) != without_numbers(why_)) say_all();
    if (why_.empty()) first_ = devices, why_ = why;
    last_ = devices;
  }
  void say_all() {
    if (why_.empty()) return;
    const bool one = first_ == last_;
    const std::string first = std::to_string(first_);
    say("%8s  %s%s\n", (one ? first : first + ".." + std::to_string(last_)).c_str(),
        one ? "" : ("no plan is possible; with " + first + ": ").c_str(), printable_line(why_).c_str());
    why_.clear();
  }

 private:
  int64_t first_ = 0, last_ = 0;
  std::string why_;  // of the first
};

std::string verdict(const std::vector<Scaled>& steps) {
  const int64_t worth = worth_of_devices(steps);
  const auto at = std::find_if(steps.begin(), steps.end(), [&](const Scaled& one) { return one.devices == worth; });
  if (at + 1 == steps.end()) return "adding devices pays up to the last of these, " + std::to_string(worth);
  const double change = at[1].seconds / at->seconds - 1;
  return "adding devices pays up to " + std::to_string(worth) + ": with " + std::to_string(at[1].devices) +
         " a step takes " + percent(change < 0 ? -change : change) + (change < 0 ? " less" : " more") + " time";
}

}  // namespace

std::vector<std::string> search_notes(const Plan& plan) {
  std::vector<std::string> notes;
  const std::string text = text_of_stage(plan, "explain");
  for (size_t from = 0; from < text.size();) {
    const size_t to = std::min(text.find('\n', from), text.size());
    const std::string_view line = std::string_view(text).substr(from, to - from);
    if (line.substr(0, note_of_search.size()) == note_of_search) notes.emplace_back(line.substr(note_of_search.size()));
    from = to + 1;
  }
  return notes;
}

int print_why(const Plan& plan, bool json) {
  const std::vector<std::string> notes = search_notes(plan);
  if (json) {
    say_json(Json(notes));
    return 0;
  }
  for (const std::string& note : notes) say("%s\n", note.c_str());
  return 0;
}

std::vector<int64_t> device_counts(const std::string& text) {
  std::vector<int64_t> counts;
  if (const size_t dots = text.find(".."); dots != std::string::npos) {
    const int64_t first = count_of(text.substr(0, dots), text), last = count_of(text.substr(dots + 2), text);
    for (int64_t count = first; count < last; count *= 2) counts.push_back(count);
    counts.push_back(last);
    if (first > last) throw UsageError("--devices: " + text + " goes down");
    return counts;
  }
  for (size_t from = 0; from <= text.size();) {
    const size_t to = std::min(text.find(',', from), text.size());
    counts.push_back(count_of(text.substr(from, to - from), text));
    from = to + 1;
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

int64_t worth_of_devices(const std::vector<Scaled>& steps) {
  const Scaled* best = nullptr;
  for (const Scaled& one : steps) {
    if (!best || one.seconds <= hardly * best->seconds) best = &one;
  }
  return best ? best->devices : 0;
}

int print_scaling(const std::vector<int64_t>& counts, const std::function<Plan(int64_t)>& make, bool json) {
  std::vector<Scaled> steps;
  Refusals refusals;
  if (!json) say("%8s  %12s  %10s  %20s  %s\n", "devices", "a step", "efficiency", "a rank has", "plan");
  for (const int64_t count : counts) {
    Plan plan;
    try {
      plan = make(count);
    } catch (const ApiError& e) {
      if (e.code != EPL_ERROR_UNSUPPORTED && e.code != EPL_ERROR_INVALID_ARGUMENT) throw;
      if (json) say_json({{"devices", count}, {"refused", e.what()}});
      if (!json) refusals.add(count, e.what());
      continue;
    }
    refusals.say_all();
    const double seconds = document_of(plan, "overview").at("seconds");
    const int64_t bytes = document_of(plan, "memory").at("peak_bytes");
    steps.push_back({count, seconds});
    const Scaled& first = steps.front();
    const double efficiency =
        first.seconds * static_cast<double>(first.devices) / (seconds * static_cast<double>(count));
    if (json) {
      say_json({{"devices", count},
                {"seconds", seconds},
                {"efficiency", efficiency},
                {"peak_bytes", bytes},
                {"plan", taken_plan(plan)}});
    } else {
      say("%8lld  %12s  %10s  %20s  %s\n", static_cast<long long>(count), readable_seconds(seconds).c_str(),
          percent(efficiency).c_str(), with_thousands(bytes).c_str(), taken_plan(plan).c_str());
    }
  }
  refusals.say_all();
  if (steps.empty()) return 1;
  if (json) say_json({{"event", "done"}, {"pays_up_to", worth_of_devices(steps)}});
  if (!json) say("%s\n", verdict(steps).c_str());
  return 0;
}

}  // namespace epl::tools
