// Files sharded over replicas: who gets what, what a batch is then made of, and that a position still says everything.
#include "core/data/slices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/base/tensor.h"
#include "core/data/open.h"
#include "core/formats/safetensors.h"
#include "tests/data/open_reader.h"
#include "tests/data/take.h"

namespace epl::slices_test {
namespace {

// The samples of each slice.
std::vector<std::vector<int64_t>> sharded(const Slices& slices) {
  std::vector<std::vector<int64_t>> out;
  for (int64_t slice = 0; slice < slices.count(); ++slice) {
    std::vector<int64_t>& samples = out.emplace_back();
    for (int64_t i = 0; i < slices.samples(slice); ++i) samples.push_back(slices.sample(slice, i));
  }
  return out;
}

using Samples = std::vector<std::vector<int64_t>>;

TEST(Slices, AreFilesByTurns) {
  const Slices even({2, 1, 3, 1}, 2, {});
  EXPECT_EQ(sharded(even), (Samples{{0, 1, 3, 4, 5}, {2, 6}}));
  EXPECT_EQ(even.fewest(), 2);
  EXPECT_EQ(even.refused(), "");
}

TEST(Slices, ThatDoNotComeOutEvenFollowTheOptions) {
  const std::vector<int64_t> files = {2, 1, 3};
  EXPECT_EQ(sharded(Slices(files, 2, {.unbalanced = true})), (Samples{{0, 1, 3, 4, 5}, {2}}));
  EXPECT_EQ(sharded(Slices(files, 2, {.drop_last_files = true})), (Samples{{0, 1}, {2}}));
  const Slices neither(files, 2, {});
  EXPECT_EQ(sharded(neither), (Samples{{0, 1, 2, 3, 4, 5}}));
  EXPECT_NE(neither.refused().find("3 files do not divide over 2 replicas"), std::string::npos) << neither.refused();
  for (const SliceOptions options : {SliceOptions{}, SliceOptions{.unbalanced = true}}) {
    const Slices few(files, 4, options);
    EXPECT_EQ(few.count(), 1);
    EXPECT_NE(few.refused().find("3 files are fewer than 4 replicas"), std::string::npos) << few.refused();
  }
}

// Files part0, part1, ... whose one field counts through all of them.
std::unique_ptr<Dataset> parts(const std::string& name, const std::vector<int64_t>& sizes, const std::string& options) {
  int64_t next = 0;
  for (size_t f = 0; f < sizes.size(); ++f) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < sizes[f]; ++i) values.push_back(next++);
    const std::string path = temporary(name + std::to_string(f) + ".safetensors");
    EXPECT_TRUE(save_safetensors(path, {{"i", Tensor::from_ints(values)}}).ok());
  }
  auto opened = open_dataset(temporary(name + "*.safetensors"), options, "");
  EXPECT_TRUE(opened.ok()) << opened.status().to_string();
  return std::move(opened->dataset);
}

TEST(SlicedDataset, GivesEachReplicaItsPartOfABatch) {
  auto dataset = parts("turns", {3, 4, 2, 1}, R"({"batch": 4})");
  EXPECT_EQ(dataset->samples(), 10);
  EXPECT_EQ(take(*dataset, 2), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  ASSERT_TRUE(dataset->seek(0).ok() && dataset->slice(2, {}).ok());
  // Files 0 and 2 hold 0 1 2 7 8; files 1 and 3 hold 3 4 5 6 9.
  EXPECT_EQ(take(*dataset, 3), (std::vector<int64_t>{0, 1, 3, 4, 2, 7, 5, 6, 0, 1, 3, 4}));
  EXPECT_EQ(dataset->batches(), 2);
  ASSERT_TRUE(dataset->slice(1, {}).ok() && dataset->seek(0).ok());
  EXPECT_EQ(take(*dataset, 1), (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(SlicedDataset, ShufflesWithinASliceAndResumesAnywhere) {
  const std::string options = R"({"batch": 4, "order": "shuffled", "seed": 3, "prefetch": )";
  auto whole = parts("mixed", {6, 4, 2, 4}, options + "0}");
  ASSERT_TRUE(whole->slice(2, {}).ok());
  const std::vector<int64_t> expected = take(*whole, 12);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<int64_t> first, second;
    for (int64_t i = 0; i < 16; ++i) (i % 4 < 2 ? first : second).insert(expected[static_cast<size_t>(epoch * 16 + i)]);
    EXPECT_EQ(first, (std::set<int64_t>{0, 1, 2, 3, 4, 5, 10, 11})) << epoch;
    EXPECT_EQ(second, (std::set<int64_t>{6, 7, 8, 9, 12, 13, 14, 15})) << epoch;
  }
  EXPECT_FALSE(std::equal(expected.begin(), expected.begin() + 16, expected.begin() + 16)) << "another epoch's order";
  for (const char* prefetch : {"0}", "3}"}) {
    auto dataset = parts("mixed", {6, 4, 2, 4}, options + prefetch);
    take(*dataset, 1);
    ASSERT_TRUE(dataset->slice(2, {}).ok());
    for (int64_t from : {0, 3, 7}) {
      ASSERT_TRUE(dataset->seek(from).ok());
      const std::vector<int64_t> found = take(*dataset, 4);
      EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin() + from * 4)) << prefetch << " " << from;
    }
  }
}

TEST(SlicedDataset, KeepsTheSlicesOfACheckpoint) {
  auto dataset = parts("kept", {2, 2, 2, 2}, R"({"batch": 4})");
  ASSERT_TRUE(dataset->slice(2, {}, true).ok());
  ASSERT_TRUE(dataset->slice(4, {}).ok());
  EXPECT_EQ(dataset->slices(), 2);
  EXPECT_EQ(take(*dataset, 2), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(SlicedDataset, SaysWhatIsInTheWay) {
  const auto refused = [](Dataset& dataset, int64_t count) {
    const Status status = dataset.slice(count, {});
    EXPECT_FALSE(status.ok());
    return status.message();
  };
  auto dataset = parts("small", {2, 2, 1, 2, 3, 2}, R"({"batch": 8})");
  EXPECT_NE(refused(*dataset, 3).find("a batch of 8 samples does not divide over 3"), std::string::npos);
  EXPECT_NE(refused(*dataset, 4).find("6 files do not divide over 4"), std::string::npos);
  auto held_out = parts("held", {4, 4}, R"({"batch": 2, "split": "train", "held_out": 0.25})");
  EXPECT_NE(refused(*held_out, 2).find("no full files"), std::string::npos);
  EXPECT_EQ(held_out->slices(), 1);
  take(*held_out, 2);
}

TEST(SeveralFiles, HaveTheFieldsOfTheFirst) {
  const std::string other = temporary("fields1.safetensors");
  ASSERT_TRUE(save_safetensors(temporary("fields0.safetensors"), {{"i", Tensor::from_ints({1, 2})}}).ok());
  ASSERT_TRUE(save_safetensors(other, {{"j", Tensor::from_ints({1, 2})}}).ok());
  const auto opened = open_dataset(temporary("fields?.safetensors"), "{\"batch\": 1}", "");
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.status().message().find("has other fields (j: i64[])"), std::string::npos)
      << opened.status().message();
  const auto none = open_dataset(temporary("nothing*.csv"), "", "");
  EXPECT_EQ(none.status().code(), Code::not_found) << none.status().to_string();
}

}  // namespace
}  // namespace epl::slices_test
