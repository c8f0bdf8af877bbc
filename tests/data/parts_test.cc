// A process's part of each batch: the samples that the full batch has there, and nothing else is read.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "core/base/tensor.h"
#include "core/data/dataset.h"

namespace epl::parts_test {
namespace {

// What was read: samples by field.
struct Log {
  std::mutex mutex;
  std::map<int, std::set<int64_t>> read;
};

// Samples x = [i, -i] and y = i of several files, noted where they are read.
class Noted : public Reader {
 public:
  Noted(std::vector<int64_t> files, std::shared_ptr<Log> log) : files_(std::move(files)), log_(std::move(log)) {
    for (const int64_t samples : files_) samples_ += samples;
  }
  const std::vector<std::pair<std::string, TensorType>>& fields() const override { return fields_; }
  int64_t samples() const override { return samples_; }
  std::vector<int64_t> file_samples() const override { return files_; }
  Status read(int64_t index, int field, void* target) const override {
    std::lock_guard lock(log_->mutex);
    log_->read[field].insert(index);
    auto* to = static_cast<int64_t*>(target);
    to[0] = index;
    if (field == 0) to[1] = -index;
    return {};
  }

 private:
  std::vector<int64_t> files_;
  int64_t samples_ = 0;
  std::shared_ptr<Log> log_;
  std::vector<std::pair<std::string, TensorType>> fields_ = {{"x", {DType::i64, {2}}}, {"y", {DType::i64, {}}}};
};

constexpr int64_t batch = 8;

struct Given {
  std::unique_ptr<Dataset> dataset;
  std::shared_ptr<Log> log = std::make_shared<Log>();
};

Given given(const std::vector<int64_t>& files, DatasetOptions options) {
  Given out;
  options.batch = batch;
  out.dataset = Dataset::create(std::make_unique<Noted>(files, out.log), options).value();
  return out;
}

const std::vector<std::pair<std::string, TensorType>>& both() {
  static const std::vector<std::pair<std::string, TensorType>> fields = {{"x", {DType::i64, {batch, 2}}},
                                                                         {"y", {DType::i64, {batch}}}};
  return fields;
}

// The samples of a batch's field, filled up to a full batch as a part is.
std::vector<int64_t> samples_of(const Tensor& field, bool fill_up) {
  std::vector<int64_t> out;
  const int64_t each = field.elements() / field.shape()[0];
  for (int64_t i = 0; i < field.shape()[0]; ++i) out.push_back(field.get_int(i * each));
  while (fill_up && static_cast<int64_t>(out.size()) < batch) out.push_back(out.back());
  return out;
}

struct Case {
  bool shuffled = false, partial = false;
  int64_t prefetch = 0, slices = 1;
};

class Parts : public testing::TestWithParam<Case> {};

// Two processes with halves of x and one with y: what they are given is what the full batch has, over two epochs and
// from any position.
TEST_P(Parts, AreThoseOfTheFullBatch) {
  const Case c = GetParam();
  const std::vector<int64_t> files = {11, 9, 10, 7};  // 37 samples
  const DatasetOptions options{.shuffled = c.shuffled, .seed = 3, .prefetch = c.prefetch, .partial = c.partial};
  Given full = given(files, options);
  const std::vector<std::vector<SampleRange>> parts = {{{0, 4}, {}}, {{4, 4}, {}}, {{}, {0, 8}}};
  std::vector<Given> processes;
  for (const auto& part : parts) {
    processes.push_back(given(files, options));
    ASSERT_TRUE(processes.back().dataset->bind(both(), part).ok());
  }
  ASSERT_TRUE(full.dataset->bind(both()).ok());
  for (Given* one : {&full, &processes[0], &processes[1], &processes[2]}) {
    ASSERT_TRUE(one->dataset->slice(c.slices, {}).ok());
    std::lock_guard lock(one->log->mutex);
    one->log->read.clear();  // what was read ahead before it was known who reads what
  }
  for (const int64_t from : {0, 3}) {
    for (Given* one : {&full, &processes[0], &processes[1], &processes[2]}) ASSERT_TRUE(one->dataset->seek(from).ok());
    for (int64_t step = 0; step < 2 * full.dataset->batches(); ++step) {
      const auto all = full.dataset->next().value();
      const std::vector<int64_t> x = samples_of(all[0], true), y = samples_of(all[1], true);
      for (size_t p = 0; p < parts.size(); ++p) {
        const auto own = processes[p].dataset->next().value();
        ASSERT_EQ(processes[p].dataset->samples_given(), all[0].shape()[0]);
        for (size_t f = 0; f < 2; ++f) {
          const SampleRange range = parts[p][f];
          ASSERT_EQ(own[f].empty(), range.count == 0);
          if (range.count == 0) continue;
          const std::vector<int64_t>& from_full = f == 0 ? x : y;
          EXPECT_EQ(samples_of(own[f], false),
                    std::vector<int64_t>(from_full.begin() + range.first, from_full.begin() + range.end()))
              << "process " << p << ", field " << f << ", batch " << from + step;
        }
      }
    }
  }
  for (Given& one : processes) one.dataset.reset();
  // Nobody has read a field that he does not give.
  EXPECT_EQ(processes[0].log->read.count(1), 0u);
  EXPECT_EQ(processes[2].log->read.count(0), 0u);
  // Where files are sharded, the first half of a batch comes of files 0 and 2, the second of 1 and 3.
  for (const int64_t sample : processes[0].log->read[0]) {
    const bool of_first = sample < 11 || (sample >= 20 && sample < 30);
    EXPECT_TRUE(c.slices == 1 || of_first) << sample;
  }
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return cat(info.param.shuffled ? "shuffled" : "in_order", info.param.partial ? "_partial" : "", "_ahead_",
             info.param.prefetch, "_slices_", info.param.slices);
}
INSTANTIATE_TEST_SUITE_P(All, Parts,
                         testing::Values(Case{}, Case{.shuffled = true}, Case{.partial = true},
                                         Case{.shuffled = true, .partial = true, .prefetch = 2}, Case{.slices = 2},
                                         Case{.shuffled = true, .prefetch = 3, .slices = 2}),
                         name_of);

TEST(Parts, AreReadAndNothingElse) {
  Given own = given({64}, {});
  ASSERT_TRUE(own.dataset->bind(both(), {{2, 3}, {}}).ok());
  for (int step = 0; step < 2; ++step) ASSERT_TRUE(own.dataset->next().ok());
  EXPECT_EQ(own.log->read[0], (std::set<int64_t>{2, 3, 4, 10, 11, 12}));
  // Bound to another part, and to the full batch again.
  ASSERT_TRUE(own.dataset->bind(both(), {{}, {7, 1}}).ok());
  EXPECT_EQ(samples_of(own.dataset->next().value()[1], false), std::vector<int64_t>{23});
  ASSERT_TRUE(own.dataset->bind(both()).ok());
  EXPECT_EQ(own.dataset->next().value()[0].shape(), (Shape{8, 2}));
}

TEST(Parts, ShareWhatIsVisited) {
  const std::vector<std::vector<SampleRange>> parts = {{{0, 3}, {}}, {{3, 5}, {}}, {{}, {0, 8}}};
  for (const int64_t slices : {1, 2}) {
    std::map<int, std::multiset<int64_t>> visited;
    for (const auto& part : parts) {
      Given own = given({11, 9, 10, 7}, {});
      ASSERT_TRUE(own.dataset->slice(slices, {}).ok());
      ASSERT_TRUE(own.dataset->bind(both(), part).ok());
      for (const int field : {0, 1}) {
        const auto note = [&](int64_t sample) -> Status {
          visited[field].insert(sample);
          return {};
        };
        ASSERT_TRUE(own.dataset->visit(field, note).ok());
      }
    }
    for (const int field : {0, 1}) {
      const std::set<int64_t> different(visited[field].begin(), visited[field].end());
      EXPECT_EQ(different.size(), 37u) << "all samples of field " << field;
      // A slice that two processes share is visited by both.
      if (slices == 1) {
        EXPECT_EQ(visited[field].size(), 37u);
      }
    }
  }
}

// A sample that is a batch: it is read as it is, and its rows are parted.
TEST(Parts, OfASampleThatIsABatchAreItsRows) {
  auto log = std::make_shared<Log>();
  auto dataset = Dataset::create(std::make_unique<Noted>(std::vector<int64_t>{3}, log), {}).value();
  ASSERT_TRUE(dataset->bind({{"x", {DType::i64, {2}}}}, {{1, 1}}).ok());
  for (int64_t step = 0; step < 3; ++step) {
    const auto own = dataset->next().value();
    ASSERT_EQ(own[0].shape(), (Shape{1}));
    EXPECT_EQ(own[0].get_int(0), -step);
  }
}

}  // namespace
}  // namespace epl::parts_test
