// Libraries of NVIDIA that are not there or are too old: the error says which, where, which version, and what brings a
// newer one.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "backends/cuda/api/blas_lt.h"
#include "backends/cuda/api/library.h"
#include "tests/temporary_folder.h"

namespace epl::cuda {
namespace {

int said_version(void* library) {
  auto* const function = function_in<int (*)()>(library, "epl_test_version");
  return function == nullptr ? 0 : function();
}

class Libraries : public testing::Test {
 protected:
  // A library of this version with the functions `one` and `two`.
  void make(int version) {
    const std::string source = folder / "library.c";
    std::ofstream(source) << "int epl_test_version(void) { return " << version
                          << "; }\nint one(void) { return 1; }\nint two(void) { return 2; }\n";
    const std::string command = cat("gcc -shared -fPIC ", source, " -o ", folder / row.file);
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  Result<FoundLibrary> open(std::span<const FunctionRow> functions) {
    return open_library(row, folder.path(), functions);
  }
  void expect_words(const Status& status, std::initializer_list<std::string_view> words) {
    ASSERT_FALSE(status.ok());
    for (const std::string_view word : words)
      EXPECT_NE(status.message().find(word), std::string::npos) << word << " in " << status.message();
  }

  TemporaryFolder folder;
  void *one = nullptr, *two = nullptr, *three = nullptr;
  const LibraryRow row{.what = "a library of tests",
                       .file = "libepl_test_old.so.13",
                       .packages = "the package of tests",
                       .wanted = 13010,
                       .version = said_version};
};

TEST_F(Libraries, AMissingOneSaysWhereItWasLookedForAndWhatBringsIt) {
  const FunctionRow functions[] = {{"one", 10010, &one}};
  const auto found = open(functions);
  EXPECT_EQ(found.status().code(), Code::not_found);
  expect_words(found.status(),
               {"a library of tests", "libepl_test_old.so.13", "and where the loader looks", "the package of tests"});
}

TEST_F(Libraries, AnOpenedOneSaysItsPathAndVersion) {
  make(13020);
  const FunctionRow functions[] = {{"one", 10010, &one}, {"two", 11040, &two}};
  const auto found = open(functions);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->version, 13020);
  EXPECT_NE(found->path.find("libepl_test_old.so.13"), std::string::npos) << found->path;
  EXPECT_NE(one, nullptr);
  EXPECT_NE(two, nullptr);
}

TEST_F(Libraries, WithoutAFunctionItIsTooOld) {
  make(12080);
  const FunctionRow functions[] = {{"one", 10010, &one}, {"three", 13000, &three}};
  const auto found = open(functions);
  EXPECT_EQ(found.status().code(), Code::unsupported);
  expect_words(found.status(),
               {"version 12.8", "too old", "no three, which version 13.0 brought", "the package of tests"});
}

TEST_F(Libraries, AnOlderVersionThanIsWantedIsTooOld) {
  make(13000);
  const FunctionRow functions[] = {{"one", 10010, &one}};
  const auto found = open(functions);
  EXPECT_EQ(found.status().code(), Code::unsupported);
  expect_words(found.status(), {"version 13.0", "version 13.1 is the oldest", "the package of tests"});
}

}  // namespace
}  // namespace epl::cuda
