// Libraries of NVIDIA that are not there or are too old: the error says which, where, which version, and what brings a
// newer one.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "backends/cuda/api/dnn.h"
#include "backends/cuda/api/library.h"
#include "backends/cuda/listing.h"
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
                       .packages = {.debian = "the package of tests", .wheel = "none", .repository = "another one"},
                       .wanted = 13010,
                       .version = said_version};
};

TEST_F(Libraries, AMissingOneSaysWhereItWasLookedForAndWhatBringsIt) {
  const FunctionRow functions[] = {{"one", 10010, &one}};
  const auto found = open(functions);
  EXPECT_EQ(found.status().code(), Code::not_found);
  expect_words(found.status(), {"a library of tests", "libepl_test_old.so.13", "and where the loader looks",
                                "Debian: the package of tests; NVIDIA's repository: another one"});
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

// A cuDNN of another time: versions that its number says, and functions that it lacks.
class LibrariesOfConvolutions : public Libraries {
 protected:
  // With all functions but `left_out`.
  Status found(size_t version, const std::string& left_out) {
    const std::string source = folder / "dnn.c";
    std::ofstream text(source);
    text << "unsigned long cudnnGetVersion(void) { return " << version << "; }\n";
    for (const char* name : names)
      if (name != left_out) text << "int " << name << "(void) { return 0; }\n";
    text.close();
    const std::string command = cat("gcc -shared -fPIC ", source, " -o ", folder / dnn_row.file);
    EXPECT_EQ(std::system(command.c_str()), 0);
    return find_dnn(folder.path()).status();
  }
  static constexpr const char* names[] = {
#define EPL_NAME(result, name, symbol, since, parameters) \
  std::string_view(#symbol) == "cudnnGetVersion" ? "unused" : #symbol,
      EPL_CUDA_DNN_FUNCTIONS(EPL_NAME)
#undef EPL_NAME
  };
};

TEST_F(LibrariesOfConvolutions, AVersionThatServesIsOpened) { EXPECT_TRUE(found(90200, "").ok()); }

TEST_F(LibrariesOfConvolutions, AnOlderVersionIsTooOld) {
  expect_words(found(90100, ""),
               {"cuDNN", "version 9.1)", "too old", "version 9.2 is the oldest", "PyPI: nvidia-cudnn-cu13"});
}

TEST_F(LibrariesOfConvolutions, WithoutTheBackendInterfaceItIsTooOld) {
  expect_words(found(70605, "cudnnBackendExecute"),
               {"version 7.6)", "no cudnnBackendExecute, which version 8.0 brought", "libcudnn9-cuda-13"});
}

TEST_F(LibrariesOfConvolutions, AMissingOneSaysWhatBringsIt) {
  const Status status = find_dnn(folder.path()).status();
  if (status.ok()) GTEST_SKIP() << "the loader finds one";
  EXPECT_EQ(status.code(), Code::not_found);
  expect_words(status, {"libcudnn.so.9", "and where the loader looks", "PyPI: nvidia-cudnn-cu13"});
}

// What the pack opens, in a folder that has none of it: each is listed with what brings it, found or not.
TEST(ListedLibraries, AreAllThatThePackOpens) {
  const TemporaryFolder nothing;
  std::vector<std::string> files;
  for (int i = 0;; ++i) {
    epl_pack_library one = {};
    one.struct_size = sizeof one;
    const Status listed = describe_library(nothing.path(), i, one);
    if (!listed.ok()) {
      EXPECT_EQ(listed.code(), Code::not_found);
      break;
    }
    files.push_back(one.file);
    for (const char* text : {one.what, one.debian, one.wheel, one.repository}) EXPECT_STRNE(text, "") << one.file;
    EXPECT_NE(std::string(one.looked).find(nothing.path()), std::string::npos) << one.looked;
    const std::string reason = one.reason;
    EXPECT_EQ(one.state == 0, reason.empty()) << one.file << ": " << reason;
    EXPECT_EQ(one.state == 0, std::string(one.path) != "") << one.file;
    if (one.state == EPL_PACK_MISSING) {
      EXPECT_NE(reason.find(one.repository), std::string::npos) << reason;
    }
  }
  EXPECT_EQ(files, (std::vector<std::string>{"libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13", "libcudnn.so.9",
                                             "libnvidia-ml.so.1", "libnccl.so.2"}));
}

TEST(ListedLibraries, AnOlderStructIsRefused) {
  epl_pack_library small = {};
  small.struct_size = sizeof small - 8;
  EXPECT_EQ(describe_library("", 0, small).code(), Code::unsupported);
}

TEST(ListedLibraries, AGpuThatIsTooOldIsSaid) {
  EXPECT_TRUE(check_capability("T4", 75).ok());
  const Status old = check_capability("Tesla V100-SXM2-16GB", 70);
  EXPECT_EQ(old.code(), Code::unsupported);
  for (const char* part : {"Tesla V100-SXM2-16GB", "too old", "7.0", "7.5"})
    EXPECT_NE(old.message().find(part), std::string::npos) << old.message();
}

}  // namespace
}  // namespace epl::cuda
