// A share held out: the two parts are the whole, the same every time; a last batch that is not full.
#include "core/data/split.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/data/dataset.h"

namespace epl::split_test {
namespace {

class Numbers : public Reader {
 public:
  explicit Numbers(int64_t count) : count_(count) {}
  const std::vector<std::pair<std::string, TensorType>>& fields() const override { return fields_; }
  int64_t samples() const override { return count_; }
  Status read(int64_t index, int, void* target) const override {
    *static_cast<int64_t*>(target) = index;
    return {};
  }

 private:
  int64_t count_;
  std::vector<std::pair<std::string, TensorType>> fields_ = {{"x", {DType::i64, {}}}};
};

std::vector<int64_t> part(int64_t count, std::string_view name, double share, uint64_t seed = 0) {
  auto reader = split_reader(std::make_unique<Numbers>(count), name, share, seed);
  EXPECT_TRUE(reader.ok()) << reader.status().to_string();
  std::vector<int64_t> out;
  for (int64_t i = 0; reader.ok() && i < (*reader)->samples(); ++i) {
    int64_t value = -1;
    EXPECT_TRUE((*reader)->read(i, 0, &value).ok());
    EXPECT_EQ((*reader)->row(i), value);
    out.push_back(value);
  }
  return out;
}

TEST(Split, ThePartsAreTheWhole) {
  for (int64_t count : {2, 5, 100, 1001}) {
    const std::vector<int64_t> train = part(count, "train", 0.3), held_out = part(count, "held_out", 0.3);
    std::set<int64_t> all(train.begin(), train.end());
    all.insert(held_out.begin(), held_out.end());
    EXPECT_EQ(all.size(), static_cast<size_t>(count));
    EXPECT_EQ(train.size() + held_out.size(), static_cast<size_t>(count));
    EXPECT_EQ(*all.begin(), 0);
    EXPECT_EQ(*all.rbegin(), count - 1);
    EXPECT_EQ(held_out.size(), static_cast<size_t>(std::llround(static_cast<double>(count) * 0.3)));
  }
  EXPECT_EQ(part(100, "held_out", 0.2), part(100, "held_out", 0.2));
  EXPECT_NE(part(100, "held_out", 0.2), part(100, "held_out", 0.2, 1));
  EXPECT_EQ(part(3, "all", 0.2), (std::vector<int64_t>{0, 1, 2}));
}

TEST(Split, AnEmptyPartIsRefused) {
  const auto refused = [](int64_t count, const char* name, double share) {
    auto reader = split_reader(std::make_unique<Numbers>(count), name, share, 0);
    return reader.ok() ? "" : reader.status().message();
  };
  EXPECT_NE(refused(3, "held_out", 0.1).find("empty"), std::string::npos);
  EXPECT_NE(refused(1, "train", 0.9).find("empty"), std::string::npos);
  EXPECT_NE(refused(10, "train", 1.0).find("a share"), std::string::npos);
  EXPECT_NE(refused(10, "tset", 0.5).find("there are all, train and held_out"), std::string::npos);
}

TEST(Dataset, TheLastBatchMayHaveFewerSamples) {
  for (int64_t prefetch : {0, 2}) {
    auto made = Dataset::create(std::make_unique<Numbers>(10), {.batch = 4, .prefetch = prefetch, .partial = true});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    Dataset& data = **made;
    EXPECT_EQ(data.batches(), 3);
    std::vector<int64_t> seen;
    for (int i = 0; i < 6; ++i) {
      auto batch = data.next();
      ASSERT_TRUE(batch.ok());
      EXPECT_EQ((*batch)[0].shape(), (Shape{i % 3 == 2 ? 2 : 4}));
      for (int64_t value : (*batch)[0].as<int64_t>()) seen.push_back(value);
    }
    ASSERT_EQ(seen.size(), 20u);
    for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i % 10);
  }
  auto few = Dataset::create(std::make_unique<Numbers>(3), {.batch = 4, .partial = true});
  ASSERT_TRUE(few.ok()) << few.status().to_string();
  EXPECT_EQ((*few)->batches(), 1);
  EXPECT_FALSE(Dataset::create(std::make_unique<Numbers>(3), {.batch = 4}).ok());
}

}  // namespace
}  // namespace epl::split_test
