// The tables of pipeline schedules, with calls that take one unit of time each, or two where a backward call has both
// gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/strategy/pipeline.h"

namespace epl::pipeline_table_test {
namespace {

class Clock {
 public:
  // By the row's own table, or by the one for fewer micro-batches than it can order.
  Clock(const PipelineRow& row, const PipelineShape& shape, bool one_by_one = false) : row_(row), shape_(shape) {
    for (int c = 0; c < shape.virtual_devices; ++c)
      tables_.push_back(one_by_one ? stage_after_stage(row, shape, c) : row.calls(shape, c));
    at_.assign(tables_.size(), 0);
    time_.assign(tables_.size(), 0);
  }

  // Whether all calls can be made in their order.
  bool run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t c = 0; c < tables_.size(); ++c) {
        for (; at_[c] < tables_[c].size() && call(c, tables_[c][at_[c]]); ++at_[c]) moved = true;
      }
    }
    for (size_t c = 0; c < tables_.size(); ++c) {
      if (at_[c] < tables_[c].size()) return false;
    }
    return true;
  }

  double idle() const {
    const double all = *std::ranges::max_element(time_) * static_cast<double>(time_.size());
    return 1 - busy_ / all;
  }

  // The largest number of micro-batches, each in one stage, whose activations a virtual device keeps.
  int in_flight(size_t virtual_device) const {
    const BlockKind last = row_.has_weight_blocks ? BlockKind::weight : BlockKind::backward;
    int now = 0, most = 0;
    for (const BlockCall& call : tables_[virtual_device]) {
      if (call.block == BlockKind::forward) most = std::max(most, ++now);
      if (call.block == last) --now;
    }
    return most;
  }

  const std::vector<std::vector<BlockCall>>& tables() const { return tables_; }

 private:
  bool call(size_t c, const BlockCall& call) {
    double begin = time_[c];
    const auto after = [&](int stage, BlockKind kind) {
      if (stage < 0 || stage >= shape_.stages()) return true;
      const auto known = ended_.find({{stage, kind}, call.micro_batch});
      if (known == ended_.end()) return false;
      begin = std::max(begin, known->second);
      return true;
    };
    double length = 1;
    if (call.block == BlockKind::forward && !after(call.stage - 1, BlockKind::forward)) return false;
    if (call.block == BlockKind::weight && !after(call.stage, BlockKind::backward)) return false;
    if (call.block == BlockKind::backward) {
      if (!after(call.stage, BlockKind::forward) || !after(call.stage + 1, BlockKind::backward)) return false;
      length = row_.has_weight_blocks ? 1 : 2;
    }
    time_[c] = ended_[{call.id(), call.micro_batch}] = begin + length;
    busy_ += length;
    return true;
  }

  const PipelineRow& row_;
  const PipelineShape shape_;
  std::vector<std::vector<BlockCall>> tables_;
  std::vector<size_t> at_;
  std::vector<double> time_;
  std::map<std::pair<BlockId, int64_t>, double> ended_;
  double busy_ = 0;
};

class Tables : public ::testing::TestWithParam<std::string> {
 protected:
  static const PipelineRow& row() { return *pipeline_table().find(GetParam()); }
  // Shapes that there is a table of.
  template <class F> static void each_shape(F f) {
    int shapes = 0;
    for (int devices : {2, 4, 8}) {
      for (int64_t micro_batches : {1, 2, 4, 8, 16, 32}) {
        for (int chunks : {1, 2, 4}) {
          const PipelineShape shape{devices, chunks, micro_batches};
          const bool fits = row().chunks == 0 ? chunks > 1 : chunks == row().chunks;
          if (!fits || (row().refusal && !row().refusal(shape).empty())) continue;
          ++shapes;
          f(shape, cat(GetParam(), " of ", chunks, " stages on each of ", devices, " with ", micro_batches));
        }
      }
    }
    EXPECT_GT(shapes, 8);
  }
};

void expect_each_call_once(const PipelineRow& row, const PipelineShape& shape, Clock clock, const std::string& text) {
  EXPECT_TRUE(clock.run()) << text;
  std::map<BlockId, int64_t> next;
  for (size_t c = 0; c < clock.tables().size(); ++c) {
    for (const BlockCall& call : clock.tables()[c]) {
      EXPECT_EQ(row.virtual_device_of(shape, call.stage), static_cast<int>(c)) << text;
      EXPECT_EQ(call.micro_batch, next[call.id()]++) << text;
    }
  }
  EXPECT_EQ(std::ssize(next), shape.stages() * (row.has_weight_blocks ? 3 : 2)) << text;
  for (const auto& [block, calls] : next) EXPECT_EQ(calls, shape.micro_batches) << text;
}

TEST_P(Tables, HaveEachCallOnceAndInOrder) {
  each_shape([](const PipelineShape& shape, const std::string& text) {
    expect_each_call_once(row(), shape, Clock(row(), shape), text);
  });
}

// Stage after stage, for any number of micro-batches.
TEST_P(Tables, HaveAnOrderForFewMicroBatches) {
  for (int64_t micro_batches : {1, 2, 3}) {
    for (int devices : {2, 4, 8}) {
      const PipelineShape shape{devices, row().chunks == 0 ? 3 : row().chunks, micro_batches};
      const std::string text = cat(GetParam(), " on ", devices, " with ", micro_batches);
      expect_each_call_once(row(), shape, Clock(row(), shape, true), text);
    }
  }
}

TEST_P(Tables, AreIdleAsThePapersSay) {
  each_shape([](const PipelineShape& shape, const std::string& text) {
    if (shape.micro_batches < shape.virtual_devices) return;
    Clock clock(row(), shape);
    ASSERT_TRUE(clock.run()) << text;
    EXPECT_NEAR(clock.idle(), idle_share(row(), shape), 0.03) << text;
  });
}

// As many stages' activations as a rank of 1F1B keeps that is the first one, or all of GPipe; some papers pay with one
// or a few more.
TEST_P(Tables, KeepNoMoreThanTheyHaveTo) {
  const std::map<std::string, int> more = {{"one_more_forward", 1}, {"dual_pipe_v", 1}};
  each_shape([&](const PipelineShape& shape, const std::string& text) {
    const Clock clock(row(), shape);
    const int64_t all = shape.micro_batches * shape.chunks;
    int64_t limit = shape.stages() + (more.contains(GetParam()) ? more.at(GetParam()) : 0);
    if (GetParam() == "interleaved")
      limit += shape.virtual_devices - 1;  // it begins with two micro-batches for each stage
    if (GetParam() == "gpipe") limit = all;
    for (size_t c = 0; c < clock.tables().size(); ++c) EXPECT_LE(clock.in_flight(c), std::min(all, limit)) << text;
  });
}

// The rule of a row is that of its table: for ZB-V, which takes whatever can run, it is a limit.
TEST_P(Tables, KeepWhatTheirRuleSays) {
  each_shape([](const PipelineShape& shape, const std::string& text) {
    const Clock clock(row(), shape);
    for (int c = 0; c < shape.virtual_devices; ++c) {
      const int64_t rule = row().in_flight(shape, c), kept = clock.in_flight(static_cast<size_t>(c));
      EXPECT_LE(kept, rule) << text << ", " << c;
      if (GetParam() != "zb_v") {
        EXPECT_EQ(kept, rule) << text << ", " << c;
      }
    }
  });
}

std::vector<std::string> pipelines() {
  std::vector<std::string> names;
  for (const PipelineRow& row : pipeline_table().rows) {
    if (!row.words.empty()) names.push_back(row.name);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(, Tables, ::testing::ValuesIn(pipelines()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace epl::pipeline_table_test
