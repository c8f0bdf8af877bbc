#include "tools/kernel_cache.h"

namespace epl::tools {

std::string kernel_cache_folder(const std::string& option,
                                const std::function<const char*(const char* variable)>& environment) {
  if (option == "none") return "";
  if (!option.empty()) return option;
  // A path that is not absolute does not count, says the specification.
  const auto absolute = [&](const char* variable) {
    const char* value = environment(variable);
    return value != nullptr && *value == '/' ? std::string(value) : std::string();
  };
  if (const std::string caches = absolute("XDG_CACHE_HOME"); !caches.empty()) return caches + "/epl";
  const std::string home = absolute("HOME");
  return home.empty() ? "" : home + "/.cache/epl";
}

}  // namespace epl::tools
