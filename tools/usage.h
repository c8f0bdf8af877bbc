// The command line as data: what its commands and options are, and what was wrong with one that was typed. From it come the
// messages of wrong use, the man page and the completions.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace epl::tools {

struct OptionText {
  std::vector<std::string> names;   // "--out", "-h"; a positional has its bare name
  bool positional = false, required = false, takes_value = false, repeatable = false;
  std::string value;                // what kind: "FILE", "FOLDER", "NUMBER", "TEXT"
  std::string description, default_text, group;
};

struct CommandText {
  std::string name, description;
  std::vector<OptionText> options;
};

// Every command with its options; the first is the program itself, without a name.
std::vector<CommandText> describe(const CLI::App& app);

// One sentence for what CLI11 could not read, in our words.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

// A sentence when the first word is no command, else "".
std::string unknown_command(const CLI::App& app, int argc, const char* const* argv);

// Checks of values: their messages name the value and what would do.
CLI::Validator at_least(double least);
CLI::Validator between(double least, double greatest);
CLI::Validator whole_number(int64_t least);   // digits alone: no sign swallowed, nothing rounded, nothing cut to 64 bits
CLI::Validator existing_file();
CLI::Validator existing_folder();
CLI::Validator existing_path();

}  // namespace epl::tools
