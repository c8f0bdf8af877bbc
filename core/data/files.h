// Several files of one kind as one: their samples follow one another.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/data/reader.h"

namespace epl {

// The files that a path with * or ? in its last part stands for, in the order of their names; the path itself where it
// has none, or where there is a file of this very name.
Result<std::vector<std::string>> matching_files(const std::string& path);

// Files with the same fields; an error names the one that has others.
Result<std::unique_ptr<Reader>> join_files(std::vector<std::unique_ptr<Reader>> files,
                                           const std::vector<std::string>& names);

}  // namespace epl
