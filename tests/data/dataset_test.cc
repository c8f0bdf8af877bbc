// Readers and the order of batches: every sample once an epoch, and a position is all there is to resume.
#include "core/data/dataset.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "core/data/order.h"
#include "core/formats/safetensors.h"
#include "tests/data/open_reader.h"
#include "tests/data/take.h"

namespace epl::dataset_test {
namespace {

// Rows 0..n-1 whose one field is the row's number.
std::unique_ptr<Reader> numbers(int64_t n) {
  std::vector<int64_t> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = i;
  const std::string path = temporary("numbers_" + std::to_string(n) + ".safetensors");
  EXPECT_TRUE(save_safetensors(path, {{"i", Tensor::from_ints(values)}}).ok());
  auto reader = open_reader("", path);
  EXPECT_TRUE(reader.ok()) << reader.status().to_string();
  return std::move(reader).value();
}

TEST(Permutation, IsOneForEverySizeSeedAndEpoch) {
  for (int64_t size : {1, 2, 3, 4, 5, 16, 17, 100, 1000, 4097}) {
    std::set<int64_t> seen;
    Permutation order(size, 42, 3);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t at = order.at(i);
      ASSERT_GE(at, 0);
      ASSERT_LT(at, size);
      ASSERT_TRUE(seen.insert(at).second) << size << " " << i;
    }
  }
}

TEST(Permutation, DependsOnSeedAndEpochAndLooksRandom) {
  Permutation a(1000, 1, 0), b(1000, 2, 0), c(1000, 1, 1), again(1000, 1, 0);
  int same_seed = 0, same_epoch = 0, in_place = 0, rising = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(a.at(i), again.at(i));
    same_seed += a.at(i) == b.at(i);
    same_epoch += a.at(i) == c.at(i);
    in_place += a.at(i) == i;
    rising += i > 0 && a.at(i) > a.at(i - 1);
  }
  EXPECT_LT(same_seed, 10);
  EXPECT_LT(same_epoch, 10);
  EXPECT_LT(in_place, 10);
  EXPECT_GT(rising, 400);
  EXPECT_LT(rising, 600);
}

TEST(Dataset, SequentialBatchesLeaveTheRestOut) {
  auto dataset = Dataset::create(numbers(10), {.batch = 4}).value();
  EXPECT_EQ(dataset->batches(), 2);
  EXPECT_EQ(dataset->fields()[0].second, (TensorType{DType::i64, {4}}));
  EXPECT_EQ(take(*dataset, 3), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3}));
  EXPECT_EQ(dataset->position(), 3);
}

TEST(Dataset, WithoutABatchASampleIsABatch) {
  auto dataset = Dataset::create(numbers(3), {}).value();
  EXPECT_EQ(dataset->fields()[0].second, (TensorType{DType::i64, {}}));
  EXPECT_EQ(take(*dataset, 4), (std::vector<int64_t>{0, 1, 2, 0}));
}

TEST(Dataset, ShuffledTakesEverySampleOnceAnEpoch) {
  auto dataset = Dataset::create(numbers(12), {.batch = 4, .shuffled = true, .seed = 7}).value();
  const std::vector<int64_t> first = take(*dataset, 3), second = take(*dataset, 3);
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), 12u);
  EXPECT_EQ(std::set<int64_t>(second.begin(), second.end()).size(), 12u);
  EXPECT_NE(first, second);
}

TEST(Dataset, SeekAndPrefetchChangeNothing) {
  const DatasetOptions plain{.batch = 3, .shuffled = true, .seed = 5};
  auto whole = Dataset::create(numbers(20), plain).value();
  const std::vector<int64_t> expected = take(*whole, 30);
  for (int64_t prefetch : {0, 1, 4}) {
    DatasetOptions options = plain;
    options.prefetch = prefetch;
    auto dataset = Dataset::create(numbers(20), options).value();
    EXPECT_EQ(take(*dataset, 30), expected) << prefetch;
    for (int64_t from : {17, 2, 3, 3, 29, 0}) {
      ASSERT_TRUE(dataset->seek(from).ok());
      EXPECT_EQ(take(*dataset, 1), std::vector<int64_t>(expected.begin() + 3 * from, expected.begin() + 3 * from + 3))
          << prefetch << " " << from;
    }
  }
}

TEST(Dataset, TooFewSamplesIsAnError) {
  auto dataset = Dataset::create(numbers(3), {.batch = 4});
  ASSERT_FALSE(dataset.ok());
  EXPECT_NE(dataset.status().message().find("takes 4 samples, there are 3"), std::string::npos);
}

TEST(TextReader, WindowsAndTheByteAfterEach) {
  const std::string path = temporary("a.txt");
  std::ofstream(path) << "abcdefghij";
  auto reader = open_reader("", path, {{"context", int64_t{3}}});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ((*reader)->samples(), 3);
  int64_t ids[3], next[3];
  ASSERT_TRUE((*reader)->read(1, 0, ids).ok());
  ASSERT_TRUE((*reader)->read(1, 1, next).ok());
  EXPECT_EQ(std::vector<int64_t>(ids, ids + 3), (std::vector<int64_t>{'d', 'e', 'f'}));
  EXPECT_EQ(std::vector<int64_t>(next, next + 3), (std::vector<int64_t>{'e', 'f', 'g'}));
  ASSERT_TRUE((*reader)->read(2, 1, next).ok());
  EXPECT_EQ(next[2], 'j');
  auto every = open_reader("text", path, {{"context", int64_t{3}}, {"stride", int64_t{1}}});
  EXPECT_EQ((*every)->samples(), 7);
}

TEST(TextReader, SplitsDoNotMeet) {
  const std::string path = temporary("b.txt");
  std::ofstream(path) << std::string(80, 'a') + std::string(20, 'b');
  for (const char* split : {"train", "held_out"}) {
    auto reader = open_reader(
        "text", path,
        {{"context", int64_t{4}}, {"stride", int64_t{1}}, {"split", std::string(split)}, {"held_out", 0.2}});
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    const int64_t wanted = split[0] == 't' ? 'a' : 'b';
    for (int64_t i = 0; i < (*reader)->samples(); ++i) {
      int64_t ids[4];
      for (int field : {0, 1}) {
        ASSERT_TRUE((*reader)->read(i, field, ids).ok());
        for (int64_t id : ids) ASSERT_EQ(id, wanted) << split;
      }
    }
  }
}

TEST(TextReader, AFileThatHasBecomeShorterIsAnError) {
  const std::string path = temporary("shrinks.txt");
  std::ofstream(path) << std::string(100, 'a');
  for (int64_t prefetch : {0, 2}) {
    std::ofstream(path) << std::string(100, 'a');
    auto dataset =
        Dataset::create(open_reader("", path, {{"context", int64_t{4}}}).value(), {.batch = 2, .prefetch = prefetch})
            .value();
    ASSERT_TRUE(dataset->next().ok());
    std::filesystem::resize_file(path, 3);
    Status status;
    for (int i = 0; i < 12 && status.ok(); ++i) status = dataset->next().status();
    EXPECT_NE(status.message().find("it had 100 bytes when it was opened"), std::string::npos) << status.message();
  }
}

TEST(Readers, ContentSaysWhatAFileIs) {
  const auto reader_of = [](const std::string& name, const std::string& content) {
    const std::string path = temporary(name);
    std::ofstream(path, std::ios::binary) << content;
    auto row = find_reader("", path);
    return row.ok() ? (*row)->name : row.status().message();
  };
  EXPECT_EQ(reader_of("a.CSV", "a,b\n1,2\n"), "csv");
  EXPECT_EQ(reader_of("b.TSV", "a,b\n1,2\n"), "tsv");
  EXPECT_EQ(reader_of("c.csv", "\x93NUMPY\x01"), "npy");
  EXPECT_EQ(reader_of("d", std::string("PK\x03\x04\0\0 x.npy", 12)), "npz");
  ASSERT_TRUE(save_safetensors(temporary("e.bin"), {{"x", Tensor::from_ints({1})}}).ok());
  EXPECT_EQ((*find_reader("", temporary("e.bin")))->name, "safetensors");
  for (const auto& [name, part] :
       std::vector<std::pair<std::string, std::string>>{{"f.h5", "which is HDF5. EPL reads csv (.csv),"},
                                                        {"g.pkl", "numpy.savez("},
                                                        {"h.json", "to_csv"},
                                                        {"i", "convert it to one of these"},
                                                        {"j.xlsx", "save it as CSV"},
                                                        {"k.zip", "unpack it"}}) {
    EXPECT_NE(reader_of(name, "something else").find(part), std::string::npos) << reader_of(name, "something else");
  }
  EXPECT_EQ(find_reader("", "/nowhere/x").status().code(), Code::not_found);
  EXPECT_EQ(open_reader("", "/nowhere/x.csv").status().code(), Code::not_found);
  EXPECT_EQ((*find_reader("CSV", "x"))->name, "csv");
}

TEST(Readers, APipeIsAnErrorAtOnce) {
  const std::string path = temporary("pipe.csv");
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_NE(open_reader("", path).status().message().find("not a regular file"), std::string::npos);
  for (const char* name : {"csv", "text", "npy", "npz", "safetensors"}) {
    EXPECT_NE(open_reader(name, path).status().message().find("not a regular file"), std::string::npos) << name;
  }
}

TEST(Dataset, FieldsAreGivenInOtherTypes) {
  for (int64_t prefetch : {0, 2}) {
    auto dataset = Dataset::create(numbers(10), {.batch = 4, .prefetch = prefetch}).value();
    ASSERT_TRUE(dataset->next().ok());
    ASSERT_TRUE(dataset->retype({{DType::f32, {4, 1}}}).ok());
    EXPECT_EQ(dataset->fields()[0].second, (TensorType{DType::f32, {4, 1}}));
    auto batch = dataset->next();
    ASSERT_TRUE(batch.ok()) << batch.status().to_string();
    EXPECT_EQ((*batch)[0].get(3), 7);
    EXPECT_EQ(dataset->position(), 2);
    EXPECT_FALSE(dataset->retype({{DType::f32, {4, 2}}}).ok());
    EXPECT_FALSE(dataset->retype({{DType::f32, {2, 2}}}).ok());
    ASSERT_TRUE(dataset->retype({{DType::u8, {4}}}).ok());
    EXPECT_EQ((*dataset->next())[0].get(3), 3);  // the first batch again
  }
}

TEST(Readers, MistakesNameWhatIsKnown) {
  EXPECT_NE(find_reader("txet", "x").status().message().find("did you mean text"), std::string::npos);
  const std::string path = temporary("short.txt");
  std::ofstream(path) << "abc";
  EXPECT_NE(open_reader("", path).status().message().find("has 3 bytes"), std::string::npos);
  EXPECT_NE(open_reader("", path, {{"split", std::string("test")}}).status().message().find("held_out"),
            std::string::npos);
  const std::string rows = temporary("rows.safetensors");
  ASSERT_TRUE(save_safetensors(rows, {{"x", Tensor::from_ints({1, 2})}, {"y", Tensor::from_ints({1, 2, 3})}}).ok());
  EXPECT_NE(open_reader("", rows).status().message().find("rows"), std::string::npos);
}

}  // namespace
}  // namespace epl::dataset_test
