// What an option needs of others to mean anything.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace epl::tools {

// Of these options a command wants one.
struct Choice {
  const char* command;
  std::vector<const char*> one_of;
  const char* what;
};
const std::vector<Choice>& required_choices();

// A sentence where such a choice was not made, else "".
std::string missing_choice(const CLI::App& command);

// A sentence about an option that would change nothing as the command was typed, else "".
std::string option_without_meaning(const CLI::App& command);

}  // namespace epl::tools
