// The sources that programs for a GPU are made of, by their path in the repository. cmake/text_table.cmake makes them
// part of the pack.
#pragma once

#include <string_view>

namespace epl::cuda {

// The text of a file; empty where it is not among those that the pack carries.
std::string_view source_text(std::string_view path);

}  // namespace epl::cuda
