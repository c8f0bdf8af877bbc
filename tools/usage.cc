#include "tools/usage.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "tools/words.h"

namespace epl::tools {
namespace {

std::string short_value(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", v);
  return text;
}

bool read_number(const std::string& text, double& value) {
  char* end = nullptr;
  value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' && std::isfinite(value);
}

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_name().empty()) names.push_back(command->get_name());
  }
  return names;
}

OptionText text_of(const CLI::Option& option) {
  OptionText out;
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  out.positional = out.names.empty();
  if (out.positional) out.names.push_back(option.get_single_name());
  out.required = option.get_required();
  out.takes_value = out.positional || option.get_items_expected_max() > 0;
  out.repeatable = option.get_items_expected_max() > 1;
  out.description = option.get_description();
  out.default_text = option.get_default_str();
  out.group = option.get_group();
  const std::string type = option.get_type_name();
  const auto has = [&](const char* word) { return type.find(word) != std::string::npos; };
  out.value = !out.takes_value ? "" : has("FILE") ? "FILE" : has("FOLDER") ? "FOLDER" : has("PATH") ? "PATH" : has("INT") || has("FLOAT") || has("NUMBER") ? "NUMBER" : "TEXT";
  return out;
}

void collect(const CLI::App& app, std::vector<OptionText>& out) {
  for (const CLI::Option* option : app.get_options()) out.push_back(text_of(*option));
  for (const CLI::App* group : app.get_subcommands([](const CLI::App* one) { return one->get_name().empty(); })) collect(*group, out);
}

const CLI::App& chosen(const CLI::App& app) {
  for (const CLI::App* command : app.get_subcommands()) {
    if (!command->get_name().empty()) return *command;
  }
  return app;
}

std::string command_text(const CLI::App& app) { return app.get_parent() == nullptr ? "epl" : "epl " + app.get_name(); }

// What stands on the command line and belongs to nothing.
std::string explain_extras(const CLI::App& command) {
  std::vector<OptionText> options;
  collect(command, options);
  std::vector<std::string> names;
  for (const OptionText& option : options) {
    if (!option.positional) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  const std::vector<std::string> left = command.remaining(true);
  std::string word = left.empty() ? "" : left[0];
  for (const std::string& one : left) {   // a value is left over because its option is not known
    if (one.starts_with("-")) {
      word = one.substr(0, one.find('='));
      break;
    }
  }
  if (word.starts_with("-")) return "no option " + word + did_you_mean(word, names);
  return "\"" + word + "\" was not expected";
}

// A stat that a name of any length survives.
int kind_of(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return 0;
  return S_ISDIR(info.st_mode) ? 2 : 1;
}

}  // namespace

std::vector<CommandText> describe(const CLI::App& app) {
  std::vector<CommandText> out(1);
  out[0].description = app.get_description();
  collect(app, out[0].options);
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* one) { return !one->get_name().empty(); })) {
    out.push_back({command->get_name(), command->get_description(), {}});
    collect(*command, out.back().options);
  }
  return out;
}

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = chosen(app);
  const std::string kind = error.get_name();
  std::string what = error.what();
  // What is misspelt comes first: because of it something else may be missing.
  const std::vector<std::string> left = command.remaining(true);
  const bool misspelt = std::any_of(left.begin(), left.end(), [](const std::string& word) { return word.size() > 1 && word[0] == '-'; });
  if (kind == "ExtrasError" || misspelt) {
    what = explain_extras(command);
  } else if (&command == &app && kind == "RequiredError") {
    what = "a command is needed: " + listed(names_of_commands(app));
  } else if (kind == "RequiredError") {
    std::vector<OptionText> options;
    collect(command, options);
    for (const OptionText& option : options) {
      if (option.required && what.starts_with(option.names.back() + " ")) what = option.names.back() + " is missing: " + option.description;
    }
  } else if (kind == "ArgumentMismatch") {
    const size_t colon = what.find(": ");
    const std::string name = what.substr(0, colon);
    what = name + " needs a value";
  } else if (kind == "ConversionError") {   // "Could not convert: --x = y"
    const size_t colon = what.find(": "), equals = what.find(" = ");
    if (colon != std::string::npos && equals != std::string::npos) {
      what = what.substr(colon + 2, equals - colon - 2) + " " + what.substr(equals + 3) + ": a number is expected";
    }
  }
  return what + " (see " + command_text(command) + " --help)";
}

std::string unknown_command(const CLI::App& app, int argc, const char* const* argv) {
  if (argc < 2 || argv[1][0] == '-') return "";
  const std::vector<std::string> names = names_of_commands(app);
  const std::string word = argv[1];
  for (const std::string& name : names) {
    if (word == name) return "";
  }
  return "no command " + word + did_you_mean(word, names) + " There are " + listed(names) + ".";
}

CLI::Validator at_least(double least) {
  return CLI::Validator([least](std::string& text) {
    double value = 0;
    if (read_number(text, value) && value >= least) return std::string();
    return "\"" + text + "\" is not a number of at least " + short_value(least);
  }, "NUMBER", "at_least");
}

CLI::Validator between(double least, double greatest) {
  return CLI::Validator([least, greatest](std::string& text) {
    double value = 0;
    if (read_number(text, value) && value >= least && value <= greatest) return std::string();
    return "\"" + text + "\" is not a number from " + short_value(least) + " to " + short_value(greatest);
  }, "NUMBER", "between");
}

CLI::Validator whole_number(int64_t least) {
  return CLI::Validator([least](std::string& text) {
    int64_t value = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed == std::errc::result_out_of_range) return "\"" + text + "\" is too large";
    if (failed == std::errc() && end == text.data() + text.size() && value >= least) return std::string();
    return "\"" + text + "\" is not a whole number of at least " + std::to_string(least);
  }, "NUMBER", "whole_number");
}

CLI::Validator existing_file() {
  return CLI::Validator([](std::string& path) {
    const int kind = kind_of(path);
    if (kind == 1) return std::string();
    return kind == 2 ? path + " is a folder, a file is expected" : "cannot open " + path + ": " + std::strerror(errno);
  }, "FILE", "existing_file");
}

CLI::Validator existing_folder() {
  return CLI::Validator([](std::string& path) {
    const int kind = kind_of(path);
    if (kind == 2) return std::string();
    return kind == 1 ? path + " is a file, a folder is expected" : "cannot open " + path + ": " + std::strerror(errno);
  }, "FOLDER", "existing_folder");
}

CLI::Validator existing_path() {
  return CLI::Validator([](std::string& path) {
    if (kind_of(path) != 0) return std::string();
    return "cannot open " + path + ": " + std::strerror(errno);
  }, "PATH", "existing_path");
}

}  // namespace epl::tools
