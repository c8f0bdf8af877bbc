// --help and the man page. Both come from the parser's options and from the engine's tables, so they cannot be out of
// date.
#pragma once

#include <string>
#include <vector>

#include "tools/json.h"
#include "tools/usage.h"

namespace epl::tools {

struct ExitCode {
  int code;
  const char* meaning;
};
const std::vector<ExitCode>& exit_codes();

// The names that the engine has for an option: of --optimizer its optimizers; none for most.
std::vector<std::string> names_for(const OptionText& option, const Json& engine);

// The help of a command, of the program where the name is empty; no line is longer than 80 columns.
std::string help_text(const std::vector<CommandText>& commands, const std::string& name, const Json& engine);

std::string man_page(const std::vector<CommandText>& commands, const Json& engine, const std::string& version);

}  // namespace epl::tools
