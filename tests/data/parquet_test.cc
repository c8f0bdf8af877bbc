// Parquet tables as Arrow wrote them (tests/data/generate.py), in every encoding, and hostile ones.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/data/open_reader.h"

namespace epl::parquet_test {
namespace {

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

Result<std::unique_ptr<Reader>> open_table(const std::string& path, const std::string& packs = EPL_PACK_FOLDER) {
  return open_reader(
      "", path,
      {{"target", std::string("\"f\"")},
       {"inputs", std::string(R"({"x": ["a","b","c","d","e","k"], "n": {"columns": ["g", "h"], "dtype": "i64"}})")},
       {"missing", std::string(R"({"d": -1})")}},
      packs);
}

class Parquet : public testing::TestWithParam<const char*> {};

TEST_P(Parquet, EveryValueIsRight) {
  const std::string name = GetParam();
  const bool packed = name == "snappy" || name == "zstd_second_pages";
  if (packed && !std::string(EPL_PARQUET_MISSING).empty()) GTEST_SKIP() << "pack parquet: " << EPL_PARQUET_MISSING;
  auto reader = open_table(given(name + ".parquet"));
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  ASSERT_EQ((*reader)->samples(), 300);
  using Fields = std::vector<std::pair<std::string, TensorType>>;
  EXPECT_EQ((*reader)->fields(),
            (Fields{{"x", {DType::f32, {6}}}, {"n", {DType::i64, {2}}}, {"target", {DType::i64, {}}}}));
  EXPECT_EQ((*reader)->classes()[0].names, (std::vector<std::string>{"high", "low", "middle"}));
  for (int64_t i = 0; i < 300; ++i) {
    float x[6];
    int64_t n[2], target = -1;
    ASSERT_TRUE((*reader)->read(i, 0, x).ok());
    ASSERT_TRUE((*reader)->read(i, 1, n).ok());
    ASSERT_TRUE((*reader)->read(i, 2, &target).ok());
    const auto real = static_cast<float>(i);
    const std::vector<float> expected = {static_cast<float>(i * 7 % 100 - 50),
                                         static_cast<float>(i * i * i),
                                         real / 4,
                                         i % 10 == 3 ? -1 : real * 0.5f,
                                         i % 3 == 0 ? 1.0f : 0.0f,
                                         static_cast<float>(static_cast<double>(i) * 0.01)};
    ASSERT_EQ(std::vector<float>(x, x + 6), expected) << i;
    ASSERT_EQ(n[0], i % 256);
    ASSERT_EQ(n[1], 4294967295 - i);
    ASSERT_EQ(target, (i + 1) % 3) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Parquet, testing::Values("snappy", "zstd_second_pages", "gzip_plain", "deltas"));

TEST(ParquetTable, WithoutThePackTheMessageSaysWhatToDo) {
  auto reader = open_table(given("snappy.parquet"), "/nowhere");
  ASSERT_FALSE(reader.ok());
  EXPECT_TRUE(has(
      reader.status().message(),
      "Parquet packed with snappy needs the pack parquet, which is not here: there is no /nowhere/libepl_parquet.so"))
      << reader.status().message();
  EXPECT_TRUE(has(reader.status().message(), "compression=\"gzip\""));
}

TEST(ParquetTable, MissingValuesAndNestedColumnsAreNamed) {
  auto reader = open_reader("", given("gzip_plain.parquet"),
                            {{"ignore", std::string("\"f\"")}, {"target", std::string("\"k\"")}});
  ASSERT_FALSE(reader.ok());
  EXPECT_TRUE(has(reader.status().message(), "row 4, column \"d\": the value is missing (\"null\")"))
      << reader.status().message();
  reader = open_reader("", given("nested.parquet"), {{"target", std::string("\"y\"")}});
  ASSERT_FALSE(reader.ok());
  EXPECT_TRUE(has(reader.status().message(), "column \"x\" is nested: lists")) << reader.status().message();
  reader = open_reader(
      "", given("nested.parquet"),
      {{"target", std::string("\"y\"")}, {"ignore", std::string(R"(["x", "s"])")}, {"classes", std::string("true")}});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  float a = 0;
  int64_t y = 0;
  ASSERT_TRUE((*reader)->read(1, 0, &a).ok());
  ASSERT_TRUE((*reader)->read(1, 1, &y).ok());
  EXPECT_EQ(a, 1.5f);
  EXPECT_EQ(y, 1);
}

std::string content(const std::string& name) {
  std::ifstream in(given(name), std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

Result<std::unique_ptr<Reader>> open_bytes(const std::string& bytes) {
  const std::string path = temporary("hostile.parquet");
  std::ofstream(path, std::ios::binary) << bytes;
  return open_table(path);
}

TEST(ParquetTable, DamagedFilesAreRefused) {
  const std::string whole = content("deltas.parquet");
  ASSERT_TRUE(open_bytes(whole).ok());
  for (size_t size = 4; size < whole.size(); size += 97) {
    auto reader = open_bytes(whole.substr(0, size));
    ASSERT_FALSE(reader.ok()) << size;
    EXPECT_EQ(reader.status().code(), Code::invalid_argument) << reader.status().to_string();
  }
  EXPECT_TRUE(has(open_bytes(whole.substr(0, whole.size() - 1)).status().message(), "is it truncated?"));
  std::string encrypted = whole;
  encrypted.replace(encrypted.size() - 4, 4, "PARE");
  EXPECT_TRUE(has(open_bytes(encrypted).status().message(), "encrypted"));
  // Any one byte changed is an error or another value.
  for (size_t at = 0; at < whole.size(); at += 3) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0xff);
    static_cast<void>(open_bytes(changed));
  }
}

}  // namespace
}  // namespace epl::parquet_test
