// docs/ops.md, made from the records; a test keeps the file up to date.
#pragma once

#include <string>

namespace epl {

// Every op by name: signature, meaning, attributes with defaults, gradient, and how one sample may be cut.
std::string op_documentation();

}  // namespace epl
