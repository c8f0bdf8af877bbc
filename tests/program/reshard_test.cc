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

Sharding lying(std::vector<AxisCut> dims, std::vector<Partial> partial = {}) {
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
  const Sharding cut = lying({{{data, micro_batch, unit}}, {}});
  EXPECT_EQ(moves(cut, cut), "");
  EXPECT_EQ(moves(lying({{{unit}}, {}}), lying({{}, {}})), "") << "units lie side by side in one piece";
  EXPECT_EQ(moves(lying({{}, {}}, {{unit}}), lying({{}, {}})), "") << "a kernel adds its units itself";
}

TEST(Reshard, SumsGoOverMicroBatchesAndThenOverRanks) {
  EXPECT_EQ(moves(lying({{}, {}}, {{data}, {micro_batch}, {unit}}), lying({{}, {}})),
            "accumulate f32[64,16]!; all_reduce(data) f32[64,16]");
  EXPECT_EQ(moves(lying({{}, {}}, {{data}, {micro_batch}}), lying({{}, {}}, {{data}})), "accumulate f32[64,16]!")
      << "the rest stays due";
  EXPECT_EQ(moves(lying({{}, {}}, {{data, ShardingRule::Reduce::max}}), lying({{}, {}})),
            "error: a maximum or minimum over the pieces of data");
}

TEST(Reshard, ASumThatIsWantedInPiecesIsScattered) {
  EXPECT_EQ(moves(lying({{}, {}}, {{model}}), lying({{{model}}, {}})), "reduce_scatter(model) f32[16,16]");
  EXPECT_EQ(moves(lying({{}, {}}, {{data}, {model}}), lying({{{model}}, {}})),
            "all_reduce(data) f32[64,16]; reduce_scatter(model) f32[16,16]");
}

TEST(Reshard, PiecesAreGatheredAndSliced) {
  EXPECT_EQ(moves(lying({{{model}}, {}}), lying({{}, {}})), "all_gather(model) f32[64,16]");
  EXPECT_EQ(moves(lying({{}, {}}), lying({{{data, micro_batch}}, {}})), "batch_slice f32[16,16]");
  EXPECT_EQ(moves(lying({{}, {}}), lying({{}, {{data}, 2}})), "batch_slice f32[64,8]");
  EXPECT_EQ(moves(lying({{{model}}, {}}), lying({{}, {{model}}})),
            "all_gather(model) f32[64,16]; batch_slice f32[64,4]");
  EXPECT_EQ(moves(lying({{{data}}, {}}), lying({{{data, model}}, {}})),
            "all_gather(data) f32[64,16]; batch_slice f32[8,16]");
}

TEST(Reshard, WhatNoTransferMovesIsSaid) {
  EXPECT_EQ(moves(lying({{}, {{model}}}), lying({{}, {}})), "error: gathering dimension 1, which model cut");
  EXPECT_EQ(moves(lying({{{data, model}}, {}}), lying({{}, {}})), "error: gathering dimension 0, which data.model cut");
}

TEST(Operands, FollowFromTheRuleAndTheNode) {
  // A product [n, k] x [k, m] -> [n, m] whose k is cut: both operands are cut in k, the result is a sum that is due.
  ShardingRule rule;
  const int n = rule.add_factor(8), k = rule.add_factor(6), m = rule.add_factor(4);
  rule.inputs = {{{n}, {k}}, {{k}, {m}}};
  rule.outputs = {{{n}, {m}}};
  NodeSharding node{.factors = std::vector<AxisCut>(3)};
  node.factors[static_cast<size_t>(k)] = {{model}};
  const OperandShardings found = operand_shardings(rule, node);
  EXPECT_EQ(found.inputs[0], lying({{}, {{model}}}));
  EXPECT_EQ(found.inputs[1], lying({{{model}}, {}}));
  EXPECT_EQ(found.outputs[0], lying({{}, {}}, {{model}}));
  // Rows over the data axis and columns over the model axis besides: two axes in one node.
  node.factors[static_cast<size_t>(n)] = {{data}};
  node.factors[static_cast<size_t>(m)] = {{micro_batch}};
  EXPECT_EQ(operand_shardings(rule, node).outputs[0], lying({{{data}}, {{micro_batch}}}, {{model}}));
}

}  // namespace
}  // namespace epl
