// Where kernels that are compiled for a GPU stay for later runs.
#pragma once

#include <functional>
#include <string>

namespace epl::tools {

// What --kernel-cache names. Without it: `epl` in the user's folder for caches, as the XDG Base Directory Specification
// finds that in the environment. Empty: nowhere.
std::string kernel_cache_folder(const std::string& option,
                                const std::function<const char*(const char* variable)>& environment);

}  // namespace epl::tools
