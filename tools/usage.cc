#include "tools/usage.h"

#include <algorithm>

#include "tools/words.h"

namespace epl::tools {
namespace {

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

// CLI11 knows the type of the variable, "TEXT", and what our checks say of themselves, "TEXT:FILE".
std::string value_of(const std::string& type) {
  const std::string first = type.substr(0, type.find(':'));
  for (const char* word : {"FILE", "FOLDER", "PATH"}) {
    if (first == "TEXT" && type.find(word) != std::string::npos) return word;
  }
  return first == "INT" || first == "UINT" ? "N" : first == "FLOAT" ? "X" : first;
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
  out.value = out.takes_value ? value_of(option.get_type_name()) : "";
  return out;
}

std::vector<OptionText> options_of(const CLI::App& app) {
  std::vector<OptionText> out;
  for (const CLI::Option* option : app.get_options()) out.push_back(text_of(*option));
  return out;
}

const CLI::App& chosen(const CLI::App& app) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  return commands.empty() ? app : *commands[0];
}

std::string command_text(const CLI::App& app) { return app.get_parent() == nullptr ? "epl" : "epl " + app.get_name(); }

// What stands on the command line and belongs to nothing.
std::string explain_extras(const CLI::App& command) {
  std::vector<std::string> names;
  for (const OptionText& option : options_of(command)) {
    if (!option.positional) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  const std::vector<std::string> left = command.remaining(true);
  std::string word = left.empty() ? "" : left[0];
  for (const std::string& one : left) {  // a value is left over because its option is not known
    if (one.starts_with("-")) {
      word = one.substr(0, one.find('='));
      break;
    }
  }
  if (word.starts_with("-")) return "no option " + word + did_you_mean(word, names);
  return "\"" + word + "\" was not expected";
}

// "--x: the rest" or "--x the rest": the option that CLI11 speaks of.
std::string option_of(const std::string& what) { return what.substr(0, what.find_first_of(": ")); }

std::string explained(const CLI::App& app, const CLI::App& command, const CLI::ParseError& error) {
  const int kind = error.get_exit_code();
  const std::string what = error.what();
  const auto is = [&](CLI::ExitCodes one) { return kind == static_cast<int>(one); };
  // A misspelt option is reported first: something else may be missing because of it.
  if (&command != &app && !command.get_allow_extras() && !command.remaining(true).empty())
    return explain_extras(command);
  if (is(CLI::ExitCodes::ExtrasError)) return explain_extras(command);
  if (is(CLI::ExitCodes::RequiredError)) {
    if (&command == &app) return "a command is needed: " + listed(names_of_commands(app));
    for (const OptionText& option : options_of(command)) {
      if (option.required && what.starts_with(option.names.back() + " "))
        return option.names.back() + " is missing: " + option.description;
    }
  }
  if (is(CLI::ExitCodes::ArgumentMismatch)) {
    if (what.find("At Most") != std::string::npos) return option_of(what) + " is given more than once";
    return what.find("override") != std::string::npos ? "--" + option_of(what) + " takes no value"
                                                      : option_of(what) + " needs a value";
  }
  if (is(CLI::ExitCodes::ExcludesError))
    return option_of(what) + " and " + what.substr(what.rfind(' ') + 1) + " exclude each other";
  if (is(CLI::ExitCodes::ConversionError)) {  // "Could not convert: --x = y": digits, but too many for what they are
                                              // for
    const size_t colon = what.find(": "), equals = what.find(" = ");
    if (colon != std::string::npos && equals != std::string::npos)
      return what.substr(colon + 2, equals - colon - 2) + ": " + what.substr(equals + 3) + " is too large";
  }
  return what;
}

}  // namespace

std::vector<CommandText> describe(const CLI::App& app) {
  std::vector<CommandText> out(1);
  out[0] = {"", app.get_description(), app.get_footer(), options_of(app)};
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    out.push_back({command->get_name(), command->get_description(), command->get_footer(), options_of(*command)});
  }
  return out;
}

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = chosen(app);
  return explained(app, command, error) + " (see " + command_text(command) + " --help)";
}

std::string unknown_command(const CLI::App& app, int argc, const char* const* argv) {
  if (argc < 2 || argv[1][0] == '-') return "";
  const std::vector<std::string> names = names_of_commands(app);
  const std::string word = argv[1];
  return std::find(names.begin(), names.end(), word) != names.end() ? "" : "no command " + word + choices(word, names);
}

}  // namespace epl::tools
