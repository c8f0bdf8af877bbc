// Files are read by checked reads: whatever happens to a file that is open ends in an error that names it, not in a
// signal.
#include "core/base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/base/check.h"
#include "tests/temporary_folder.h"

namespace epl::file_test {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  const TemporaryFolder folder_;
};

std::shared_ptr<const FileReader> open(const std::string& path) {
  auto file = FileReader::open(path);
  EXPECT_TRUE(file.ok()) << file.status().to_string();
  return *file;
}

TEST_F(Files, AreReadCompletelyAndInParts) {
  const auto file = open(write("a", "0123456789"));
  EXPECT_EQ(file->size(), 10u);
  char piece[4] = {};
  ASSERT_TRUE(file->read(3, piece, 4).ok());
  EXPECT_EQ(std::string(piece, 4), "3456");
  auto all = file->read_all();
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(all->data()), all->size()), "0123456789");
}

TEST_F(Files, TruncatedIsAnErrorWithFileAndOffset) {
  const std::string path = write("a", std::string(100000, 'x'));
  const auto file = open(path);
  fs::resize_file(path, 10);
  char piece[100];
  const Status status = file->read(50000, piece, sizeof piece);
  EXPECT_EQ(status.code(), Code::io);
  EXPECT_EQ(status.where(), path);
  EXPECT_NE(status.message().find("byte 50000"), std::string::npos) << status.message();
}

TEST_F(Files, OverwrittenInPlaceIsAnError) {
  const std::string path = write("a", "0123456789");
  const auto file = open(path);
  ::usleep(20000);  // beyond the file system's grain of time
  write("a", "abcdefghij");
  char piece[4];
  const Status status = file->read(0, piece, sizeof piece);
  EXPECT_EQ(status.code(), Code::io);
  EXPECT_NE(status.message().find("changed"), std::string::npos) << status.message();
}

TEST_F(Files, ReplacedOrRemovedIsReadAsItWas) {
  const std::string path = write("a", "0123456789");
  const auto file = open(path);
  fs::rename(write("b", "abcdefghij"), path);
  char piece[4];
  ASSERT_TRUE(file->read(0, piece, sizeof piece).ok());
  EXPECT_EQ(std::string(piece, 4), "0123");
  fs::remove(path);
  ASSERT_TRUE(file->read(0, piece, sizeof piece).ok());
}

TEST_F(Files, WhatIsNoRegularFileIsRefusedAtOnce) {
  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(FileReader::open(fifo).status().code(), Code::invalid_argument);  // and does not wait for a writer
  EXPECT_EQ(FileReader::open(folder_.path()).status().code(), Code::invalid_argument);
  EXPECT_EQ(FileReader::open("/nowhere/at/all").status().code(), Code::not_found);
}

TEST_F(Files, TensorsAreReadWhenTheyAreAskedFor) {
  const std::string path = write("a", std::string("\0\0\x80\x3f\0\0\0\x40", 8));
  const Tensor tensor = file_tensor(open(path), {DType::f32, {2}}, 0);
  EXPECT_FALSE(tensor.in_memory());
  EXPECT_FALSE(tensor.empty());
  auto loaded = tensor.load();
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->get(1), 2);
  EXPECT_TRUE(identical(tensor, *loaded));
  EXPECT_THROW(static_cast<void>(tensor.get(0)), InternalError);
  fs::resize_file(path, 0);
  EXPECT_EQ(tensor.load().status().code(), Code::io);
  EXPECT_FALSE(identical(tensor, *loaded));
}

TEST(FileRows, AllReadTheSameBytesAndRefuseTheSameRanges) {
  const std::string digits = "0123456789";
  const auto bytes = std::as_bytes(std::span(digits));
  int calls = 0;
  const auto read = [&](uint64_t offset, void* target, size_t count) {
    ++calls;
    digits.copy(static_cast<char*>(target), count, offset);
    return Status();
  };
  const auto in_memory = FileReader::of_bytes("memory", bytes, nullptr);
  const auto function = FileReader::of_function("function", digits.size(), read);
  const auto longer = FileReader::of_bytes("longer", bytes, nullptr);
  for (const auto& file : {in_memory, function, FileReader::part_of(longer, "part", 0, 10)}) {
    char piece[4] = {};
    ASSERT_TRUE(file->read(3, piece, 4).ok());
    EXPECT_EQ(std::string(piece, 4), "3456");
    EXPECT_EQ(file->read_all()->size(), 10u);
    const Status beyond = file->read(8, piece, 4);
    EXPECT_EQ(beyond.code(), Code::io);
    EXPECT_EQ(beyond.where(), file->path());
    EXPECT_FALSE(file->read(uint64_t{1} << 63, piece, 4).ok());
    EXPECT_TRUE(file->read(10, piece, 0).ok());
  }
  EXPECT_EQ(calls, 2);  // what is not there is not asked for
  char piece[2];
  ASSERT_TRUE(FileReader::part_of(in_memory, "part", 4, 3)->read(1, piece, 2).ok());
  EXPECT_EQ(std::string(piece, 2), "56");
  const auto failing = FileReader::of_function(
      "bucket", 10, [](uint64_t, void*, size_t) { return Status(Code::not_found, "the bucket is gone"); });
  EXPECT_EQ(failing->read(0, piece, 2).message(), "the bucket is gone");
}

}  // namespace
}  // namespace epl::file_test
