// Rates, memories and links of a machine, and the seconds that follow from them.
#include "core/backend/cost_model.h"

#include <gtest/gtest.h>

#include "core/backend/device.h"

namespace epl::cost_model_test {
namespace {

using Memory = Machine::Memory;

// A machine of two racks of four, with round numbers.
const Machine racks = {.name = "racks",
                       .rates = {{DType::f32, WorkKind::product, 1e9},
                                 {DType::bf16, WorkKind::product, 4e9},
                                 {DType::f32, WorkKind::elementwise, 5e8}},
                       .memories = {{Memory::Kind::device, 1e9, 1000}, {Memory::Kind::host, 1e8}},
                       .links = {{.ranks = 4, .bandwidth = 1e9, .seconds = 1}, {.bandwidth = 1e8, .seconds = 10}},
                       .launch_seconds = 0.5};

TEST(Machine, HasARateForATypeAndAKindOfWork) {
  EXPECT_EQ(racks.rate(DType::bf16, WorkKind::product), 4e9);
  EXPECT_EQ(racks.rate(DType::f64, WorkKind::product), 1e9) << "the first of the kind, where a type has none";
  EXPECT_EQ(racks.rate(DType::bf16, WorkKind::elementwise), 5e8);
}

TEST(Machine, AGroupHasTheLinkThatJoinsAllOfIt) {
  EXPECT_EQ(racks.link(4, 7).ranks, 4);
  EXPECT_EQ(racks.link(3, 4).ranks, 0);
}

TEST(Machine, ThreadsShareLinksAndHaveCores) {
  const Machine one = processor_core(), four = of_threads(one, 4);
  EXPECT_EQ(four.rate(DType::f32, WorkKind::product), 4 * one.rate(DType::f32, WorkKind::product));
  EXPECT_EQ(four.memory(Memory::Kind::device).bandwidth, 4 * one.memory(Memory::Kind::device).bandwidth);
  EXPECT_EQ(four.links.front().bandwidth, one.links.front().bandwidth);
  EXPECT_EQ(of_threads(racks, 4).rate(DType::f32, WorkKind::product), 1e9) << "it is no core";
}

TEST(CostModel, OtherMemoriesAreAsFastAsTheMachineSays) {
  Machine with_files = racks;
  with_files.memories.push_back({Memory::Kind::file, 1e7});
  EXPECT_EQ(CostModel(with_files).other(Memory::Kind::file, 1e7), 1);
  EXPECT_EQ(CostModel(with_files).other(Memory::Kind::host, 1e8), 1);
  EXPECT_EQ(CostModel(racks).other(Memory::Kind::file, 1e8), 1) << "one that it does not describe";
}

// 64 numbers in and out: a product does many operations for each.
TEST(CostModel, WorkIsAProductWhereItHasManyOperationsForEachElement) {
  const Work sums{.flops = 64, .operands = 64, .results = 64}, products{.flops = 1024, .operands = 64, .results = 64};
  EXPECT_EQ(sums.kind(), WorkKind::elementwise);
  EXPECT_EQ(products.kind(), WorkKind::product);
  EXPECT_DOUBLE_EQ(CostModel(racks).computing(sums), 64 / 5e8);
  EXPECT_DOUBLE_EQ(CostModel(racks).computing(products), 1024 / 1e9);
}

TEST(CostModel, AKernelTakesTheLongerOfComputingAndMoving) {
  const CostModel cost(racks);
  EXPECT_DOUBLE_EQ(cost.kernel({.flops = 2e9, .bytes = 1e9, .results = 1}), 2.5);
  EXPECT_DOUBLE_EQ(cost.kernel({.flops = 1e9, .bytes = 3e9, .results = 1}), 3.5);
  EXPECT_DOUBLE_EQ(cost.memory(5e8), 0.5);
  EXPECT_DOUBLE_EQ(cost.host(5e8), 5);
}

TEST(CostModel, ACollectiveOverBothRacksTakesTheSlowLink) {
  const CostModel cost(racks);
  const auto gather = [&](RankGroup group) { return cost.collective(Collective::Kind::all_gather, group, 1e9); };
  EXPECT_DOUBLE_EQ(gather({4, 0, 3}), 2 + 3);
  EXPECT_DOUBLE_EQ(gather({4, 0, 6}), 20 + 30);
  EXPECT_DOUBLE_EQ(gather({1, 5, 5}), 0);
  EXPECT_DOUBLE_EQ(cost.collective(Collective::Kind::send, {2, 3, 4}, 1e8), 10 + 1);
}

// Two hosts of four: 1e8 bytes a second leave each rank, and a ring of all eight leaves a host by four links.
TEST(CostModel, ARingUsesTheLinksOfAllRanksOfAHost) {
  Machine rings = racks;
  for (Machine::Link& link : rings.links) link.rings = true;
  const CostModel cost(rings);
  const auto sum = [&](RankGroup group) { return cost.collective(Collective::Kind::all_reduce, group, 8e8); };
  EXPECT_DOUBLE_EQ(sum({8, 0, 7}), 2 * 7 * (10 + 1e8 / 4e8));
  EXPECT_DOUBLE_EQ(sum({2, 0, 4}), 2 * (10 + 4e8 / 1e8)) << "one rank of each host";
  EXPECT_DOUBLE_EQ(sum({4, 0, 6}), 2 * 3 * (10 + 2e8 / 2e8)) << "two ranks of each host";
  EXPECT_DOUBLE_EQ(sum({4, 0, 3}), 2 * 3 * (1 + 2e8 / 1e9)) << "a host alone";
  EXPECT_DOUBLE_EQ(cost.collective(Collective::Kind::all_gather, {8, 0, 7}, 1e8), 7 * (10 + 1e8 / 4e8));
  EXPECT_DOUBLE_EQ(cost.collective(Collective::Kind::send, {2, 3, 4}, 1e8), 10 + 1) << "a message has a link";
  rings.links.front().bandwidth = 2e8;
  EXPECT_DOUBLE_EQ(CostModel(rings).collective(Collective::Kind::all_gather, {8, 0, 7}, 1e8), 7 * (10 + 1e8 / 2e8))
      << "no faster than inside a host";
}

TEST(CostModel, SmallProductsDoNotFillADevice) {
  EXPECT_DOUBLE_EQ(CostModel(racks).product(DType::bf16, {100, 100, 20, 2}), 800000 / 4e9);
  Machine tiled = racks;
  tiled.tiles = {.side = 10, .fill = 50, .depth = 10};
  const CostModel cost(tiled);
  EXPECT_DOUBLE_EQ(cost.product(DType::bf16, {100, 100, 20, 1}), 400000 / 4e9 * 1.5 * 1.5);
  EXPECT_DOUBLE_EQ(cost.product(DType::bf16, {100, 95, 20, 1}), 380000 / 4e9 * 1.5 * 1.5) << "a part of a tile";
  EXPECT_LT(cost.product(DType::bf16, {1000, 1000, 200, 1}), 4e8 / 4e9 * 1.1);
}

}  // namespace
}  // namespace epl::cost_model_test
