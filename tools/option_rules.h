// What holds for options beyond their own kind: numbers are numbers, and an option that only another one gives a meaning to is
// not taken without it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace epl::tools {

// Every option that takes a number, of every command, refuses what is none: "", "nan", "inf", "1e23" or -1 for a count.
void require_numbers(CLI::App& app);

// After parsing, a sentence about the first option of a command that does nothing because another one is missing; else "".
std::string option_without_meaning(const CLI::App& command);

}  // namespace epl::tools
