#include "core/job/history.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <fstream>

#include "core/base/file.h"

namespace epl {
namespace {

bool is_event(const Json& line, std::string_view name) {
  const Json* event = line.find("event");
  return event != nullptr && event->is_string() && event->text() == name;
}

}  // namespace

void History::read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  for (std::string text; std::getline(in, text);) {
    Result<Json> line = parse_json(text);
    if (!line.ok()) continue;
    const Json* step = line->find("step");
    const bool numbers = is_event(*line, "step") || is_event(*line, "evaluation");
    if (is_event(*line, "held_out") || (numbers && step != nullptr && step->is_int64()))
      lines_.push_back(std::move(*line));
  }
}

// An older file stays, as its checkpoints do, until there is something to write.
void History::begin(const std::string& path, int64_t step, int64_t steps) {
  path_ = path;
  steps_ = steps;
  std::erase_if(lines_, [&](const Json& line) {
    const Json* at = line.find("step");
    return at == nullptr || !at->is_int64() || at->get<int64_t>() > step;
  });
}

// Where nobody knows how long a job is, the longer it is the fewer are kept.
bool History::keeps(int64_t step) const {
  constexpr int64_t all_of_first = 1000;
  if (step <= all_of_first) return true;
  const auto seen = static_cast<uint64_t>(step / all_of_first);
  const int64_t every =
      steps_ > 0 ? std::max<int64_t>(1, steps_ / all_of_first) : static_cast<int64_t>(std::bit_floor(seen));
  return step % every == 0;
}

void History::add_step(const JobEvent& e) {
  if (!keeps(e.step)) return;
  Json line = {{"event", "step"}, {"step", e.step}, {"epoch", e.epoch}, {"loss", e.loss}};
  line["learning_rate"] = e.learning_rate;
  if (e.gradient_norm >= 0) line["gradient_norm"] = e.gradient_norm;
  if (e.scales()) {
    line["loss_scale"] = e.loss_scale;
    line["skipped_steps"] = e.skipped_steps;
  }
  line["seconds"] = e.seconds;
  line["samples"] = e.samples;
  lines_.push_back(std::move(line));
}

void History::add_measured(const JobEvent& e, const NamedNumbers& metrics) {
  Json line = {
      {"event", "evaluation"}, {"step", e.step}, {"samples", e.samples}, {"seconds", e.seconds}, {"best", e.best}};
  for (const auto& [name, value] : metrics) line[name] = value;
  lines_.push_back(std::move(line));
}

void History::add_held_out(const Json& event) { lines_.push_back(event); }

Json History::held_out() const {
  for (auto line = lines_.rbegin(); line != lines_.rend(); ++line) {
    if (is_event(*line, "held_out")) return *line;
  }
  return Json::object();
}

double History::seconds() const {
  for (auto line = lines_.rbegin(); line != lines_.rend(); ++line) {
    const Json* seconds = line->find("seconds");
    if (is_event(*line, "step") && seconds != nullptr && seconds->is_number()) return seconds->get<double>();
  }
  return 0;
}

Status History::flush() {
  if (failed_ || path_.empty() || written_ == lines_.size()) return {};
  std::string text;
  for (size_t i = written_; i < lines_.size(); ++i) text += print_json(lines_[i]) + "\n";
  std::ofstream out(path_, std::ios::binary | (begun_ ? std::ios::app : std::ios::trunc));
  errno = 0;
  out << text;
  out.close();
  begun_ = true;
  written_ = lines_.size();
  failed_ = !out;
  return failed_ ? system_error("cannot write", path_, errno != 0 ? errno : EIO) : Status();
}

}  // namespace epl
