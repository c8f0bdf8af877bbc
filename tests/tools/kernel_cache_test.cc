// Where the tool keeps compiled kernels, by its option and the environment.
#include "tools/kernel_cache.h"

#include <gtest/gtest.h>

#include <map>

namespace epl::tools {
namespace {

std::string folder_with(const std::string& option, const std::map<std::string, std::string>& variables) {
  return kernel_cache_folder(option, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(KernelCacheFolder, FollowsTheEnvironment) {
  EXPECT_EQ(folder_with("", {{"HOME", "/home/a"}}), "/home/a/.cache/epl");
  EXPECT_EQ(folder_with("", {{"HOME", "/home/a"}, {"XDG_CACHE_HOME", "/caches"}}), "/caches/epl");
  EXPECT_EQ(folder_with("", {{"HOME", "/home/a"}, {"XDG_CACHE_HOME", "caches"}}), "/home/a/.cache/epl");
  EXPECT_EQ(folder_with("", {{"HOME", "/home/a"}, {"XDG_CACHE_HOME", ""}}), "/home/a/.cache/epl");
  EXPECT_EQ(folder_with("", {{"HOME", ""}}), "");
  EXPECT_EQ(folder_with("", {}), "");
}

TEST(KernelCacheFolder, TheOptionGoesFirst) {
  EXPECT_EQ(folder_with("kernels", {{"XDG_CACHE_HOME", "/caches"}}), "kernels");
  EXPECT_EQ(folder_with("none", {{"XDG_CACHE_HOME", "/caches"}}), "");
  EXPECT_EQ(folder_with("./none", {}), "./none");
}

}  // namespace
}  // namespace epl::tools
