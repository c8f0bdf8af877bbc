// Which casts stand around the moves of a sum that is added up in 16 bits.
#include "core/program/sum_moves.h"

#include <gtest/gtest.h>

namespace epl::sum_moves_test {
namespace {

const Mesh mesh{.axes = {{"data", 2, MeshAxis::Kind::rank},
                         {"model", 4, MeshAxis::Kind::rank},
                         {"micro_batch", 2, MeshAxis::Kind::time},
                         {"unit", 8, MeshAxis::Kind::unit}}};
constexpr int data = 0, model = 1, micro_batch = 2, unit = 3;
const TensorType full{DType::f32, {64, 16}};

Cuts by(std::vector<int> axes) { return {{std::move(axes), 1}}; }

const BatchLayout ranks_first(by({data, micro_batch, unit})), time_first(by({micro_batch, data, unit}));

constexpr SumForm of_ranks{.kind = SumForm::Kind::narrow, .type = DType::f16, .scale = 4},
    of_units{.kind = SumForm::Kind::narrow, .type = DType::bf16, .of_units = true};

std::string text(const std::vector<Move>& moves) {
  std::vector<std::string> texts;
  for (const Move& move : moves)
    texts.push_back(cat(move.op, move.factor == 1 ? "" : cat("(", move.factor, ")"), " ", move.type.text()));
  return join(texts, "; ");
}

// "parts | rest", of a sum over the batch and the axis of a split.
std::string moves(const SumForm& form, const BatchLayout& batch, Sharding to = {.dims = {{}, {}}},
                  std::vector<Partial> pending = {{data}, {micro_batch}, {unit}}) {
  auto plain = reshard(mesh, batch, full, {.dims = {{}, {}}, .partial = std::move(pending)}, to);
  if (!plain.ok()) return cat("error: ", plain.status().message());
  const SumMoves made = moves_in_form(form, full, *std::move(plain));
  return cat(text(made.parts), " | ", text(made.rest));
}

TEST(SumMoves, OfRanksAreNarrowBetweenRanks) {
  EXPECT_EQ(moves(of_ranks, ranks_first),
            " | accumulate f32[64,16]; mul(4) f32[64,16]; cast f16[64,16]; all_reduce f16[64,16]; cast f32[64,16]; "
            "mul(0.25) f32[64,16]");
  EXPECT_EQ(moves(of_ranks, time_first),
            " | mul(4) f32[64,16]; cast f16[64,16]; all_reduce f16[64,16]; cast f32[64,16]; mul(0.25) f32[64,16]; "
            "accumulate f32[64,16]");
  EXPECT_EQ(moves(of_ranks, ranks_first, {.dims = {by({data}), {}}}),
            " | accumulate f32[64,16]; mul(4) f32[64,16]; cast f16[64,16]; reduce_scatter f16[32,16]; cast f32[32,16]; "
            "mul(0.25) f32[32,16]");
}

TEST(SumMoves, OfRanksAreNarrowOverSeveralAxesAtOnce) {
  EXPECT_EQ(moves(of_ranks, ranks_first, {.dims = {{}, {}}}, {{data}, {unit}, {model}}),
            " | mul(4) f32[64,16]; cast f16[64,16]; all_reduce f16[64,16]; all_reduce f16[64,16]; cast f32[64,16]; "
            "mul(0.25) f32[64,16]");
}

TEST(SumMoves, OfUnitsAreNarrowOverMicroBatchesToo) {
  EXPECT_EQ(moves(of_units, ranks_first),
            "cast bf16[64,16] | accumulate bf16[64,16]; all_reduce bf16[64,16]; cast f32[64,16]");
  EXPECT_EQ(moves(of_units, time_first),
            "cast bf16[64,16] | all_reduce bf16[64,16]; accumulate bf16[64,16]; cast f32[64,16]");
}

TEST(SumMoves, OfAKernelAloneAreRoundedByUnitsOnly) {
  EXPECT_EQ(moves(of_units, ranks_first, {.dims = {{}, {}}}, {{unit}}), "cast bf16[64,16] | cast f32[64,16]");
  EXPECT_EQ(moves(of_ranks, ranks_first, {.dims = {{}, {}}}, {{unit}}), " | ");
}

}  // namespace
}  // namespace epl::sum_moves_test
