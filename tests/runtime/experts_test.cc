// Experts over the ranks that share out the samples: each rank has some experts for the tokens of several ranks, and
// tokens go there and back by exchanges of all ranks. Each token's experts are added up where the token is, so the bits
// are those of one rank at every level.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/runtime/trained.h"

namespace epl::experts_test {
namespace {

// Four experts with weights in one tensor, gates for all of them.
constexpr std::string_view batched = R"(graph mixture(x: f32[8,4,6] batch 0) {
  gate.w: f32[6,4] = param
  w1: f32[4,6,10] = param
  w2: f32[4,10,6] = param
  out.w: f32[24,5] = param
  forward:
  scores: f32[8,4,4] = matmul(x, gate.w)
  gates: f32[8,4,4] = softmax(scores) {axis=2}
  weights: f32[8,4,4,1] = reshape(gates) {shape=[8,4,4,1]}
  alike: f32[8,4,1,6] = reshape(x) {shape=[8,4,1,6]}
  taken: f32[8,4,4,6] = mul(weights, alike)
  by_expert: f32[4,8,4,6] = transpose(taken) {perm=[2,0,1,3]}
  tokens: f32[4,32,6] = reshape(by_expert) {shape=[4,32,6]}
  experts.h: f32[4,32,10] = matmul(tokens, w1)
  experts.a: f32[4,32,10] = relu(experts.h)
  experts.y: f32[4,32,6] = matmul(experts.a, w2)
  apart: f32[4,8,4,6] = reshape(experts.y) {shape=[4,8,4,6]}
  given: f32[1,8,4,6] = sum(apart) {axes=[0]}
  flat: f32[8,24] = reshape(given) {shape=[8,24]}
  y: f32[8,5] = matmul(flat, out.w)
  output y = y
}
)";

// Two experts, each with nodes of its own.
constexpr std::string_view looped = R"(graph mixture(x: f32[8,6] batch 0) {
  gate.w: f32[6,2] = param
  e0.w1: f32[6,16] = param
  e0.w2: f32[16,6] = param
  e1.w1: f32[6,16] = param
  e1.w2: f32[16,6] = param
  out.w: f32[6,5] = param
  forward:
  scores: f32[8,2] = matmul(x, gate.w)
  gates: f32[8,2] = softmax(scores) {axis=1}
  g0: f32[8,1] = slice(gates) {axes=[1], starts=[0], ends=[1], steps=[1]}
  g1: f32[8,1] = slice(gates) {axes=[1], starts=[1], ends=[2], steps=[1]}
  experts.0.h: f32[8,16] = matmul(x, e0.w1)
  experts.0.a: f32[8,16] = relu(experts.0.h)
  experts.0.y: f32[8,6] = matmul(experts.0.a, e0.w2)
  experts.1.h: f32[8,16] = matmul(x, e1.w1)
  experts.1.a: f32[8,16] = relu(experts.1.h)
  experts.1.y: f32[8,6] = matmul(experts.1.a, e1.w2)
  one: f32[8,6] = mul(g0, experts.0.y)
  other: f32[8,6] = mul(g1, experts.1.y)
  both: f32[8,6] = add(one, other)
  y: f32[8,5] = matmul(both, out.w)
  output y = y
}
)";

// Tokens that gather the matrices of their expert, as transformers exports a mixture of experts.
constexpr std::string_view picked = R"(graph mixture(x: f32[8,24] batch 0) {
  in.w: f32[6,6] = param
  gate.w: f32[6,4] = param
  w1: f32[4,16,6] = param
  w2: f32[4,6,16] = param
  out.w: f32[24,5] = param
  forward:
  each: f32[32,6] = reshape(x) {shape=[32,6]}
  tokens: f32[32,6] = matmul(each, in.w)
  scores: f32[32,4] = matmul(tokens, gate.w)
  gates: f32[32,4] = softmax(scores) {axis=1}
  best: f32[32,1], which: i64[32,1] = top_k(gates) {k=1}
  picks: i64[32] = reshape(which) {shape=[32]}
  experts.h: f32[32,16] = picked_linear(tokens, w1, picks) {transpose_w=true}
  experts.a: f32[32,16] = sigmoid(experts.h)
  experts.y: f32[32,6] = picked_linear(experts.a, w2, picks) {transpose_w=true}
  weighted: f32[32,6] = mul(experts.y, best)
  flat: f32[8,24] = reshape(weighted) {shape=[8,24]}
  y: f32[8,5] = matmul(flat, out.w)
  output y = y
}
)";

// Tokens that go to the slots of their expert by index, and come back: an expert has 9, and what finds none names no
// slot.
constexpr std::string_view slotted = R"(graph mixture(x: f32[8,24] batch 0) {
  in.w: f32[6,6] = param
  gate.w: f32[6,4] = param
  w1: f32[4,6,10] = param
  w2: f32[4,10,6] = param
  out.w: f32[24,5] = param
  ends: f32[2] = const f32[2](0,1)
  room: i64[] = const i64[](9)
  none: i64[] = const i64[](36)
  forward:
  each: f32[32,6] = reshape(x) {shape=[32,6]}
  tokens: f32[32,6] = matmul(each, in.w)
  scores: f32[32,4] = matmul(tokens, gate.w)
  gates: f32[32,4] = softmax(scores) {axis=1}
  best: f32[32,1], which: i64[32,1] = top_k(gates) {k=1}
  picks: i64[32] = reshape(which) {shape=[32]}
  mask: f32[32,4] = one_hot(picks, ends) {axis=1, depth=4}
  upto: f32[32,4] = cum_sum(mask) {axis=0}
  before: f32[32,4] = sub(upto, mask)
  own: f32[32,4] = mul(before, mask)
  place: f32[32] = sum(own) {axes=[1], keep=false}
  slot: i64[32] = cast(place) {to=@i64}
  fits: bool[32] = less(slot, room)
  first: i64[32] = mul(picks, room)
  there: i64[32] = add(first, slot)
  slots: i64[32] = where(fits, there, none)
  put: f32[36,6] = put_rows(tokens, slots) {size=36}
  taken: f32[4,9,6] = reshape(put) {shape=[4,9,6]}
  experts.h: f32[4,9,10] = matmul(taken, w1)
  experts.a: f32[4,9,10] = relu(experts.h)
  experts.y: f32[4,9,6] = matmul(experts.a, w2)
  given: f32[36,6] = reshape(experts.y) {shape=[36,6]}
  back: f32[32,6] = take_rows(given, slots)
  weighted: f32[32,6] = mul(back, best)
  flat: f32[8,24] = reshape(weighted) {shape=[8,24]}
  y: f32[8,5] = matmul(flat, out.w)
  output y = y
}
)";

// Experts that choose their tokens, which they get and give back by index.
constexpr std::string_view chosen = R"(graph mixture(x: f32[8,6] batch 0) {
  gate.w: f32[6,4] = param
  w1: f32[4,6,10] = param
  w2: f32[4,10,6] = param
  out.w: f32[6,5] = param
  forward:
  nothing: f32[8,6] = sub(x, x)
  scores: f32[8,4] = matmul(x, gate.w)
  gates: f32[8,4] = softmax(scores) {axis=1}
  by_expert: f32[4,8] = transpose(gates) {perm=[1,0]}
  best: f32[4,3], which: i64[4,3] = top_k(by_expert) {k=3, axis=1}
  taken: f32[4,3,6] = gather(x, which) {axis=0}
  experts.h: f32[4,3,10] = matmul(taken, w1)
  experts.a: f32[4,3,10] = relu(experts.h)
  experts.y: f32[4,3,6] = matmul(experts.a, w2)
  shares: f32[4,3,1] = reshape(best) {shape=[4,3,1]}
  weighted: f32[4,3,6] = mul(experts.y, shares)
  slots: i64[4,3,1] = reshape(which) {shape=[4,3,1]}
  back: f32[8,6] = scatter_nd(nothing, slots, weighted) {reduction="add"}
  y: f32[8,5] = matmul(back, out.w)
  output y = y
}
)";

struct Layout {
  std::string name;
  int64_t ranks = 1, micro_batches = 1;
  std::string scopes;  // of the strategy
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

Result<std::shared_ptr<const CompiledPlan>> plan_of(const Layout& layout, std::string_view model) {
  const std::string keys =
      cat("\"pipeline.num_micro_batch\": ", layout.micro_batches, layout.scopes.empty() ? "" : ", ", layout.scopes);
  return layout_plan(layout_options(GraphModel::parse(model), layout.ranks, cat("{", keys, "}")));
}

Trained trained(const Layout& layout, std::string_view model) {
  const auto plan = plan_of(layout, model);
  return train(plan, layout.name, 20, [&](int step) {
    Tensor x((*plan)->entries().front().inputs[0].global_type), target(TensorType{DType::i64, {8}});
    for (int64_t i = 0; i < x.elements(); ++i) x.set(i, philox_uniform(static_cast<uint64_t>(step), i) - 0.5);
    for (int i = 0; i < 8; ++i) target.set_int(i, i == 2 ? -100 : (i + step) % 5);
    return std::vector<Tensor>{x, target};
  });
}

const std::string of_two = R"("scopes": [{"name": "moe", "match": "experts*", "expert": 2}])",
                  of_four = R"("scopes": [{"name": "moe", "match": "experts*", "expert": 4}])";

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (const int64_t micro_batches : {1, 2}) {
    const auto add = [&](const std::string& name, int64_t ranks, const std::string& scopes) {
      all.push_back({cat(name, "_in_", micro_batches), ranks, micro_batches, scopes});
    };
    add("2_ranks", 2, of_two);
    add("4_ranks", 4, of_four);
    add("2x2_ranks", 4, of_two);
    add("inside_a_stage", 6,
        R"("scopes": [{"name": "first", "match": ["scores", "gates", "weights", "alike", "taken"], "replicate": 1},
           {"name": "second", "match": "*", "replicate": 2, "scopes": [{"match": "experts*", "expert": 2}]}])");
  }
  return all;
}

class Experts : public ::testing::TestWithParam<Layout> {};

TEST_P(Experts, HaveTheBitsOfOneRank) {
  expect_same(trained(GetParam(), batched), trained({.name = "one_rank"}, batched), GetParam().name);
}

const std::string narrow = R"("communication.fp16": true)";

TEST_P(Experts, HaveThemWhereGradientsAreSummedIn16Bits) {
  Layout layout = GetParam();
  layout.scopes += cat(", ", narrow);
  expect_same(trained(layout, batched), trained({.name = "one_rank", .scopes = narrow}, batched), layout.name);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Experts, ::testing::ValuesIn(layouts()),
                         [](const auto& info) { return info.param.name; });

// A kernel that adds up what all rows give to a weight has all units at once: other bits would be an error in silence.
TEST(Experts, OfRowsHaveTheBitsOfGradientsIn16BitsOrAreRefused) {
  const Layout layout{.name = "narrow", .ranks = 2, .scopes = cat(of_two, ", ", narrow)};
  const auto plan = plan_of(layout, picked);
  if (plan.ok()) {
    expect_same(trained(layout, picked), trained({.name = "one_rank", .scopes = narrow}, picked), layout.name);
  } else {
    EXPECT_NE(plan.status().message().find("sums all units at once"), std::string::npos) << plan.status().to_string();
  }
}

// There, back, and the same for the gradients; nothing is gathered. The degree is its own: two groups of ranks have the
// same experts, and add up their gradients alone.
// What lies between the products with their weights needs no name.
TEST(Experts, TokensAreExchanged) {
  const std::string by_weights = R"("scopes": [{"name": "moe", "match": ["param:w1", "param:w2"], "expert": 2}])";
  for (const std::string& scopes : {of_two, by_weights}) {
    const auto made = plan_of({.name = "2x2", .ranks = 4, .scopes = scopes}, batched);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    std::map<std::string, int> moves;
    for (const Node& node : (*made)->entry(EntryKind::train)->locals[0].graph.nodes())
      ++moves[std::string(node.op->name)];
    EXPECT_EQ(moves["all_to_all"], 4) << scopes;
    EXPECT_EQ(moves["all_gather"], 0) << scopes;
  }
  auto plan = plan_of({.name = "2x2", .ranks = 4, .scopes = of_two}, batched);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const Entry& entry = *(*plan)->entry(EntryKind::train);
  ASSERT_EQ(entry.locals.size(), 1u);
  for (const StateSlot& slot : (*plan)->state().slots()) {
    if (slot.name == "w1") {
      EXPECT_EQ(slot.local.shape, (Shape{2, 6, 10}));
    }
    if (slot.name == "out.w") {
      EXPECT_EQ(slot.local.shape, slot.type.shape);
    }
  }
  const Plan read = *parse_plan(print_plan(entry.plan), entry.plan.graph);
  EXPECT_EQ(print_plan(read), print_plan(entry.plan));
}

// Slots that tokens come to by index are no samples: experts are given to ranks. Each rank fills all slots, and takes
// those of its experts; what these answer is gathered, so that tokens add it up in the order of one rank.
TEST(Experts, WhichGetTheirTokensByIndexAreGivenToRanks) {
  for (const Layout& layout :
       {Layout{.name = "4", .ranks = 4, .scopes = of_four}, Layout{.name = "2x2", .ranks = 4, .scopes = of_two}}) {
    auto plan = plan_of(layout, chosen);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const int64_t each = layout.scopes == of_four ? 1 : 2;
    for (const StateSlot& slot : (*plan)->state().slots()) {
      if (slot.name == "w1") {
        EXPECT_EQ(slot.local.shape, (Shape{each, 6, 10}));
      }
    }
    expect_same(trained(layout, chosen), trained({.name = "one_rank"}, chosen), layout.name);
  }
}

// Slots to which tokens go by index are given to ranks with their experts: a token goes to the one rank that has its
// slot, and its answer comes back, as do the gradients of both. What scatters and gathers is in the scope without being
// named. Four experts over eight ranks: two groups have the same ones, and fill the same slots with the tokens of both.
TEST(Experts, WhoseSlotsAreIndexedGetTheirTokensAlone) {
  for (const std::string level : {"data", "layout"}) {
    const std::string key = cat(R"("reproducible.level": ")", level, "\"");
    const Trained alone = trained({.name = "one_rank", .scopes = key}, slotted);
    for (const auto& [experts, ranks] : {std::pair(2, 2), std::pair(4, 4), std::pair(2, 4), std::pair(4, 8)}) {
      const std::string& scopes = experts == 2 ? of_two : of_four;
      const Layout layout{.name = cat(ranks, " ranks, ", scopes), .ranks = ranks, .scopes = cat(scopes, ", ", key)};
      auto plan = plan_of(layout, slotted);
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      using Names = std::vector<std::string>;
      std::map<std::string, int> moves;
      Names gathered;
      const Graph& local = (*plan)->entry(EntryKind::train)->locals[0].graph;
      for (const Node& node : local.nodes()) {
        ++moves[std::string(node.op->name)];
        for (Value v : node.outputs) {
          const bool of_tokens = local.type(v).ndim() == 2 && local.type(v).dim(1) == 6;
          if (node.op->name == "all_gather" && of_tokens) gathered.push_back(local.value(v).name);
        }
      }
      EXPECT_EQ(moves["dispatch_rows"], 2) << layout.name;
      EXPECT_EQ(moves["combine_rows"], 2) << layout.name;
      EXPECT_EQ(gathered, ranks == experts ? Names() : Names{"tokens.gathered"}) << layout.name;
      expect_same(trained(layout, slotted), alone, layout.name);
    }
  }
}

// A pin of the dimension that counts experts changes nothing. One of another dimension cuts each expert.
TEST(Experts, ArePinned) {
  const auto pinned = [&](const std::string& dims) {
    return Layout{
        .name = dims,
        .ranks = 2,
        .scopes = cat(R"("scopes": [{"name": "moe", "match": "experts*", "expert": 2, "dims": {)", dims, "}}]")};
  };
  const Trained alone = trained({.name = "one_rank"}, batched);
  expect_same(trained(pinned(R"("w1": 0, "experts.a": 0)"), batched), alone, "experts");
  const Layout inside = pinned(R"("w1": 2)");
  expect_near(trained(inside, batched), alone, "inside experts", 1e-5, 2e-3);
  auto plan = plan_of(inside, batched);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ((*plan)->state().find("w1")->local.shape, (Shape{4, 6, 5}));
  const auto& notes = (*plan)->entry(EntryKind::train)->plan.notes;
  EXPECT_TRUE(std::ranges::any_of(notes, [](const std::string& note) {
    return note.find("experts cannot be shared out as its dims say") != std::string::npos;
  }));
  plan = plan_of(
      {.name = "loop", .ranks = 2, .scopes = R"("scopes": [{"match": "experts*", "expert": 2, "dims": {"e?.w1": 0}}])"},
      looped);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ((*plan)->state().find("e1.w1")->local.shape, (Shape{3, 16}));
}

std::map<std::string, Shape> local_shapes(const CompiledPlan& plan) {
  std::map<std::string, Shape> local;
  for (const StateSlot& slot : plan.state().slots()) local[slot.name] = slot.local.shape;
  return local;
}

// Rows that gather the weights of their expert go to the rank that has it, and stay there from one product to the next.
// No sum is cut, so the bits are those of one rank at every level.
TEST(Experts, WhoseWeightsArePickedAreGivenToRanks) {
  for (const int64_t micro_batches : {1, 2}) {
    for (const std::string& scopes : {of_two, of_four, cat(of_two, R"(, "reproducible.level": "layout")")}) {
      const Layout layout{.name = cat("picked ", scopes), .ranks = 4, .micro_batches = micro_batches, .scopes = scopes};
      auto plan = plan_of(layout, picked);
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      const int64_t each = scopes == of_four ? 1 : 2;
      std::map<std::string, Shape> local = local_shapes(**plan);
      EXPECT_EQ(local["w1"], (Shape{each, 16, 6}));
      EXPECT_EQ(local["w2"], (Shape{each, 6, 16}));
      EXPECT_EQ(local["gate.w"], (Shape{6, 4}));
      std::map<std::string, int> moves;
      for (const Node& node : (*plan)->entry(EntryKind::train)->locals[0].graph.nodes())
        ++moves[std::string(node.op->name)];
      // Tokens, again for the gradient of the weights, and the gradients of answers; answers, and the gradients of
      // tokens. What is gathered is which rows go to which expert.
      EXPECT_EQ(moves["dispatch_rows"], 3) << scopes;
      EXPECT_EQ(moves["combine_rows"], 2) << scopes;
      EXPECT_EQ(moves["reduce_scatter"], 0) << scopes;
      const Layout alone{
          .name = "one_rank",
          .scopes = scopes == of_two || scopes == of_four ? std::string() : R"("reproducible.level": "layout")"};
      expect_same(trained(layout, picked), trained(alone, picked), layout.name);
    }
  }
}

// A split cuts inside each expert: whatever tokens gather, ranks have as much to do. The shards of both products fit,
// so that one sum brings the tokens' answers together.
TEST(Experts, WhoseWeightsArePickedAreSplit) {
  const Layout layout{.name = "picked", .ranks = 4, .scopes = R"("scopes": [{"match": "experts*", "split": 2}])"};
  auto plan = plan_of(layout, picked);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  std::map<std::string, Shape> local = local_shapes(**plan);
  EXPECT_EQ(local["w1"], (Shape{4, 8, 6}));
  EXPECT_EQ(local["w2"], (Shape{4, 6, 8}));
  EXPECT_EQ(local["gate.w"], (Shape{6, 4}));
  // A rank goes on with the answers to its own tokens, forward and backward; the sums of gradients alone are for all.
  const Entry& entry = *(*plan)->entry(EntryKind::train);
  std::map<std::string, int> moves;
  for (const Node& node : entry.locals[0].graph.nodes()) ++moves[std::string(node.op->name)];
  EXPECT_EQ(moves["reduce_scatter"], 2);
  expect_near(trained(layout, picked), trained({.name = "one_rank"}, picked), layout.name, 1e-5, 1e-4);
}

}  // namespace
}  // namespace epl::experts_test
