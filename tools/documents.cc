// epl completion and epl man: what the command line says of itself, for shells and for man. Both read the options from
// the parser, as --help does (tools/help.h), so they cannot be out of date.
#include <algorithm>
#include <cstdio>

#include "tools/commands.h"
#include "tools/help.h"
#include "tools/job.h"
#include "tools/values.h"
#include "tools/words.h"

namespace epl::tools {
namespace {

// What a shell offers after an option: file names, or the names that the engine has in a list of its description.
struct Values {
  bool files = false;
  std::vector<std::string> words;
};

Values values_of(const OptionText& option, const Json& engine) {
  Values out;
  out.words = names_for(option, engine);
  const auto named = [&](const char* name) { return option.names.back() == name; };
  out.files = option.value == "FILE" || option.value == "FOLDER" || option.value == "PATH" || named("--out") ||
              named("--report") || named("--strategy") || named("--data-options") || named("--kernel-cache");
  return out;
}

std::vector<std::string> option_names(const CommandText& command) {
  std::vector<std::string> names;
  for (const OptionText& option : command.options) {
    if (!option.positional) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

std::string bash_script(const std::vector<CommandText>& commands, const Json& engine) {
  std::string names, options, values;
  for (size_t i = 1; i < commands.size(); ++i) {
    names += (names.empty() ? "" : " ") + commands[i].name;
    options += "    " + commands[i].name + ") options='" + joined(option_names(commands[i]), " ") + "' ;;\n";
    for (const OptionText& option : commands[i].options) {
      const Values v = values_of(option, engine);
      if (!v.words.empty())
        values += "    " + commands[i].name + "\\ " + option.names.back() + ") COMPREPLY=($(compgen -W '" +
                  joined(v.words, " ") + "' -- \"$word\")); return ;;\n";
    }
  }
  return R"(# Completion of epl for bash; printed by `epl completion bash`.
_epl() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} options=''
  COMPREPLY=()
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W ')" +
         names + R"( --help --version' -- "$word"))
    return
  fi
  case "$command $before" in
)" + values +
         R"(  esac
  case $command in
)" + options +
         R"(  esac
  case $word in
    -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
    *) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$word")) ;;
  esac
}
complete -F _epl epl
)";
}

// A text inside single quotes of a shell; zsh reads brackets and colons of descriptions as its own.
std::string quoted(std::string_view text, bool zsh) {
  std::string out;
  for (char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (zsh && (c == '[' || c == ']' || c == ':' || c == '\\')) out += '\\';
      out += c;
    }
  }
  return out;
}

std::string zsh_script(const std::vector<CommandText>& commands, const Json& engine) {
  std::string names, cases;
  for (size_t i = 1; i < commands.size(); ++i) {
    names += "    '" + commands[i].name + ":" + quoted(commands[i].description, true) + "'\n";
    cases += "    " + commands[i].name + ")\n      _arguments -s";
    for (const OptionText& option : commands[i].options) {
      const Values v = values_of(option, engine);
      const std::string action = !v.words.empty() ? "(" + quoted(joined(v.words, " "), true) + ")"
                                 : v.files        ? "_files"
                                                  : " ";
      if (option.positional) {
        cases += " \\\n        '" + std::string(option.repeatable ? "*" : "") + ":" + option.names[0] + ":" +
                 (v.files ? "_files" : " ") + "'";
        continue;
      }
      for (const std::string& name : option.names) {
        cases += " \\\n        '" + std::string(option.repeatable ? "*" : "") + name + "[" +
                 quoted(option.description, true) + "]" +
                 (option.takes_value ? ":" + option.value + ":" + action : "") + "'";
      }
    }
    cases += "\n      ;;\n";
  }
  return "#compdef epl\n# Completion of epl for zsh; printed by `epl completion zsh`.\n_epl() {\n  local -a commands\n "
         " commands=(\n" +
         names +
         "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n  local "
         "command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n" +
         cases + "  esac\n}\n_epl \"$@\"\n";
}

std::string fish_script(const std::vector<CommandText>& commands, const Json& engine) {
  std::string out = "# Completion of epl for fish; printed by `epl completion fish`.\n";
  for (size_t i = 1; i < commands.size(); ++i) {
    const CommandText& command = commands[i];
    out += "complete -c epl -n __fish_use_subcommand -f -a " + command.name + " -d '" +
           quoted(command.description, false) + "'\n";
    for (const OptionText& option : command.options) {
      if (option.positional) continue;
      const Values v = values_of(option, engine);
      out += "complete -c epl -n '__fish_seen_subcommand_from " + command.name + "'";
      for (const std::string& name : option.names)
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (option.takes_value)
        out += v.files ? " -r -F" : v.words.empty() ? " -x" : " -x -a '" + joined(v.words, " ") + "'";
      out += " -d '" + quoted(option.description, false) + "'\n";
    }
  }
  return out;
}

}  // namespace

Run add_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  app.add_option("shell", *shell, "bash, zsh or fish")->required()->check(one_of({"bash", "zsh", "fish"}));
  return [shell, &app] {
    const std::vector<CommandText> commands = describe(*app.get_parent());
    const Json& engine = library();
    const std::string script = *shell == "bash"  ? bash_script(commands, engine)
                               : *shell == "zsh" ? zsh_script(commands, engine)
                                                 : fish_script(commands, engine);
    std::fputs(script.c_str(), stdout);
    return 0;
  };
}

Run add_man(CLI::App& app) {
  return [&app] {
    const Json& engine = library();
    std::fputs(man_page(describe(*app.get_parent()), engine, version_text()).c_str(), stdout);
    return 0;
  };
}

}  // namespace epl::tools
