// docs/strategy.md, from the table of keys; a test keeps the file equal to it.
#pragma once

#include <string>

namespace epl {

std::string strategy_documentation();

}  // namespace epl
