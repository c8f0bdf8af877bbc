// What is kept of compiled kernels from process to process: found again, never wrong, in a folder that may be full,
// gone or written by many.
#include "backends/cuda/kernel_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "core/base/text.h"
#include "tests/temporary_folder.h"

namespace epl::cuda {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_of(const std::string& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}
std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void put(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

TEST(KernelCache, WhatIsKeptIsFoundByItsKeyAlone) {
  const TemporaryFolder folder;
  KernelCache one(folder / "a/b");
  EXPECT_EQ(one.find("key"), std::nullopt);
  one.keep("key", std::string("text\0end", 8));
  EXPECT_EQ(one.find("key"), std::string("text\0end", 8));
  EXPECT_EQ(KernelCache(folder / "a/b").find("key"), std::string("text\0end", 8));
  EXPECT_EQ(one.find("other"), std::nullopt);
  EXPECT_EQ(one.find("ke"), std::nullopt);
  EXPECT_FALSE(one.is_news());
  EXPECT_NE(one.note().find("are kept in \"" + folder / "a/b"), std::string::npos) << one.note();
  EXPECT_EQ(KernelCache::of(""), nullptr);
  EXPECT_EQ(KernelCache::of(folder / "c"), KernelCache::of(folder / "c"));
}

TEST(KernelCache, ADamagedFileIsAsIfItWereNotThere) {
  const TemporaryFolder folder;
  KernelCache cache(folder.path());
  cache.keep("the key", "the text");
  const std::vector<fs::path> files = files_of(folder.path());
  ASSERT_EQ(files.size(), 1u);
  const std::string good = bytes_of(files[0]);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    put(files[0], bad);
    EXPECT_EQ(cache.find("the key"), std::nullopt) << "byte " << at;
    put(files[0], good.substr(0, at));
    EXPECT_EQ(cache.find("the key"), std::nullopt) << "cut to " << at;
  }
  put(files[0], good + "x");
  EXPECT_EQ(cache.find("the key"), std::nullopt);
  cache.keep("the key", "the text");
  EXPECT_EQ(cache.find("the key"), "the text");
  EXPECT_EQ(files_of(folder.path()), files) << "it took the place of the damaged one";
}

TEST(KernelCache, AFileOfAnotherKeyIsNotTaken) {
  const TemporaryFolder folder;
  KernelCache cache(folder.path());
  cache.keep("key 1", "one");
  const fs::path first = files_of(folder.path()).at(0);
  cache.keep("key 2", "two");
  ASSERT_EQ(files_of(folder.path()).size(), 2u);
  for (const fs::path& file : files_of(folder.path()))
    if (file != first) put(file, bytes_of(first));
  EXPECT_EQ(cache.find("key 1"), "one");
  EXPECT_EQ(cache.find("key 2"), std::nullopt);
}

TEST(KernelCache, WhatWasUsedLongestAgoGoes) {
  const TemporaryFolder folder;
  put(folder / "notes.txt", std::string(5000, 'n'));
  KernelCache cache(folder.path(), 10'000);
  const std::string text(960, 't');  // about 1,000 bytes with the head and the key
  for (int i = 0; i < 9; ++i) cache.keep(cat("key ", i), text);
  const auto now = fs::file_time_type::clock::now();
  for (const fs::path& file : files_of(folder.path())) fs::last_write_time(file, now - std::chrono::hours(2));
  EXPECT_EQ(cache.find("key 0"), text);  // used now
  put(folder / (std::string(32, 'a') + ".kernel.1.2"), std::string(1000, 'x'));
  fs::last_write_time(folder / (std::string(32, 'a') + ".kernel.1.2"), now - std::chrono::hours(3));
  cache.keep("key 9", text);
  cache.keep("key 10", text);
  uint64_t bytes = 0;
  for (const fs::path& file : files_of(folder.path()))
    if (file.filename() != "notes.txt") bytes += fs::file_size(file);
  EXPECT_LE(bytes, 10'000u);
  EXPECT_GT(bytes, 5'000u);
  for (const char* used : {"key 0", "key 9", "key 10"}) EXPECT_EQ(cache.find(used), text) << used;
  EXPECT_FALSE(fs::exists(folder / (std::string(32, 'a') + ".kernel.1.2"))) << "of a process that was killed";
  EXPECT_TRUE(fs::exists(folder / "notes.txt")) << "not ours";
  cache.keep("large", std::string(20'000, 'l'));
  EXPECT_EQ(cache.find("large"), std::nullopt);
  EXPECT_EQ(cache.find("key 10"), text) << "what is too large drives nothing out";
}

TEST(KernelCache, AFolderThatCannotBeMadeIsSaidOnce) {
  const TemporaryFolder folder;
  put(folder / "file", "");
  KernelCache cache(folder / "file/kernels");
  cache.keep("key", "text");
  EXPECT_EQ(cache.find("key"), std::nullopt);
  EXPECT_NE(cache.note().find("Not a directory"), std::string::npos) << cache.note();
  EXPECT_TRUE(cache.is_news());
  EXPECT_FALSE(cache.is_news());
}

TEST(KernelCache, AFolderThatGoesAwayIsSaidOnce) {
  const TemporaryFolder folder;
  KernelCache cache(folder / "kernels");
  cache.keep("one", "text");
  EXPECT_FALSE(cache.is_news());
  fs::remove_all(folder / "kernels");
  cache.keep("two", "text");
  EXPECT_EQ(cache.find("one"), std::nullopt);
  EXPECT_EQ(cache.find("two"), std::nullopt);
  EXPECT_TRUE(cache.is_news());
  EXPECT_NE(cache.note().find("are not kept in"), std::string::npos) << cache.note();
}

// Processes with a stand-in for NVRTC, which counts what it compiles.
class KernelCacheProcesses : public testing::Test {
 protected:
  std::string command(const std::string& cache, int capability, const std::string& minor = "0") const {
    return cat("EPL_TEST_COMPILED='", folder / "compiled", "' EPL_TEST_NVRTC_MINOR=", minor, " '", EPL_COMPILE_PROCESS,
               "' '", EPL_TEST_NVRTC_FOLDER, "' '", cache, "' ", capability, texts);
  }
  static std::vector<std::string> lines_of(const std::string& command) {
    std::FILE* out = ::popen(command.c_str(), "r");
    if (out == nullptr) throw std::runtime_error("no process");
    std::string said;
    char part[512];
    for (size_t got; (got = std::fread(part, 1, sizeof part, out)) > 0;) said.append(part, got);
    EXPECT_EQ(::pclose(out), 0) << said;
    std::vector<std::string> lines;
    std::istringstream in(said);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  // What was compiled since the last call, by all processes.
  size_t compiled() {
    const size_t all = bytes_of(folder / "compiled").size(), before = compiled_;
    compiled_ = all;
    return all - before;
  }

  TemporaryFolder folder;
  const std::string texts = " a b c d e f g h";

 private:
  size_t compiled_ = 0;
};

TEST_F(KernelCacheProcesses, ASecondOneCompilesNothing) {
  const std::string cache = folder / "kernels";
  const std::vector<std::string> first = lines_of(command(cache, 90));
  EXPECT_EQ(compiled(), 8u);
  ASSERT_EQ(first.size(), 9u);
  EXPECT_EQ(lines_of(command(cache, 90)), first);
  EXPECT_EQ(compiled(), 0u);
  // Another GPU has another option, and another compiler another version.
  const std::vector<std::string> other = lines_of(command(cache, 80));
  EXPECT_EQ(compiled(), 8u);
  EXPECT_NE(other, first);
  EXPECT_EQ(lines_of(command(cache, 90, "1")), first);
  EXPECT_EQ(compiled(), 8u);
  EXPECT_EQ(lines_of(command(cache, 90)), first);
  EXPECT_EQ(compiled(), 0u);
}

TEST_F(KernelCacheProcesses, WithoutAFolderEachCompiles) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(lines_of(command("", 90)).size(), 8u) << "no note";
    EXPECT_EQ(compiled(), 8u);
  }
  put(folder / "file", "");
  const std::vector<std::string> said = lines_of(command(folder / "file/kernels", 90));
  EXPECT_EQ(compiled(), 8u);
  EXPECT_NE(said.back().find("are not kept"), std::string::npos) << said.back();
}

TEST_F(KernelCacheProcesses, ADamagedOneIsCompiledAgainAndReplaced) {
  const std::string cache = folder / "kernels";
  const std::vector<std::string> first = lines_of(command(cache, 90));
  EXPECT_EQ(compiled(), 8u);
  const std::vector<fs::path> files = files_of(cache);
  ASSERT_EQ(files.size(), 8u);
  fs::resize_file(files[2], fs::file_size(files[2]) / 2);
  put(files[5], "");
  EXPECT_EQ(lines_of(command(cache, 90)), first);
  EXPECT_EQ(compiled(), 2u);
  EXPECT_EQ(lines_of(command(cache, 90)), first);
  EXPECT_EQ(compiled(), 0u);
}

TEST_F(KernelCacheProcesses, SeveralAtOnceLeaveAWholeFolder) {
  const std::string cache = folder / "kernels", one = command(cache, 90);
  std::vector<std::string> said = lines_of(one + " & " + one + " & " + one + " & " + one + " & wait");
  EXPECT_GE(compiled(), 8u);
  const std::vector<std::string> alone = lines_of(one);
  EXPECT_EQ(compiled(), 0u);
  ASSERT_EQ(said.size(), 4 * alone.size());
  for (const std::string& line : alone) EXPECT_EQ(std::ranges::count(said, line), 4) << line;
  const std::vector<fs::path> files = files_of(cache);
  EXPECT_EQ(files.size(), 8u);
  for (const fs::path& file : files) EXPECT_EQ(file.extension(), ".kernel") << file;
}

TEST_F(KernelCacheProcesses, AnErrorIsNotKept) {
  const std::string failing = command(folder / "kernels", 90) + " '#error'";
  for (int i = 0; i < 2; ++i) {
    const std::vector<std::string> said = lines_of(failing);
    ASSERT_EQ(said.size(), 10u);
    EXPECT_NE(said[8].find("the source has an #error"), std::string::npos) << said[8];
    EXPECT_EQ(compiled(), i == 0 ? 9u : 1u);
  }
}

}  // namespace
}  // namespace epl::cuda
