// Every move between two shardings: which transfers make it, in which order, and the type after each.
#include "core/program/reshard.h"

#include <gtest/gtest.h>

namespace epl {
namespace {

const Mesh mesh{.axes = {{"data", 2, MeshAxis::Kind::rank},
                         {"model", 4, MeshAxis::Kind::rank},
                         {"micro_batch", 2, MeshAxis::Kind::time},
                         {"unit", 8, MeshAxis::Kind::unit}}};
constexpr int data = 0, model = 1, micro_batch = 2, unit = 3;
const TensorType whole{DType::f32, {64, 16}};

Cuts by(std::vector<int> axes, int64_t outer = 1) { return {{std::move(axes), outer}}; }

Sharding lying(std::vector<Cuts> dims, std::vector<Partial> partial = {}) {
  return {std::move(dims), std::move(partial)};
}

// "accumulate f32[64,16]!; all_reduce(data) f32[64,16]"
std::string moves(const Sharding& from, const Sharding& to) {
  auto made = reshard(mesh, whole, from, to);
  if (!made.ok()) return cat("error: ", made.status().message());
  std::vector<std::string> texts;
  for (const Move& move : *made) {
    const Attribute* axis = move.attributes.find("axis");
    texts.push_back(cat(move.op, axis ? cat("(", std::get<std::string>(*axis), ")") : "", " ", move.type.text(),
                        move.at_last_turn ? "!" : ""));
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
      << "the rest stays due";
  EXPECT_EQ(moves(lying({{}, {}}, {{data, ShardingRule::Reduce::max}}), lying({{}, {}})),
            "all_reduce(data) f32[64,16]");
  EXPECT_EQ(moves(lying({{}, {}}, {{micro_batch, ShardingRule::Reduce::max}}), lying({{}, {}})),
            "error: a maximum or minimum over the pieces of micro_batch");
}

TEST(Reshard, ASumThatIsWantedInPiecesIsScattered) {
  EXPECT_EQ(moves(lying({{}, {}}, {{model}}), lying({by({model}), {}})), "reduce_scatter(model) f32[16,16]");
  EXPECT_EQ(moves(lying({{}, {}}, {{data}, {model}}), lying({by({model}), {}})),
            "all_reduce(data) f32[64,16]; reduce_scatter(model) f32[16,16]");
  EXPECT_EQ(moves(lying({{}, by({model})}, {{data}}), lying({{}, by({data})})),
            "all_reduce(data) f32[64,4]; all_gather(model) f32[256,4]; reshape f32[4,64,4]; transpose f32[64,4,4]; "
            "reshape f32[64,16]; batch_slice f32[64,8]")
      << "not where the axis cuts what another one cuts now";
}

TEST(Reshard, PiecesAreGatheredAndSliced) {
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

TEST(Reshard, PiecesOfAnyDimensionAreGathered) {
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
  // Samples, of which a rank has one in each turn, and positions in one dimension: its positions lie together.
  EXPECT_EQ(
      moves(lying({by({data, micro_batch}), {}}, {{model}}), lying({{{{data, micro_batch}, 1}, {{model}, 4}}, {}})),
      "reduce_scatter(model) f32[4,16]");
}

TEST(Reshard, WhatNoTransferMovesIsSaid) {
  EXPECT_EQ(moves(lying({by({micro_batch}), {}}), lying({{}, {}})),
            "error: gathering dimension 0, which micro_batch cuts");
}

TEST(Operands, FollowFromTheRuleAndTheNode) {
  // A product [n, k] x [k, m] -> [n, m] whose k is cut: both operands are cut in k, the result is a sum that is due.
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
}  // namespace epl
