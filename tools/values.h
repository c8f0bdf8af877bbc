// Checks of the values of options: their messages name the value and what would do, in our words.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace epl::tools {

CLI::Validator any_number();
CLI::Validator at_least(double least);
CLI::Validator above(double bound);
CLI::Validator between(double least, double greatest);
CLI::Validator integer_value(
    int64_t least);            // digits alone: no sign swallowed, nothing rounded, nothing cut to 64 bits
CLI::Validator seed_number();  // of 64 bits without a sign
CLI::Validator one_of(std::vector<std::string> words);
CLI::Validator list_of(std::vector<std::string> words);  // some of them, with commas between them
CLI::Validator existing_file();
CLI::Validator file_name();  // of a file to write
CLI::Validator existing_folder();
CLI::Validator existing_data();  // a file, a folder, or a pattern of several files

// For every command: a number without a check of its own gets one, and a flag takes no value.
void check_values(CLI::App& app);

}  // namespace epl::tools
