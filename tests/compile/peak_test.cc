// What holds a peak: to the byte, under every kind of option, by what it is there for and by name.
#include "core/compile/peak.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/compile/overview.h"
#include "core/program/held.h"
#include "core/program/memory.h"
#include "core/runtime/rehearsal.h"
#include "tests/runtime/trained.h"

namespace epl::peak_test {
namespace {

constexpr int layers = 8;

// Layers whose results take far more than their weights.
std::string deep_model() {
  std::string text = "graph deep(x: f32[8,32,8] batch 0) {\n  last: f32[8,4] = param\n";
  for (int i = 0; i < layers; ++i) text += cat("  w", i, ": f32[8,8] = param\n  b", i, ": f32[8] = param\n");
  text += "  forward:\n  r0: f32[8,32,8] = sigmoid(x)\n";
  for (int i = 0; i < layers; ++i) {
    text += cat("  h", i, ": f32[8,32,8] = linear(r", i, ", w", i, ", b", i, ")\n  a", i, ": f32[8,32,8] = gelu(h", i,
                ")\n  r", i + 1, ": f32[8,32,8] = add(r", i, ", a", i, ")\n");
  }
  return text + cat("  y: f32[8,32,4] = matmul(r", layers, ", last)\n  output y = y\n}\n");
}

std::shared_ptr<const CompiledPlan> plan_of(int64_t ranks, const std::string& keys) {
  const auto plan = layout_plan(layout_options(GraphModel::parse(deep_model()), ranks, at_level("data", keys)));
  EXPECT_TRUE(plan.ok()) << keys << ": " << plan.status().to_string();
  return plan.ok() ? *plan : nullptr;
}

const std::string computed_again = R"("gradient_checkpoint.type": "auto")";
const std::string in_shards = R"("zero.level": "v2")";
const std::string elsewhere = R"("offload.level": "v0", "offload.values": "states, weights, activations")";
const std::string in_stages = R"("pipeline.num_micro_batch": 4, "pipeline.num_stages": 2, "pipeline.strategy": "1F1B")";

struct Option {
  std::string name;
  int64_t ranks = 1;
  std::string keys;
};

class Peaks : public ::testing::TestWithParam<Option> {};

TEST_P(Peaks, AreExplainedToTheByte) {
  const auto plan = plan_of(GetParam().ranks, GetParam().keys);
  ASSERT_TRUE(plan);
  for (int t = 0; t < plan->virtual_devices(); ++t) {
    const Peak peak = peak_of(*plan, t);
    int64_t sum = 0;
    std::set<std::string> kinds;
    for (const MemoryItem& item : peak.kinds) {
      EXPECT_GT(item.bytes, 0) << item.what;
      EXPECT_TRUE(kinds.insert(item.what).second) << item.what;
      sum += item.bytes;
    }
    EXPECT_EQ(sum, PlanMemory(*plan).peak(t));
    EXPECT_TRUE(std::ranges::is_sorted(peak.kinds, std::ranges::greater(), &MemoryItem::bytes));
    EXPECT_TRUE(std::ranges::is_sorted(peak.largest, std::ranges::greater(), &Peak::Value::bytes));
    EXPECT_LE(peak.largest.size(), 12u);
    EXPECT_FALSE(peak.largest.empty());
    std::map<std::string, int64_t> named;
    for (const Peak::Value& value : peak.largest) named[value.kind] += value.bytes;
    for (const auto& [kind, bytes] : named) {
      const auto item = std::ranges::find(peak.kinds, kind, &MemoryItem::what);
      ASSERT_NE(item, peak.kinds.end()) << kind;
      EXPECT_LE(bytes, item->bytes) << kind;
    }
  }
}

// The bytes that are alive at every time of a step, none twice and none forgotten.
TEST_P(Peaks, AndSoIsEveryTimeOfAStep) {
  const auto plan = plan_of(GetParam().ranks, GetParam().keys);
  ASSERT_TRUE(plan);
  for (const Entry& entry : plan->entries()) {
    for (size_t t = 0; t < entry.programs.size(); ++t) {
      const HeldArena held(entry.programs[t], entry.locals[t]);
      const std::vector<int64_t> live = live_bytes(entry.programs[t]);
      ASSERT_EQ(held.over_time().size(), live.size());
      for (size_t at = 0; at < live.size(); ++at) {
        ASSERT_EQ(held.bytes_at(static_cast<int>(at)), live[at]) << entry.name() << ", " << at;
        for (const int64_t bytes : held.over_time()[at]) ASSERT_GE(bytes, 0);
      }
      const std::vector<HeldValue> fullest = held.at(held.fullest());
      const int64_t sum =
          std::accumulate(fullest.begin(), fullest.end(), int64_t{0},
                          [](int64_t all, const HeldValue& value) { return all + aligned_bytes(value.bytes); });
      EXPECT_EQ(sum, *std::ranges::max_element(live));
    }
  }
}

TEST_P(Peaks, AndTheRowsOfAnOverview) {
  const auto plan = plan_of(GetParam().ranks, GetParam().keys);
  ASSERT_TRUE(plan);
  const auto rehearsal = rehearse(test_host(1), plan);
  ASSERT_TRUE(rehearsal.ok()) << rehearsal.status().to_string();
  const Overview overview = make_overview(*plan, *rehearsal);
  for (const Overview::Row& row : overview.rows) {
    ASSERT_EQ(row.held.size(), row.memory.size());
    for (size_t i = 0; i < row.held.size(); ++i)
      EXPECT_EQ(std::accumulate(row.held[i].begin(), row.held[i].end(), int64_t{0}), row.memory[i].second);
    for (const Overview::Mark& mark : row.marks) {
      EXPECT_LE(mark.begin, mark.end);
      EXPECT_LE(mark.end, overview.seconds * (1 + 1e-9));
      EXPECT_GT(mark.bytes, 0) << mark.what;
      EXPECT_GT(mark.count, 0);
    }
  }
  const std::string text = explain(*plan, overview);
  const auto row = std::ranges::find(overview.rows, PlanMemory(*plan).fullest_class(), &Overview::Row::virtual_device);
  ASSERT_NE(row, overview.rows.end());
  const int64_t most = std::ranges::max_element(row->memory, {}, [](const auto& p) { return p.second; })->second;
  EXPECT_NE(text.find("the arena over a step, in tenths of it:\n"), std::string::npos) << text;
  EXPECT_NE(text.find(cat("  ", grouped(most), " bytes, most of it ")), std::string::npos) << text;
  for (const Overview::Mark& mark : row->marks) EXPECT_NE(text.find(mark.what), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(Options, Peaks,
                         ::testing::Values(Option{"none", 1, ""}, Option{"copies", 2, ""},
                                           Option{"micro_batches", 1, R"("pipeline.num_micro_batch": 4)"},
                                           Option{"recompute", 1, computed_again}, Option{"shards", 2, in_shards},
                                           Option{"shards_and_recompute", 2, cat(in_shards, ", ", computed_again)},
                                           Option{"offload", 1, elsewhere},
                                           Option{"offload_and_recompute", 1, cat(elsewhere, ", ", computed_again)},
                                           Option{"split", 2, R"("default": {"split": 2})"},
                                           Option{"stages", 2, in_stages}, Option{"bf16", 1, R"("amp.level": "O1")"}),
                         [](const auto& info) { return info.param.name; });

int64_t bytes_of(const Peak& peak, std::string_view kind) {
  const auto found = std::ranges::find(peak.kinds, kind, &MemoryItem::what);
  return found == peak.kinds.end() ? 0 : found->bytes;
}

// The most bytes of a kind that the train step has at any time.
int64_t most_of(const CompiledPlan& plan, Held kind) {
  const Entry& train = *plan.entry(EntryKind::train);
  const HeldArena held(train.programs[0], train.locals[0]);
  int64_t most = 0;
  for (const HeldBytes& bytes : held.over_time()) most = std::max(most, bytes[static_cast<size_t>(kind)]);
  return most;
}

std::set<std::string> marks_of(const CompiledPlan& plan) {
  const Entry& train = *plan.entry(EntryKind::train);
  const HeldArena held(train.programs[0], train.locals[0]);
  std::set<std::string> marks;
  for (int i = 0; i < std::ssize(train.programs[0].instructions); ++i) marks.emplace(held.mark(i));
  marks.erase("");
  return marks;
}

TEST(PeakKinds, AreThoseOfTheOptions) {
  const auto none = plan_of(1, ""), again = plan_of(1, computed_again), shards = plan_of(2, in_shards),
             away = plan_of(1, elsewhere);
  ASSERT_TRUE(none && again && shards && away);
  EXPECT_TRUE(marks_of(*none).empty());
  for (const Held kind : {Held::recomputed, Held::gathered, Held::fetched}) EXPECT_EQ(most_of(*none, kind), 0);
  EXPECT_GT(most_of(*none, Held::gradient), 0);
  EXPECT_GT(most_of(*none, Held::flowing), 0);
  // Most of what a step has waits for the backward pass, and less of it where that computes it again.
  EXPECT_GT(bytes_of(peak_of(*none, 0), held_name(Held::kept)), PlanMemory(*none).arena() / 2);
  EXPECT_LT(most_of(*again, Held::kept), most_of(*none, Held::kept));
  EXPECT_GT(most_of(*again, Held::recomputed), 0);
  EXPECT_EQ(marks_of(*again), std::set<std::string>{"recomputed"});
  EXPECT_GT(most_of(*shards, Held::gathered), 0);
  EXPECT_EQ(marks_of(*shards), std::set<std::string>{"gathered"});
  EXPECT_GT(most_of(*away, Held::fetched), 0);
  EXPECT_EQ(marks_of(*away), (std::set<std::string>{"evicted", "fetched"}));
}

// Layers whose weights take far more than their results.
std::string wide_model() {
  std::string text = "graph wide(x: f32[8,64] batch 0) {\n";
  for (int i = 0; i < layers; ++i) text += cat("  w", i, ": f32[64,64] = param\n");
  text += "  forward:\n  r0: f32[8,64] = relu(x)\n";
  for (int i = 0; i < layers; ++i)
    text += cat("  h", i, ": f32[8,64] = matmul(r", i, ", w", i, ")\n  r", i + 1, ": f32[8,64] = relu(h", i, ")\n");
  return text + cat("  output y = r", layers, "\n}\n");
}

// A weight in 16 bits is there while its layer uses it, however many micro-batches do.
TEST(PeakOfMicroBatches, HasFewWeightsInTwoTypes) {
  for (const auto& [ranks, keys] : {std::pair(1, std::string()), std::pair(2, cat(", ", in_shards))}) {
    const auto arena = [&](const std::string& more) {
      const auto plan =
          layout_plan(layout_options(GraphModel::parse(wide_model()), ranks,
                                     at_level("data", cat(R"("pipeline.num_micro_batch": 4)", keys, more))));
      EXPECT_TRUE(plan.ok()) << plan.status().to_string();
      return plan.ok() ? PlanMemory(**plan).arena() : 0;
    };
    EXPECT_LE(arena(R"(, "amp.level": "O1")"), arena("") + 3 * 64 * 64 * 2) << ranks;
  }
}

// A weight that the first layer and the last one share is gathered for each of them.
TEST(PeakOfGatheredWeights, HasNoneThatWaitsForALayerFarBehind) {
  constexpr int many = 100;
  std::string text = "graph tied(x: f32[8,16] batch 0) {\n  tied: f32[16,16] = param\n";
  for (int i = 1; i < many; ++i) text += cat("  w", i, ": f32[16,16] = param\n");
  text += "  forward:\n  r0: f32[8,16] = matmul(x, tied)\n";
  for (int i = 1; i < many; ++i)
    text += cat("  h", i, ": f32[8,16] = matmul(r", i - 1, ", w", i, ")\n  r", i, ": f32[8,16] = relu(h", i, ")\n");
  text += cat("  y: f32[8,16] = matmul(r", many - 1, ", tied)\n  output y = y\n}\n");
  const auto plan = layout_plan(layout_options(GraphModel::parse(text), 2, at_level("data", in_shards)));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const Entry& train = *(*plan)->entry(EntryKind::train);
  const HeldArena held(train.programs[0], train.locals[0]);
  int64_t most = 0;
  for (const HeldBytes& bytes : held.over_time()) most = std::max(most, bytes[static_cast<size_t>(Held::gathered)]);
  EXPECT_GT(most, 0);
  EXPECT_LE(most, 2 * 16 * 16 * 4);
}

// Layers are one line, with how many they are.
TEST(PeakValues, HaveNamesNodesAndPhases) {
  const auto plan = plan_of(1, "");
  ASSERT_TRUE(plan);
  const Peak peak = peak_of(*plan, 0);
  EXPECT_EQ(peak.entry, "train");
  const auto kept = std::ranges::find_if(peak.largest, [](const Peak::Value& value) {
    return value.kind == held_name(Held::kept) && value.values >= layers - 1;
  });
  ASSERT_NE(kept, peak.largest.end());
  EXPECT_NE(kept->name.find('*'), std::string::npos) << kept->name;
  EXPECT_NE(kept->node.find('*'), std::string::npos) << kept->node;
  EXPECT_EQ(kept->phase, "forward");
  const auto weight = std::ranges::find(peak.largest, "weight", &Peak::Value::kind);
  ASSERT_NE(weight, peak.largest.end());
  EXPECT_EQ(weight->name, "w*");
  EXPECT_EQ(weight->values, layers);
  EXPECT_EQ(weight->bytes, layers * 8 * 8 * 4);
  EXPECT_EQ(weight->phase, "");
  const std::string text = plan->explain();
  for (const char* part : {"at that peak, in train:\n",
                           "  kept for the backward pass: ", "the most bytes there have:\n", ": w* (8), weight\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

// A node that is computed again is noted in the local graph, whose text keeps it.
TEST(PeakValues, KnowWhatIsComputedAgain) {
  const auto plan = plan_of(1, computed_again);
  ASSERT_TRUE(plan);
  const LocalGraph& local = plan->entry(EntryKind::train)->locals[0];
  EXPECT_FALSE(local.again.empty());
  for (const std::string& name : local.again) {
    const NodeId n = local.graph.find_node(name);
    ASSERT_TRUE(n) << name;
    EXPECT_EQ(local.graph.node(n).phase, Phase::backward) << name;
  }
  const auto read = parse_local(print_local(local));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->again, local.again);
  EXPECT_TRUE(plan_of(1, "")->entry(EntryKind::train)->locals[0].again.empty());
}

}  // namespace
}  // namespace epl::peak_test
