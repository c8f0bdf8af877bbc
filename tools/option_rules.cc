#include "tools/option_rules.h"

#include <algorithm>

#include "tools/words.h"

namespace epl::tools {
namespace {

// Option, and those of which it needs one. An option that a command does not have is not asked for.
struct Need {
  const char* option;
  std::vector<const char*> one_of;
  const char* why;
};
const std::vector<Need>& needs() {
  static const std::vector<Need> rows = {
      {"--data-options", {"--data"}, "it is for --data's reader"},
      {"--validation-options", {"--validation"}, "it is for the reader of that file"},
      {"--sample-bytes", {"--text"}, "only a model of text writes a sample"},
      {"--temperature", {"--text"}, "only a model of text writes a sample"},
      {"--resume-anyway", {"--resume"}, "it is about what differs from the run that is resumed"},
      {"--evaluate-every", {"--text", "--held-out", "--validation"}, "there is nothing to measure on"},
      {"--evaluate-batches", {"--text", "--held-out", "--validation"}, "there is nothing to measure on"},
      {"--rank", {"--lora"}, "it is of low-rank adapters"},
      {"--lora-alpha", {"--lora"}, "it is of low-rank adapters"},
      {"--lora-dropout", {"--lora"}, "it is of low-rank adapters"},
      {"--evaluate-epochs", {"--text", "--held-out", "--validation"}, "there is nothing to measure on"},
      {"--every", {"--strategies"}, "it is of the pairs of a case and a strategy"},
      {"--phase", {"--every"}, "it moves the pairs that are taken, and all are"},
      {"--exact", {"--strategies"}, "each strategy is compared with itself on the CPU"},
      {"--may-refuse", {"--exact"}, "else a strategy may be refused for any reason"},
      {"--options", {"--strategies"}, "its options stand beside strategies"},
      {"--final-ratio", {"--schedule"}, "the rate does not fall without a schedule"},
  };
  return rows;
}

// Options of which the first is not looked at where the second is given.
struct Clash {
  const char *option, *other, *why;
};
constexpr Clash clashes[] = {
    {"--context", "--data", "the data says how long a sample is"},
    {"--checkpoint-minutes", "--checkpoint-every", "steps are counted instead of minutes"},
    {"--validation-options", "--text", "texts have no options"},
    {"--held-out", "--validation", "one of them says what to measure on"},
    {"--ranks", "--devices", "it says how many there are"},
    {"--stage", "--devices", "it prints a table of several plans"},
    {"--stage", "--why", "it prints one thing alone"},
    {"--why", "--devices", "it prints a table of several plans"},
    {"--html", "--devices", "it writes no plan"},
    {"--annotated", "--devices", "it writes no plan"},
    {"--save", "--devices", "it writes no plan"},
    {"--plan", "--devices", "a file has one plan"},
    {"--plan", "--why", "a file has no search"},
};

// The option, where it was typed.
const CLI::Option* given(const CLI::App& command, const std::string& name) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->check_name(name)) return option->count() > 0 ? option : nullptr;
  }
  return nullptr;
}

bool has_option(const CLI::App& command, const std::string& name) {
  const std::vector<const CLI::Option*> options = command.get_options();
  return std::any_of(options.begin(), options.end(),
                     [&](const CLI::Option* option) { return option->check_name(name); });
}

}  // namespace

const std::vector<Choice>& required_choices() {
  static const std::vector<Choice> rows = {{"train", {"--text", "--data"}, "what to learn from"},
                                           {"evaluate", {"--text", "--data"}, "what to measure on"},
                                           {"export", {"--out", "--adapters"}, "what to write"},
                                           {"launch", {"--processes", "--hosts"}, "how many processes to start"}};
  return rows;
}

std::string missing_choice(const CLI::App& command) {
  for (const Choice& row : required_choices()) {
    if (command.get_name() != row.command) continue;
    if (std::none_of(row.one_of.begin(), row.one_of.end(),
                     [&](const char* one) { return given(command, one) != nullptr; })) {
      return std::string(row.what) + " is missing: " + listed({row.one_of.begin(), row.one_of.end()}, "or");
    }
  }
  return "";
}

std::string option_without_meaning(const CLI::App& command) {
  for (const Need& need : needs()) {
    if (given(command, need.option) == nullptr) continue;
    const auto has = [&](const char* one) { return has_option(command, one); };
    if (std::none_of(need.one_of.begin(), need.one_of.end(), has)) continue;  // the command has it for another purpose
    const bool there = std::any_of(need.one_of.begin(), need.one_of.end(),
                                   [&](const char* one) { return given(command, one) != nullptr; });
    if (!there)
      return std::string(need.option) + " does nothing without " +
             listed({need.one_of.begin(), need.one_of.end()}, "or") + ": " + need.why;
  }
  for (const Clash& clash : clashes) {
    if (given(command, clash.option) && given(command, clash.other))
      return std::string(clash.option) + " does nothing with " + clash.other + ": " + clash.why;
  }
  return "";
}

}  // namespace epl::tools
