// Archives that are written from their beginning to their end, as `read_zip` and others read them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "core/formats/zip.h"
#include "tests/byte_writer.h"
#include "tests/temporary_folder.h"

namespace epl::zip_writer_test {
namespace {

// Counts bytes that are never kept, but for what is not zeros.
class LargeFile final : public ByteWriter {
 public:
  explicit LargeFile(const std::string& path) : file_(path, std::ios::binary) {}
  Status write(const void* data, size_t bytes) override {
    const auto* from = static_cast<const char*>(data);
    const bool zeros = from[0] == 0 && std::equal(from, from + bytes - 1, from + 1);
    zeros ? file_.seekp(static_cast<std::streamoff>(bytes), std::ios::cur)
          : file_.write(from, static_cast<std::streamsize>(bytes));
    return file_ ? Status() : Status(Code::io, "the file cannot be written");
  }

 private:
  std::ofstream file_;
};

TEST(ZipWriter, EntriesComeBackAsTheyWere) {
  BytesWritten out;
  ZipWriter zip(out);
  ASSERT_TRUE(zip.begin("a.txt").ok());
  ASSERT_TRUE(zip.write("hello, ", 7).ok());
  ASSERT_TRUE(zip.write("world", 5).ok());
  ASSERT_TRUE(zip.begin("empty").ok());
  ASSERT_TRUE(zip.begin("folder/\xc3\xa4").ok());
  ASSERT_TRUE(zip.write("\0\1\2", 3).ok());
  ASSERT_TRUE(zip.finish().ok());
  const auto file = reader_of("zip", out.text);
  const auto entries = read_zip(*file);
  ASSERT_TRUE(entries.ok()) << entries.status().to_string();
  ASSERT_EQ(entries->size(), 3u);
  const std::string names[] = {"a.txt", "empty", "folder/\xc3\xa4"},
                    values[] = {"hello, world", "", std::string("\0\1\2", 3)};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*entries)[i].name, names[i]);
    const auto bytes = read_zip_entry(*file, (*entries)[i]);
    ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size()), values[i]);
  }
}

TEST(ZipWriter, AnErrorOfWhoWritesComesBackAsItIs) {
  for (size_t room : {10u, 80u, 150u, 200u, 260u}) {
    FullWriter out(room);
    ZipWriter zip(out);
    const auto all = [&]() -> Status {
      EPL_TRY(zip.begin("a.txt"));
      EPL_TRY(zip.write("0123456789", 10));
      EPL_TRY(zip.begin("b.txt"));
      EPL_TRY(zip.write("0123456789", 10));
      return zip.finish();
    };
    EXPECT_EQ(all().message(), "the bucket is gone") << room;
  }
}

// Over 4 GiB, of which hardly any is on the disk.
TEST(ZipWriter, LargeEntriesHaveLargeSizes) {
  const TemporaryFolder folder;
  const std::string path = folder / "large.zip";
  const std::string zeros(64 << 20, '\0');
  const int count = 65;
  {
    LargeFile out(path);
    ZipWriter zip(out);
    ASSERT_TRUE(zip.begin("large").ok());
    for (int i = 0; i < count; ++i) ASSERT_TRUE(zip.write(zeros.data(), zeros.size()).ok());
    ASSERT_TRUE(zip.begin("small").ok());
    ASSERT_TRUE(zip.write("behind", 6).ok());
    ASSERT_TRUE(zip.finish().ok());
  }
  const auto file = FileReader::open(path);
  ASSERT_TRUE(file.ok());
  const auto entries = read_zip(**file);
  ASSERT_TRUE(entries.ok()) << entries.status().to_string();
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ((*entries)[0].size, zeros.size() * count);
  EXPECT_GT((*entries)[1].offset, uint64_t{1} << 32);
  const auto small = read_zip_entry(**file, (*entries)[1]);
  ASSERT_TRUE(small.ok()) << small.status().to_string();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(small->data()), small->size()), "behind");
}

// Python's zipfile is an independent reader; it checks the sums as well.
TEST(ZipWriter, PythonReadsThem) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.zip";
  BytesWritten out;
  ZipWriter zip(out);
  ASSERT_TRUE(zip.begin("one").ok());
  ASSERT_TRUE(zip.write("1", 1).ok());
  ASSERT_TRUE(zip.begin("two").ok());
  ASSERT_TRUE(zip.write("22", 2).ok());
  ASSERT_TRUE(zip.finish().ok());
  std::ofstream(path, std::ios::binary) << out.text;
  if (std::system("python3 -c 0 2> /dev/null") != 0) GTEST_SKIP() << "there is no python3";
  const std::string check =
      cat("python3 -c \"import zipfile; z = zipfile.ZipFile('", path,
          "'); assert z.testzip() is None and z.read('two') == b'22' and len(z.namelist()) == 2\"");
  EXPECT_EQ(std::system(check.c_str()), 0);
}

}  // namespace
}  // namespace epl::zip_writer_test
