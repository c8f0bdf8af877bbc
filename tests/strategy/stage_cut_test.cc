// Where found stages begin: as the machine's seconds say.
#include "core/strategy/stage_cut.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace epl::stage_cut_test {
namespace {

// A product with many operations, and a row of nodes that read and write as much as it does.
constexpr std::string_view text = R"(graph g(x: f32[512,512] batch 0) {
  w: f32[512,512] = param
  forward:
  p: f32[512,512] = matmul(x, w)
  a: f32[512,512] = relu(p)
  b: f32[512,512] = relu(a)
  c: f32[512,512] = relu(b)
  d: f32[512,512] = relu(c)
  e: f32[512,512] = relu(d)
  output e = e
}
)";

int nodes_of_first_stage(const Machine& machine) {
  const auto graph = parse_graph(text);
  EPL_CHECK(graph.ok(), graph.status().to_string());
  const auto cut = cut_stages(*graph, {.stages = 2, .ranks = 2}, CostModel(machine), nullptr);
  EPL_CHECK(cut.ok(), cut.status().to_string());
  int nodes = 0;
  for (const NodeId n : graph->node_ids()) nodes += cut->node_stage[n] == 0;
  return nodes;
}

TEST(FoundStages, HaveTheSameSecondsOfTheMachine) {
  Machine computes = processor_core(), computes_at_once = processor_core();
  for (Machine::Rate& rate : computes.rates) {
    if (rate.kind == WorkKind::product) rate.per_second = 3e11;  // 0.9 ms, and a row of five nodes as long
  }
  for (Machine::Rate& rate : computes_at_once.rates) rate.per_second *= 1e6;
  EXPECT_EQ(nodes_of_first_stage(computes), 1) << "the product takes as long as all the rest";
  EXPECT_EQ(nodes_of_first_stage(computes_at_once), 3) << "each node moves about as many bytes";
}

// A narrow place is worth some imbalance where sending takes long.
TEST(FoundStages, CountWhatIsSent) {
  constexpr std::string_view narrow = R"(graph g(x: f32[512,256] batch 0) {
  w: f32[256,4] = param
  v: f32[4,256] = param
  forward:
  a: f32[512,256] = relu(x)
  n: f32[512,4] = matmul(a, w)
  c: f32[512,256] = matmul(n, v)
  d: f32[512,256] = relu(c)
  e: f32[512,256] = relu(d)
  f: f32[512,256] = relu(e)
  output f = f
}
)";
  const auto graph = parse_graph(narrow);
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  const auto begins = [&](double bandwidth) {
    Machine machine = processor_core();
    machine.links.front().bandwidth = bandwidth;
    const auto cut = cut_stages(*graph, {.stages = 2, .ranks = 2}, CostModel(machine), nullptr);
    EPL_CHECK(cut.ok(), cut.status().to_string());
    for (const NodeId n : graph->node_ids()) {
      if (cut->node_stage[n] == 1) return graph->node(n).name;
    }
    return std::string();
  };
  EXPECT_EQ(begins(1e7), "c");
  EXPECT_NE(begins(1e15), "c");
}

}  // namespace
}  // namespace epl::stage_cut_test
