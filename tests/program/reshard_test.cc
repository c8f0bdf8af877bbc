// Every move between two shardings: which transfers make it, in which order, and the type after each.
#include "core/program/reshard.h"

#include <gtest/gtest.h>

namespace epl::reshard_test {
namespace {

const Mesh mesh{.axes = {{"data", 2, MeshAxis::Kind::rank},
                         {"model", 4, MeshAxis::Kind::rank},
                         {"micro_batch", 2, MeshAxis::Kind::time},
                         {"unit", 8, MeshAxis::Kind::unit}}};
constexpr int data = 0, model = 1, micro_batch = 2, unit = 3;
const TensorType full{DType::f32, {64, 16}};

Cuts by(std::vector<int> axes, int64_t outer = 1) { return {{std::move(axes), outer}}; }

const BatchLayout ranks_first(by({data, micro_batch, unit})), time_first(by({micro_batch, data, unit}));

Sharding lying(std::vector<Cuts> dims, std::vector<Partial> partial = {}) {
  return {std::move(dims), std::move(partial)};
}

// "accumulate f32[64,16]!; all_reduce(data) f32[64,16]"
std::string moves(const Sharding& from, const Sharding& to, const TensorType& type = full,
                  const BatchLayout& batch = ranks_first) {
  auto made = reshard(mesh, batch, type, from, to);
  if (!made.ok()) return cat("error: ", made.status().message());
  std::vector<std::string> texts;
  for (const Move& move : *made) {
    const Attribute* axis = move.attributes.find("axis");
    texts.push_back(cat(move.op, axis ? cat("(", std::get<std::string>(*axis), ")") : "", " ", move.type.text(),
                        move.at_last_iteration ? "!" : ""));
  }
  return join(texts, "; ");
}

TEST(Reshard, WhatLiesRightDoesNotMove) {
  const Sharding cut = lying({by({data, micro_batch, unit}), {}});
  EXPECT_EQ(moves(cut, cut), "");
  EXPECT_EQ(moves(lying({by({unit}), {}}), lying({{}, {}})), "") << "units lie side by side in one piece";
  EXPECT_EQ(moves(lying({{}, {}}, {{unit}}), lying({{}, {}})), "") << "a kernel adds its units itself";
}

TEST(Reshard, SumsGoOverMicroBatchesAndThenOverRanks) {
  EXPECT_EQ(moves(lying({{}, {}}, {{data}, {micro_batch}, {unit}}), lying({{}, {}})),
            "accumulate f32[64,16]!; all_reduce(data) f32[64,16]");
  EXPECT_EQ(moves(lying({{}, {}}, {{data}, {micro_batch}}), lying({{}, {}}, {{data}})), "accumulate f32[64,16]!")
      << "the rest stays pending";
  EXPECT_EQ(moves(lying({{}, {}}, {{data, ShardingRule::Reduce::max}}), lying({{}, {}})),
            "all_reduce(data) f32[64,16]");
  EXPECT_EQ(moves(lying({{}, {}}, {{micro_batch, ShardingRule::Reduce::max}}), lying({{}, {}})),
            "error: a maximum or minimum is taken over the shards of micro_batch, which only sums are; use fewer "
            "micro-batches");
}

TEST(Reshard, SumsFollowTheOrderOfTheBatch) {
  const Sharding summed = lying({{}, {}}, {{data}, {micro_batch}, {unit}, {model}});
  EXPECT_EQ(moves(summed, lying({{}, {}}), full, ranks_first),
            "accumulate f32[64,16]!; all_reduce(data) f32[64,16]; all_reduce(model) f32[64,16]");
  EXPECT_EQ(moves(summed, lying({{}, {}}), full, time_first),
            "all_reduce(data) f32[64,16]; accumulate f32[64,16]!; all_reduce(model) f32[64,16]");
  EXPECT_EQ(moves(summed, lying({by({data}), {}}), full, ranks_first),
            "accumulate f32[64,16]!; reduce_scatter(data) f32[32,16]; all_reduce(model) f32[32,16]");
  EXPECT_EQ(moves(summed, lying({by({data}), {}}), full, time_first),
            "reduce_scatter(data) f32[32,16]; accumulate f32[32,16]!; all_reduce(model) f32[32,16]")
      << "what is added up over micro-batches is a shard";
}

TEST(Reshard, ASumThatIsWantedInShardsIsScattered) {
  EXPECT_EQ(moves(lying({{}, {}}, {{model}}), lying({by({model}), {}})), "reduce_scatter(model) f32[16,16]");
  EXPECT_EQ(moves(lying({{}, {}}, {{data}, {model}}), lying({by({model}), {}})),
            "all_reduce(data) f32[64,16]; reduce_scatter(model) f32[16,16]");
  EXPECT_EQ(moves(lying({{}, by({model})}, {{data}}), lying({{}, by({data})})),
            "all_reduce(data) f32[64,4]; all_gather(model) f32[256,4]; reshape f32[4,64,4]; transpose f32[64,4,4]; "
            "reshape f32[64,16]; batch_slice f32[64,8]")
      << "not where the axis cuts what another one cuts now";
}

TEST(Reshard, ShardsAreGatheredAndSliced) {
  EXPECT_EQ(moves(lying({by({model}), {}}), lying({{}, {}})), "all_gather(model) f32[64,16]");
  EXPECT_EQ(moves(lying({{}, {}}), lying({by({data, micro_batch}), {}})), "batch_slice f32[16,16]");
  EXPECT_EQ(moves(lying({{}, {}}), lying({{}, by({data}, 2)})), "batch_slice f32[64,8]");
  EXPECT_EQ(moves(lying({by({model}), {}}), lying({{}, by({model})})),
            "reshape f32[16,4,4]; transpose f32[4,16,4]; reshape f32[4,64]; all_to_all(model) f32[4,64]; "
            "reshape f32[64,4]")
      << "an axis goes from one dimension to another";
  EXPECT_EQ(moves(lying({by({data}), {}}), lying({by({data, model}), {}})), "batch_slice f32[8,16]")
      << "what is cut already stays so";
}

TEST(Reshard, ShardsOfAnyDimensionAreGathered) {
  EXPECT_EQ(moves(lying({{}, by({model})}), lying({{}, {}})),
            "all_gather(model) f32[256,4]; reshape f32[4,64,4]; transpose f32[64,4,4]; reshape f32[64,16]");
  EXPECT_EQ(moves(lying({by({data, model}), {}}), lying({{}, {}})),
            "all_gather(model) f32[32,16]; all_gather(data) f32[64,16]");
  // Samples and heads in one dimension: each is gathered by itself.
  EXPECT_EQ(moves(lying({{{{data}, 1}, {{model}, 8}}, {}}), lying({by({data}), {}})),
            "all_gather(model) f32[32,16]; reshape f32[4,4,32]; transpose f32[4,4,32]; reshape f32[32,16]");
  EXPECT_EQ(moves(lying({{{{data}, 1}, {{model}, 8}}, {}}), lying({by({model}, 8), {}})),
            "all_gather(data) f32[16,16]");
}

TEST(Reshard, ASumIsScatteredOverAnyDimension) {
  EXPECT_EQ(moves(lying({{}, {}}, {{model}}), lying({{}, by({model})})),
            "reshape f32[64,4,4]; transpose f32[4,64,4]; reshape f32[4,256]; reduce_scatter(model) f32[1,256]; "
            "reshape f32[64,4]");
  // Samples, of which a rank has one in each iteration, and positions in one dimension: its positions lie together.
  EXPECT_EQ(
      moves(lying({by({data, micro_batch}), {}}, {{model}}), lying({{{{data, micro_batch}, 1}, {{model}, 4}}, {}})),
      "reduce_scatter(model) f32[4,16]");
}

// 10 granules over the 4 ranks of `model`, 3 to a shard: 12 with padding.
Cuts uneven(int64_t of, int64_t outer = 1) { return {{{model}, outer, of}}; }
std::string moves_of_ten(const Sharding& from, const Sharding& to) { return moves(from, to, {DType::f32, {10, 20}}); }

TEST(Reshard, UnevenShardsGetPaddingBeforeTheyAreCut) {
  EXPECT_EQ(moves_of_ten(lying({{}, {}}), lying({uneven(10), {}})),
            "reshape f32[1,10,20]; pad f32[1,12,20]; reshape f32[12,20]; batch_slice f32[3,20]");
  EXPECT_EQ(moves_of_ten(lying({{}, {}}, {{model}}), lying({uneven(10), {}})),
            "reshape f32[1,10,20]; pad f32[1,12,20]; reshape f32[12,20]; reduce_scatter(model) f32[3,20]");
  // Ten heads of two; and five of two in each of two runs.
  EXPECT_EQ(moves_of_ten(lying({{}, {}}), lying({{}, uneven(10)})),
            "reshape f32[10,10,2]; pad f32[10,12,2]; reshape f32[10,24]; batch_slice f32[10,6]");
  EXPECT_EQ(moves_of_ten(lying({{}, {}}), lying({{}, uneven(5, 2)})),
            "reshape f32[20,5,2]; pad f32[20,8,2]; reshape f32[10,32]; batch_slice f32[10,8]");
}

TEST(Reshard, UnevenShardsLoseTheirPaddingWhenTheyAreGathered) {
  EXPECT_EQ(moves_of_ten(lying({uneven(10), {}}), lying({{}, {}})),
            "all_gather(model) f32[12,20]; reshape f32[1,12,20]; slice f32[1,10,20]; reshape f32[10,20]");
  EXPECT_EQ(moves_of_ten(lying({uneven(10), {}}), lying({uneven(10), {}})), "");
  // Samples beside heads in one dimension stay cut.
  const Sharding both = lying({{{{data}, 1}, {{model}, 2, 5}}, {}});
  EXPECT_EQ(moves_of_ten(both, lying({by({data}), {}})),
            "all_gather(model) f32[8,20]; reshape f32[1,8,20]; slice f32[1,5,20]; reshape f32[5,20]");
  EXPECT_EQ(moves_of_ten(both, lying({uneven(5, 2), {}})), "all_gather(data) f32[4,20]");
  // Samples are the minor part: 5 positions of two samples, one for each micro-batch.
  const Sharding minor = lying({{{{model}, 1, 5}, {{micro_batch}, 5}}, {}});
  EXPECT_EQ(moves_of_ten(minor, lying({by({micro_batch}, 5), {}})),
            "all_gather(model) f32[8,20]; reshape f32[1,8,20]; slice f32[1,5,20]; reshape f32[5,20]");
  EXPECT_EQ(moves_of_ten(lying({by({micro_batch}, 5), {}}), minor),
            "reshape f32[1,5,20]; pad f32[1,8,20]; reshape f32[8,20]; batch_slice f32[2,20]");
}

// 9 rows are 3 runs of 3: runs over `model`, the rows of a run over `data`.
TEST(Reshard, OneUnevenCutStaysWhereAnotherOneGoes) {
  const Cuts major = {{{model}, 1, 3}}, all = {{{model}, 1, 3}, {{data}, 3, 3}};
  const auto moves_of_nine = [](const Cuts& from, const Cuts& to) {
    return moves(lying({from, {}}), lying({to, {}}), {DType::f32, {9, 20}});
  };
  EXPECT_EQ(moves_of_nine(all, major),
            "all_gather(data) f32[4,20]; reshape f32[1,4,20]; slice f32[1,3,20]; reshape f32[3,20]");
  EXPECT_EQ(moves_of_nine(major, all),
            "reshape f32[1,3,20]; pad f32[1,4,20]; reshape f32[4,20]; batch_slice f32[2,20]");
}

TEST(Reshard, BetweenTwoWaysToPadADimensionIsReplicated) {
  EXPECT_EQ(moves_of_ten(lying({{}, uneven(10)}), lying({{}, by({model})})),
            "all_gather(model) f32[40,6]; reshape f32[4,10,6]; transpose f32[10,4,6]; reshape f32[10,24]; "
            "reshape f32[10,12,2]; slice f32[10,10,2]; reshape f32[10,20]; batch_slice f32[10,5]");
  EXPECT_EQ(moves_of_ten(lying({uneven(10), {}}), lying({{}, by({model})})),
            "reshape f32[3,4,5]; transpose f32[4,3,5]; reshape f32[4,15]; all_to_all(model) f32[4,15]; "
            "reshape f32[12,5]; reshape f32[1,12,5]; slice f32[1,10,5]; reshape f32[10,5]");
}

TEST(Reshard, WhatNoTransferMovesIsSaid) {
  EXPECT_EQ(
      moves(lying({by({micro_batch}), {}}), lying({{}, {}})),
      "error: dimension 0 is cut over micro_batch, which is not an axis of ranks, and cannot be gathered; use fewer "
      "micro-batches");
}

TEST(Operands, FollowFromTheRuleAndTheNode) {
  // A product [n, k] x [k, m] -> [n, m] whose k is cut: both operands are cut in k, the result is a sum that is
  // pending.
  ShardingRule rule;
  const int n = rule.add_factor(8), k = rule.add_factor(6), m = rule.add_factor(4);
  rule.inputs = {{{n}, {k}}, {{k}, {m}}};
  rule.outputs = {{{n}, {m}}};
  NodeSharding node{.factors = std::vector<Cuts>(3)};
  node.factors[static_cast<size_t>(k)] = by({model});
  const OperandShardings found = operand_shardings(rule, node);
  EXPECT_EQ(found.inputs[0], lying({{}, by({model})}));
  EXPECT_EQ(found.inputs[1], lying({by({model}), {}}));
  EXPECT_EQ(found.outputs[0], lying({{}, {}}, {{model}}));
  // Rows over the data axis and columns over the model axis besides: two axes in one node.
  node.factors[static_cast<size_t>(n)] = by({data});
  node.factors[static_cast<size_t>(m)] = by({micro_batch});
  EXPECT_EQ(operand_shardings(rule, node).outputs[0], lying({by({data}), by({micro_batch})}, {{model}}));
}

}  // namespace
}  // namespace epl::reshard_test
