#include "tools/help.h"

#include <algorithm>

#include "tools/commands.h"
#include "tools/option_rules.h"
#include "tools/words.h"

namespace epl::tools {
namespace {

constexpr size_t width = 80, indent = 2, column = 28;

// What an option says, with the names there are for it, whose option it is, and what it is unless given.
std::string sentence(const OptionText& option, const CommandText& command, const Json& engine) {
  std::string out = option.description;
  const std::vector<std::string> names = names_for(option, engine);
  if (!names.empty()) out += ": " + joined(names, ", ");
  // An option of the loss, the optimizer or the schedule that only some of them have.
  static constexpr std::pair<const char*, const char*> owners[] = {
      {groups::loss, "losses"}, {groups::optimizer, "optimizers"}, {groups::optimizer, "schedules"}};
  std::string key = option.names.back().substr(option.positional ? 0 : 2);
  std::replace(key.begin(), key.end(), '-', '_');
  for (const auto& [group, list] : owners) {
    std::vector<std::string> having;
    for (const Json& row : engine.at(list)) {
      if (option.group == group && row.at("options").contains(key)) having.push_back(row.at("name"));
    }
    if (!having.empty() && having.size() < engine.at(list).size()) out += " (" + listed(having) + ")";
  }
  if (!option.default_text.empty()) out += " (default: " + option.default_text + ")";
  if (option.required) out += " (required)";
  for (const Choice& choice : required_choices()) {
    const bool among = command.name == choice.command && std::find(choice.one_of.begin(), choice.one_of.end(),
                                                                   option.names.back()) != choice.one_of.end();
    if (among) out += " (required: " + listed({choice.one_of.begin(), choice.one_of.end()}, "or") + ")";
  }
  return out;
}

std::string name_text(const OptionText& option) {
  std::string name = joined(option.names, ", ");
  if (option.positional)
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name + (option.takes_value && !option.positional ? " " + option.value : "") +
         (option.positional && option.repeatable ? " ..." : "");
}

// The words of a text in lines from `from` to the right edge; the first begins where the cursor stands.
std::string wrapped(const std::string& text, size_t from, size_t cursor) {
  std::string out, word;
  const auto put = [&] {
    if (word.empty()) return;
    if (cursor > from && cursor + 1 + word.size() > width) {
      out += "\n" + std::string(from, ' ');
      cursor = from;
    } else if (cursor > from) {
      out += ' ';
      ++cursor;
    }
    out += word;
    cursor += word.size();
    word.clear();
  };
  for (char c : text) {
    if (c == ' ') {
      put();
    } else {
      word += c;
    }
  }
  put();
  return out + "\n";
}

// A name on the left, what it is on the right.
std::string entry(const std::string& name, const std::string& text) {
  std::string out = std::string(indent, ' ') + name;
  if (out.size() + 2 > column) {
    out += "\n" + std::string(column, ' ');
  } else {
    out.resize(column, ' ');
  }
  return out + wrapped(text, column, column);
}

struct Group {
  std::string title;
  std::vector<const OptionText*> options;
};

// The options as they are read: what is needed first, within its group and by the order of the groups.
std::vector<Group> grouped(const CommandText& command) {
  std::vector<Group> out;
  for (const char* title : groups::all) out.push_back({title, {}});
  for (const OptionText& option : command.options) {
    auto group = std::find_if(out.begin(), out.end(), [&](const Group& one) { return one.title == option.group; });
    if (group == out.end()) group = out.end() - 1;
    group->options.push_back(&option);
  }
  for (Group& group : out) {
    std::stable_sort(group.options.begin(), group.options.end(),
                     [](const OptionText* a, const OptionText* b) { return a->required > b->required; });
  }
  std::erase_if(out, [](const Group& group) { return group.options.empty(); });
  return out;
}

// "epl train model (--text FILE | --data PATH) [OPTION ...]"
std::string usage_line(const CommandText& command) {
  std::string out = "epl " + command.name;
  for (const OptionText& option : command.options) {
    if (option.positional) out += " " + (option.required ? name_text(option) : "[" + name_text(option) + "]");
  }
  for (const Choice& choice : required_choices()) {
    if (command.name != choice.command) continue;
    std::vector<std::string> texts;
    for (const char* name : choice.one_of) {
      for (const OptionText& option : command.options) {
        if (option.names.back() == name) texts.push_back(name_text(option));
      }
    }
    out += " (" + joined(texts, " | ") + ")";
  }
  for (const OptionText& option : command.options) {
    if (!option.positional && option.required) out += " " + name_text(option);
  }
  return out + " [OPTION ...]";
}

// A footer that is indented is what can be typed.
bool is_example(const CommandText& command) { return command.footer.starts_with(" "); }

std::string exit_code_text() {
  std::string out;
  for (const ExitCode& row : exit_codes()) out += entry(std::to_string(row.code), row.meaning);
  return out;
}

// roff: a backslash and a leading dot or quote would be commands.
std::string roff(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((i == 0 || text[i - 1] == '\n') && (text[i] == '.' || text[i] == '\'')) out += "\\&";
    if (text[i] == '\\') {
      out += "\\e";
    } else if (text[i] == '-') {
      out += "\\-";
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string man_options(const CommandText& command, const Json& engine) {
  std::string out;
  for (const Group& group : grouped(command)) {
    const std::string title = ".PP\n.B " + roff(group.title) + "\n";
    std::string options;
    for (const OptionText* option : group.options) {
      if (option->names.back() == "--help") continue;
      options += ".TP\n\\fB" + roff(option->positional ? name_text(*option) : joined(option->names, ", ")) + "\\fR" +
                 (option->takes_value && !option->positional ? " \\fI" + roff(option->value) + "\\fR" : "") + "\n" +
                 roff(sentence(*option, command, engine)) + "\n";
    }
    if (!options.empty()) out += title + options;
  }
  return out;
}

}  // namespace

const std::vector<ExitCode>& exit_codes() {
  static const std::vector<ExitCode> rows = {
      {0, "done"},
      {1, "a check did not hold (epl check)"},
      {2, "the command line cannot be meant like this; nothing was done"},
      {3, "a model, a file, data or an option does not fit"},
      {4, "this build does not support what was asked for"},
      {5, "the system refused a read or a write, or has no room on the disk, no thread or no descriptor left"},
      {6, "out of memory"},
      {7, "a bug of EPL's: please report it"},
      {8, "a step failed, as at a loss that is not finite; the weights of the steps before it are saved"},
      {129, "SIGHUP ended the run; the trained weights are saved"},
      {130, "SIGINT (Ctrl-C), or a signal to another process of the job, ended the run; the trained weights are saved"},
      {143, "SIGTERM ended the run; the trained weights are saved"},
  };
  return rows;
}

std::vector<std::string> names_for(const OptionText& option, const Json& engine) {
  static constexpr std::pair<const char*, const char*> lists[] = {{"--optimizer", "optimizers"},
                                                                  {"--loss", "losses"},
                                                                  {"--schedule", "schedules"},
                                                                  {"--metrics", "metrics"},
                                                                  {"--device", "devices"}};
  std::vector<std::string> out;
  for (const auto& [name, list] : lists) {
    if (option.names.back() != name || !engine.contains(list)) continue;
    for (const Json& row : engine.at(list))
      out.push_back(row.is_string() ? row.get<std::string>() : row.at("name").get<std::string>());
    for (const Json& row : engine.at(list)) {
      if (!row.is_object() || !row.contains("sheets")) continue;
      for (const Json& sheet : row.at("sheets")) out.push_back(sheet.at("name").get<std::string>());
    }
  }
  return out;
}

std::string help_text(const std::vector<CommandText>& commands, const std::string& name, const Json& engine) {
  const auto found =
      std::find_if(commands.begin(), commands.end(), [&](const CommandText& one) { return one.name == name; });
  const CommandText& command = found == commands.end() ? commands[0] : *found;
  std::string out;
  if (command.name.empty()) {
    out = wrapped(command.description, 0, 0) + "\nUsage: epl COMMAND [ARGUMENT ...]\n\nCommands\n";
    for (size_t i = 1; i < commands.size(); ++i) out += entry(commands[i].name, commands[i].description);
    out += "\nOptions\n" + entry("-h, --help", "this text; epl COMMAND --help has the options of a command") +
           entry("-V, --version", "the version of EPL");
  } else {
    out = wrapped(command.description, 0, 0) + "\n" + wrapped("Usage: " + usage_line(command), 4, 0);
    for (const Group& group : grouped(command)) {
      out += "\n" + group.title + "\n";
      for (const OptionText* option : group.options)
        out += entry(name_text(*option), sentence(*option, command, engine));
    }
  }
  if (is_example(command)) {
    out += "\n" + std::string(command.name.empty() ? "A language model from nothing, in three lines" : "Examples") +
           "\n" + command.footer + "\n";
  } else if (!command.footer.empty()) {
    out += "\n" + wrapped(command.footer, 0, 0);
  }
  if (command.name.empty()) out += "\nExit codes\n" + exit_code_text();
  return out;
}

std::string man_page(const std::vector<CommandText>& commands, const Json& engine, const std::string& version) {
  std::string out = ".TH EPL 1 \"\" \"epl " + version + "\" \"User Commands\"\n.SH NAME\nepl \\- " +
                    roff("train neural networks from ONNX files") + "\n.SH SYNOPSIS\n";
  for (size_t i = 1; i < commands.size(); ++i)
    out += roff(usage_line(commands[i])) + "\n" + (i + 1 < commands.size() ? ".br\n" : "");
  out += ".SH DESCRIPTION\n" + roff(commands[0].description) + "\n.SH COMMANDS\n";
  for (size_t i = 1; i < commands.size(); ++i) {
    out += ".SS epl " + roff(commands[i].name) + "\n" + roff(commands[i].description) + "\n" +
           man_options(commands[i], engine);
    if (!is_example(commands[i]) && !commands[i].footer.empty()) out += ".PP\n" + roff(commands[i].footer) + "\n";
  }
  out += ".SH EXIT STATUS\n";
  for (const ExitCode& row : exit_codes())
    out += ".TP\n.B " + std::to_string(row.code) + "\n" + roff(row.meaning) + "\n";
  out += ".SH EXAMPLES\n.nf\n";
  for (const CommandText& command : commands) {
    if (is_example(command)) out += roff(command.footer) + "\n";
  }
  return out + ".fi\n";
}

}  // namespace epl::tools
