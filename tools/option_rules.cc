#include "tools/option_rules.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <type_traits>
#include <vector>

namespace epl::tools {
namespace {

// The library's own limits have names of hundreds of digits; these come first and say it shortly.
template <class T>
std::string whole_number_problem(const std::string& text, bool positive, bool not_negative) {
  T value{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed == std::errc::result_out_of_range) return text + " is beyond what a whole number here can be";
  const bool whole = failed == std::errc() && end == text.data() + text.size();
  if (whole && positive && value < T{1}) return text + " is not 1 or more";
  if (whole && not_negative && value < T{0}) return text + " is negative";
  return whole ? "" : "\"" + text + "\" is not a whole number" + (std::is_signed_v<T> ? "" : " of at least 0");
}

std::string number_problem(const std::string& text, bool positive, bool not_negative) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value)) return "\"" + text + "\" is not a number";
  if (positive && value <= 0) return text + " is not above 0";
  return not_negative && value < 0 ? text + " is negative" : "";
}

// Option, and those of which it needs one. An option that a command does not have is not asked for.
struct Need {
  const char* option;
  std::vector<const char*> one_of;
  const char* why;
};
const std::vector<Need>& needs() {
  static const std::vector<Need> rows = {
      {"--data-options", {"--data"}, "it is for --data's reader"},
      {"--sample-bytes", {"--text"}, "only a model of text writes a sample"},
      {"--temperature", {"--text"}, "only a model of text writes a sample"},
      {"--resume-anyway", {"--resume"}, "it is about what differs from the run that is resumed"},
      {"--evaluate-every", {"--text", "--held-out", "--validation"}, "there is nothing to measure on"},
      {"--evaluate-batches", {"--text", "--held-out", "--validation"}, "there is nothing to measure on"},
      {"--rank", {"--lora"}, "it is of low-rank adapters"},
      {"--lora-alpha", {"--lora"}, "it is of low-rank adapters"},
      {"--lora-dropout", {"--lora"}, "it is of low-rank adapters"},
      {"--final-ratio", {"--schedule"}, "the rate does not fall without a schedule"},
  };
  return rows;
}

// The option, where it was typed.
const CLI::Option* given(const CLI::App& command, const std::string& name) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->check_name(name)) return option->count() > 0 ? option : nullptr;
  }
  for (const CLI::App* group : command.get_subcommands([](const CLI::App* one) { return one->get_name().empty(); })) {
    if (const CLI::Option* found = given(*group, name)) return found;
  }
  return nullptr;
}

}  // namespace

void require_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options([](const CLI::Option*) { return true; })) {
    const std::string type = option->get_type_name();
    const bool positive = type.find(":POSITIVE") != std::string::npos, not_negative = type.find(":NONNEGATIVE") != std::string::npos;
    const bool real = type.starts_with("FLOAT"), integer = type.starts_with("INT"), natural = type.starts_with("UINT");
    if (!real && !integer && !natural) continue;
    option->transform(CLI::Validator(
        [=](std::string& text) {
          if (real) return number_problem(text, positive, not_negative);
          return natural ? whole_number_problem<uint64_t>(text, positive, not_negative) : whole_number_problem<int64_t>(text, positive, not_negative);
        },
        "", "number"));
  }
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) require_numbers(*command);
}

std::string option_without_meaning(const CLI::App& command) {
  for (const Need& need : needs()) {
    if (given(command, need.option) == nullptr) continue;
    std::string wanted;
    bool there = false;
    for (const char* one : need.one_of) {
      wanted += (wanted.empty() ? "" : " or ") + std::string(one);
      there = there || given(command, one) != nullptr;
    }
    if (!there) return std::string(need.option) + " does nothing without " + wanted + ": " + need.why;
  }
  return "";
}

}  // namespace epl::tools
