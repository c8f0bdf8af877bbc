// The command line as data: what its commands and options are, and what was wrong with one that was typed. From it come
// the messages of wrong use, the man page and the completions.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace epl::tools {

// What belongs together in a command's help, in the order in which it is read there.
namespace groups {
inline constexpr char data[] = "Model and data", loss[] = "Loss", optimizer[] = "Optimizer and schedule",
                      trained[] = "What is trained", validation[] = "Validation", saving[] = "Saving and resuming",
                      watching[] = "Watching", shapes[] = "Shapes and inputs", machine[] = "Machine", other[] = "Other";
inline constexpr const char* all[] = {data,   loss,     optimizer, trained, validation,
                                      saving, watching, shapes,    machine, other};
}  // namespace groups

struct OptionText {
  std::vector<std::string> names;  // "--out", "-h"; a positional has its bare name
  bool positional = false, required = false, takes_value = false, repeatable = false;
  std::string value;  // what it takes: "FILE", "FOLDER", "PATH", "N", "X", "NAME=VALUE", ...
  std::string description, default_text, group;
};

struct CommandText {
  std::string name, description, footer;
  std::vector<OptionText> options;
};

// Every command with its options; the first is the program itself, without a name.
std::vector<CommandText> describe(const CLI::App& app);

// One sentence for what CLI11 could not read, in our words.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

// A sentence when the first word is not a command, else "".
std::string unknown_command(const CLI::App& app, int argc, const char* const* argv);

}  // namespace epl::tools
