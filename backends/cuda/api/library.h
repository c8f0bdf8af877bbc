// A library of NVIDIA, opened when it is first needed. Each has a file here with declarations of what we call of it,
// our own, and one table of its functions; tests compare them with NVIDIA's headers.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace epl::cuda {

// What brings a library, or why nothing of that kind does.
struct Packages {
  const char *debian, *wheel, *repository;  // of Debian, of PyPI, of NVIDIA's repository
  std::string text() const;                 // for a message
};

// Versions are numbers like 13000 for 13.0.
struct LibraryRow {
  const char* what;  // "the NVIDIA driver"
  const char* file;  // "libcuda.so.1"
  Packages packages;
  int wanted;  // the oldest version that serves; 0: any
  // What the opened library says of itself; 0 where it does not.
  int (*version)(void* library);
};

// "13.0"
std::string version_text(int version);
// "in FOLDER and where the loader looks"
std::string looked_for(const std::string& folder);

struct FunctionRow {
  const char* name;
  int since;  // the version that brought it
  void** pointer;
};

struct FoundLibrary {
  std::string path;  // of the file
  int version = 0;
};

// Opens the library, in `folder` if it is there, else where the loader looks, and fills the pointers. An error says
// which library or function is missing, where it was looked for, which version was found and which is wanted, and what
// brings it. The library stays open until the process ends.
Result<FoundLibrary> open_library(const LibraryRow& row, const std::string& folder,
                                  std::span<const FunctionRow> functions);

void* find_function(void* library, const char* name);
// Null where the library has none of this name.
template <class F> F function_in(void* library, const char* name) {
  return reinterpret_cast<F>(find_function(library, name));
}

}  // namespace epl::cuda
