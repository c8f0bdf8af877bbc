// A library of NVIDIA, opened when it is first needed. Each has a file here with declarations of what we call of it,
// our own, and one table of its functions; tests compare them with NVIDIA's headers.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace epl::cuda {

struct LibraryRow {
  const char* what;      // "the NVIDIA driver"
  const char* file;      // "libcuda.so.1"
  const char* packages;  // what brings it
};

struct FunctionRow {
  const char* name;
  int since;  // the version of CUDA that brought it, as 13000
  void** pointer;
};

// Opens the library, in `folder` if it is there, else where the loader looks, and fills the pointers. An error says
// which library or function is missing, where it was looked for and what brings it. It stays open until the process
// ends.
Result<std::string> open_library(const LibraryRow& row, const std::string& folder,
                                 std::span<const FunctionRow> functions);

}  // namespace epl::cuda
