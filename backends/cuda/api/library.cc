#include "backends/cuda/api/library.h"

#include <dlfcn.h>
#include <unistd.h>

namespace epl::cuda {
namespace {

// The path that it was found at, where the loader says so.
std::string path_of(void* function, const char* file) {
  Dl_info info{};
  return ::dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : file;
}

Status too_old(const LibraryRow& row, const std::string& path, int version, const std::string& why) {
  return unsupported(row.what, " (", path, version == 0 ? "" : cat(", version ", version_text(version)),
                     ") is too old: ", why, "; a newer one comes with ", row.packages.text());
}

}  // namespace

std::string version_text(int version) { return cat(version / 1000, ".", version % 1000 / 10); }

std::string looked_for(const std::string& folder) {
  return folder.empty() ? std::string("where the loader looks") : cat("in ", folder, " and where the loader looks");
}

std::string Packages::text() const {
  std::string all;
  const auto add = [&](std::string_view from, std::string_view package) {
    if (package != "none") all += cat(all.empty() ? "" : "; ", from, ": ", package);
  };
  add("Debian", debian);
  add("PyPI", wheel);
  add("NVIDIA's repository", repository);
  return all;
}

void* find_function(void* library, const char* name) { return ::dlsym(library, name); }

Result<FoundLibrary> open_library(const LibraryRow& row, const std::string& folder,
                                  std::span<const FunctionRow> functions) {
  const std::string near = cat(folder, "/", row.file);
  const bool is_near = !folder.empty() && ::access(near.c_str(), F_OK) == 0;
  void* library = ::dlopen(is_near ? near.c_str() : row.file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return error(Code::not_found, row.what, " (", row.file, ") cannot be opened; it was looked for ",
                 looked_for(folder), ": ", why != nullptr ? why : "no reason was given", "; it comes with ",
                 row.packages.text());
  }
  FoundLibrary found{.path = is_near ? near : std::string(row.file), .version = row.version(library)};
  for (const FunctionRow& function : functions) {
    *function.pointer = find_function(library, function.name);
    if (*function.pointer != nullptr) {
      found.path = path_of(*function.pointer, found.path.c_str());
      continue;
    }
    return too_old(row, found.path, found.version,
                   cat("it has no ", function.name, ", which version ", version_text(function.since), " brought"));
  }
  if (found.version != 0 && found.version < row.wanted)
    return too_old(row, found.path, found.version,
                   cat("version ", version_text(row.wanted), " is the oldest that serves"));
  return found;
}

}  // namespace epl::cuda
