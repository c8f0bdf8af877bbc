#include "backends/cuda/api/library.h"

#include <dlfcn.h>
#include <unistd.h>

namespace epl::cuda {
namespace {

std::string version_text(int version) { return cat(version / 1000, ".", version % 1000 / 10); }

// The path that it was found at, where the loader says so.
std::string path_of(void* function, const char* file) {
  Dl_info info{};
  return ::dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : file;
}

}  // namespace

Result<std::string> open_library(const LibraryRow& row, const std::string& folder,
                                 std::span<const FunctionRow> functions) {
  const std::string near = cat(folder, "/", row.file);
  const bool is_near = !folder.empty() && ::access(near.c_str(), F_OK) == 0;
  void* library = ::dlopen(is_near ? near.c_str() : row.file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    const std::string looked =
        folder.empty() ? std::string("where the loader looks") : cat("in ", folder, " and where the loader looks");
    return error(Code::not_found, row.what, " (", row.file, ") cannot be opened; it was looked for ", looked, ": ",
                 why != nullptr ? why : "no reason was given", "; it comes with ", row.packages);
  }
  for (const FunctionRow& function : functions) {
    *function.pointer = ::dlsym(library, function.name);
    if (*function.pointer == nullptr) {
      return unsupported(row.what, " (", is_near ? near.c_str() : row.file, ") is too old: it has no ", function.name,
                         ", which version ", version_text(function.since), " brought; a newer one comes with ",
                         row.packages);
    }
  }
  return path_of(*functions[0].pointer, row.file);
}

}  // namespace epl::cuda
