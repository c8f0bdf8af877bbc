// Experts that are nodes of their own, as a loop over them is exported: each lies on a rank uncut, and no sum of it is
// cut. So the bits are those of one rank at every level, also where ranks do not divide experts.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/runtime/trained.h"
#include "tests/temporary_folder.h"
#include "tests/thirds.h"

namespace epl::looped_experts_test {
namespace {

struct Mixture {
  int experts = 3, layers = 1;
  std::vector<int> hidden = {};  // by expert; none: 10 for each
  bool drops = false;            // there is a dropout in each expert
};

// Tokens go to the best two of the experts, whose answers are added up one by one.
std::string text_of(const Mixture& m) {
  std::string leaves, nodes;
  const auto leaf = [&](const std::string& name, const std::string& shape) {
    leaves += cat("  ", name, ": f32", shape, " = param\n");
  };
  const auto node = [&](const std::string& name, const std::string& type, const std::string& call) {
    nodes += cat("  ", name, ": ", type, " = ", call, "\n");
  };
  const std::string tokens = "f32[8,3,6]", gates = cat("f32[8,3,", m.experts, "]"), one = "f32[8,3,1]";
  leaf("in.w", "[6,6]");
  node("h0", tokens, "matmul(x, in.w)");
  for (int l = 0; l < m.layers; ++l) {
    const std::string at = cat("l", l, "."), in = cat("h", l);
    leaf(cat(at, "gate.w"), cat("[6,", m.experts, "]"));
    node(cat(at, "scores"), gates, cat("matmul(", in, ", ", at, "gate.w)"));
    node(cat(at, "gates"), gates, cat("softmax(", at, "scores) {axis=2}"));
    nodes += cat("  ", at, "best: f32[8,3,2], ", at, "which: i64[8,3,2] = top_k(", at, "gates) {k=2, axis=2}\n");
    node(cat(at, "least"), one, cat("slice(", at, "best) {axes=[2], starts=[1], ends=[2], steps=[1]}"));
    node(cat(at, "lost"), cat("bool[8,3,", m.experts, "]"), cat("less(", at, "gates, ", at, "least)"));
    node(cat(at, "kept"), gates, cat("where(", at, "lost, nothing, ", at, "gates)"));
    std::string sum = in;
    for (int e = 0; e < m.experts; ++e) {
      const std::string own = cat(at, "experts.", e, ".");
      const int width = m.hidden.empty() ? 10 : m.hidden[static_cast<size_t>(e)];
      const std::string hidden = cat("f32[8,3,", width, "]");
      leaf(cat(own, "w1"), cat("[6,", width, "]"));
      leaf(cat(own, "b1"), cat("[", width, "]"));
      leaf(cat(own, "w2"), cat("[", width, ",6]"));
      leaf(cat(own, "w3"), cat("[6,", width, "]"));
      node(cat(own, "up"), hidden, cat("matmul(", in, ", ", own, "w1)"));
      node(cat(own, "moved"), hidden, cat("add(", own, "up, ", own, "b1)"));
      node(cat(own, "open"), hidden, cat("sigmoid(", own, "moved)"));
      node(cat(own, "beside"), hidden, cat("matmul(", in, ", ", own, "w3)"));
      node(cat(own, "both"), hidden, cat("mul(", own, "open, ", own, "beside)"));
      std::string last = cat(own, "both");
      if (m.drops) {
        nodes += cat("  ", own, "dropped: ", hidden, ", ", own, "mask: bool[8,3,", width, "] = dropout(", last,
                     ") {ratio=0.5}\n");
        last = cat(own, "dropped");
      }
      node(cat(own, "y"), tokens, cat("matmul(", last, ", ", own, "w2)"));
      node(cat(at, "share.", e), one,
           cat("slice(", at, "kept) {axes=[2], starts=[", e, "], ends=[", e + 1, "], steps=[1]}"));
      node(cat(at, "weighted.", e), tokens, cat("mul(", at, "share.", e, ", ", own, "y)"));
      node(cat(at, "sum.", e), tokens, cat("add(", sum, ", ", at, "weighted.", e, ")"));
      sum = cat(at, "sum.", e);
    }
    node(cat("h", l + 1), tokens, cat("tanh(", sum, ")"));
  }
  leaf("out.w", "[18,5]");
  node("flat", "f32[8,18]", cat("reshape(h", m.layers, ") {shape=[8,18]}"));
  node("y", "f32[8,5]", "matmul(flat, out.w)");
  return cat("graph mixture(x: f32[8,3,6] batch 0) {\n", leaves, "  nothing: f32[] = const f32[](0)\n  forward:\n",
             nodes, "  output y = y\n}\n");
}

struct Layout {
  std::string name;
  int64_t ranks = 1;
  std::string keys = {};  // of the strategy
  std::string optimizer = "adamw";
  bool states_in_bf16 = false;
};

Result<std::shared_ptr<const CompiledPlan>> plan_of(const Mixture& model, const Layout& layout) {
  auto options = layout_options(GraphModel::parse(text_of(model)), layout.ranks, cat("{", layout.keys, "}"));
  if (options.ok()) options->train.optimizer = layout.optimizer;
  if (options.ok() && layout.states_in_bf16) options->train.optimizer_options.set("state_type", std::string("bf16"));
  if (options.ok() && layout.optimizer == "adagrad") options->train.optimizer_options = {{"lr", 0.01}, {"eps", 0.0}};
  return layout_plan(options);
}

std::vector<Tensor> batch_of(int step) {
  Tensor x(TensorType{DType::f32, {8, 3, 6}}), target(TensorType{DType::i64, {8}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, philox_uniform(static_cast<uint64_t>(step), i) - 0.5);
  for (int i = 0; i < 8; ++i) target.set_int(i, i == 2 ? -100 : (i + step) % 5);
  return {x, target};
}

Trained trained(const Mixture& model, const Layout& layout) {
  return train(plan_of(model, layout), layout.name, 6, batch_of);
}

// By names of nodes, or of weights: what lies between is in the scope as well.
std::string over(int64_t ranks, const std::string& match = R"("*experts*")") {
  return cat(R"("scopes": [{"name": "moe", "match": )", match, R"(, "expert": )", ranks, "}]");
}

int64_t count(const Graph& graph, std::string_view op) {
  return std::ranges::count_if(graph.nodes(), [&](const Node& node) { return node.op->name == op; });
}

int64_t gathered_tokens(const Graph& graph) {
  return std::ranges::count_if(graph.nodes(), [&](const Node& node) {
    return node.op->name == "all_gather" &&
           std::ranges::any_of(node.outputs, [&](Value v) { return graph.type(v).ndim() == 3; });
  });
}

std::string notes_of(const CompiledPlan& plan) { return join(plan.entry(EntryKind::train)->plan.notes, "\n"); }

TEST(LoopedExperts, HaveTheBitsOfOneRank) {
  EPL_ONE_OF_THREE();
  for (const std::string level : {"data", "layout"}) {
    const std::string key = cat(R"("reproducible.level": ")", level, "\"");
    for (const Mixture& model : {Mixture{.experts = 4}, Mixture{.experts = 3}}) {
      const Trained alone = trained(model, {"one rank", 1, key});
      for (const auto& [ranks, experts] : {std::pair(2, 2), std::pair(4, 2), std::pair(4, 4), std::pair(8, 4)}) {
        for (const int micro_batches : {1, 2}) {
          const Layout layout{cat(model.experts, " experts over ", experts, " of ", ranks, " in ", micro_batches),
                              ranks, cat(key, R"(, "pipeline.num_micro_batch": )", micro_batches, ", ", over(experts))};
          expect_same(trained(model, layout), alone, layout.name);
        }
      }
    }
  }
}

// Each expert's states are rounded as on one rank, where all experts are.
TEST(LoopedExperts, RoundTheirStatesAsOneRank) {
  for (const int experts : {4, 3}) {
    const Trained alone = trained({.experts = experts}, {"one rank", 1, "", "adamw", true});
    for (const auto& [ranks, over_ranks] : {std::pair(2, 2), std::pair(4, 4)}) {
      const Layout layout{cat(experts, " experts over ", over_ranks), ranks, over(over_ranks), "adamw", true};
      expect_same(trained({.experts = experts}, layout), alone, layout.name);
    }
  }
}

// Layers stand one behind the other; stages have experts of their own, and what they give goes to other ranks.
TEST(LoopedExperts, OfSeveralLayersAndStages) {
  const Mixture model{.experts = 3, .layers = 2};
  const Trained alone = trained(model, {"one rank"});
  const Layout beside{"two layers", 4, over(2)};
  expect_same(trained(model, beside), alone, beside.name);
  for (const std::string schedule : {"GPipe", "1F1B", "ZB-H1"}) {
    const Layout stages{schedule, 4,
                        cat(R"("pipeline.num_micro_batch": 2, "pipeline.strategy": ")", schedule, R"(", "scopes": [
          {"name": "first", "match": ["h0", "l0.*"], "replicate": 2, "scopes": [{"match": "*experts*", "expert": 2}]},
          {"name": "second", "match": "*", "replicate": 2, "scopes": [{"match": "*experts*", "expert": 2}]}])")};
    expect_same(trained(model, stages), alone, schedule);
  }
  // The last expert's answer goes to the next stage as it is.
  const Layout cut{"cut behind an expert", 3, R"("scopes": [
      {"name": "first", "match": ["h0", "l0.experts*"], "replicate": 2, "scopes": [{"match": "*", "expert": 2}]},
      {"name": "second", "match": "*", "replicate": 1}])"};
  expect_same(trained({.experts = 3}, cut), trained({.experts = 3}, {"one rank"}), cut.name);
}

// Each rank has the weights of its experts, and what the optimizer keeps of them, and works for no other.
TEST(LoopedExperts, AreOnTheirRanksAlone) {
  const Mixture model{.experts = 4};
  const auto alone = plan_of(model, {"one rank"});
  ASSERT_TRUE(alone.ok()) << alone.status().to_string();
  int64_t of_experts = 0;
  for (const StateSlot& slot : (*alone)->state().slots())
    of_experts += slot.name.find("experts") != std::string::npos ? slot.local.bytes() : 0;
  for (const std::string match : {R"("*experts*")", R"("param:*experts*")"}) {
    for (const int64_t ranks : {2, 4}) {
      const auto plan = plan_of(model, {match, 4, over(ranks, match)});
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      std::map<int64_t, int64_t> bytes;  // of experts, by where they lie
      for (const StateSlot& slot : (*plan)->state_of(0).slots()) {
        const RankLocal& rank_local = slot.sharding.rank_local;
        ASSERT_EQ(static_cast<bool>(rank_local), slot.name.find("experts") != std::string::npos) << slot.name;
        EXPECT_EQ(slot.local, slot.type) << slot.name;
        if (!rank_local) continue;
        EXPECT_EQ(rank_local.shard, (slot.name[11] - '0') * ranks / 4) << slot.name;
        if (!slot.is_represented()) bytes[slot.offset] = slot.local.bytes();
      }
      int64_t each = 0;
      for (const auto& [offset, size] : bytes) each += size;
      EXPECT_EQ(each, of_experts / ranks);
      const Graph& local = (*plan)->entry(EntryKind::train)->locals[0].graph;
      EXPECT_EQ(count(local, "sigmoid"), 4 / ranks);
      // A rank gets what experts take, and they are given what it answers; tokens come to all experts, each time once.
      EXPECT_EQ(gathered_tokens(local), 2) << "forward and backward";
      EXPECT_GT(count(local, "all_to_all"), 0);
      const std::string notes = notes_of(**plan);
      EXPECT_NE(notes.find(ranks == 2 ? "ranks 0, 2 have l0.experts.0, l0.experts.1; ranks 1, 3 have l0.experts.2"
                                      : "rank 0 has l0.experts.0; rank 1 has l0.experts.1"),
                std::string::npos)
          << notes;
    }
  }
}

// Groups of ranks that have the same experts share out their updates as those of all other weights.
TEST(LoopedExperts, HaveCopiesThatShareOutTheirUpdate) {
  EPL_ONE_OF_THREE();
  const Layout every{"v0", 8, cat(R"("zero.level": "v0", "pipeline.num_micro_batch": 2, )", over(2))};
  const Mixture three{.experts = 3, .hidden = {12, 12, 12}}, large{.experts = 2, .hidden = {2736, 2736}};
  expect_same(trained(three, every), trained(three, {"one rank"}), every.name);
  const auto plan = plan_of(three, every);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const StateSlot& slot = *(*plan)->state().find("l0.experts.2.w2.mean");
  EXPECT_EQ(slot.sharding.rank_local.shard, 1);
  EXPECT_LT(slot.local.bytes(), slot.type.bytes());
  const Layout alone_by_time{"auto", 4, over(2)};  // of weights that are large
  expect_same(trained(large, alone_by_time), trained(large, {"one rank"}), alone_by_time.name);
}

TEST(LoopedExperts, NeedNotDivide) {
  const auto plan = plan_of({.experts = 3}, {"two of three", 2, over(2)});
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_NE(notes_of(**plan).find("rank 0 has l0.experts.0, l0.experts.1; rank 1 has l0.experts.2"), std::string::npos)
      << notes_of(**plan);
  // Of adagrad without an epsilon, a weight whose gradient is zero becomes NaN: what a rank runs for nothing, with
  // weights of zeros, must stop no step.
  for (const Mixture& model : {Mixture{.experts = 3}, Mixture{.experts = 2}}) {
    const Layout layout{"for nothing", 4, over(model.experts == 3 ? 2 : 4), "adagrad"};
    expect_same(trained(model, layout), trained(model, {"one rank", 1, "", "adagrad"}), layout.name);
  }
}

TEST(LoopedExperts, AreSavedAndLoadedUnderOtherLayouts) {
  const Mixture model{.experts = 3};
  const std::vector<Layout> layouts = {
      {"one rank"}, {"over two", 2, over(2)}, {"over four", 4, over(4)}, {"two groups", 4, over(2)}, {"copies", 2}};
  for (const Layout& from : layouts) {
    const TemporaryFolder temporary;
    const std::string folder = temporary / "saved";
    const auto session = Session::create(test_host(2), *plan_of(model, from), {.seed = 7});
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    StepMetrics metrics;
    ASSERT_TRUE((*session)->step(batch_of(0), metrics).ok());
    const Status saved = save_session(**session, folder);
    ASSERT_TRUE(saved.ok()) << saved.to_string();
    for (const Layout& to : layouts) {
      const auto other = Session::create(test_host(2), *plan_of(model, to), {.seed = 1});
      ASSERT_TRUE(other.ok()) << other.status().to_string();
      const Status loaded = load_session(**other, folder);
      ASSERT_TRUE(loaded.ok()) << from.name << " as " << to.name << ": " << loaded.to_string();
      EXPECT_EQ(*(*other)->state().hash(), *(*session)->state().hash()) << from.name << " as " << to.name;
      for (const StateSlot& slot : (*session)->plan().state().slots()) {
        EXPECT_TRUE(identical(*(*other)->state().get(slot.name), *(*session)->state().get(slot.name)));
        EXPECT_TRUE(identical(*(*other)->state().view(slot.name), *(*session)->state().get(slot.name))) << slot.name;
      }
    }
  }
}

TEST(LoopedExperts, ArePartOfAllTextForms) {
  const auto made = plan_of({.experts = 3}, {"two", 4, over(2)});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  for (const Entry& entry : (*made)->entries()) {
    const std::string plan = print_plan(entry.plan);
    const auto read = parse_plan(plan, entry.plan.graph);
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    EXPECT_EQ(print_plan(*read), plan);
    EXPECT_NE(plan.find(" rank_local 1 of data2 like l0.experts.0.w1"), std::string::npos) << plan;
    const std::string local = print_local(entry.locals[0]);
    const auto local_read = parse_local(local);
    ASSERT_TRUE(local_read.ok()) << local_read.status().to_string();
    EXPECT_EQ(print_local(*local_read), local);
    const std::string program = print_program(entry.programs[0]);
    EXPECT_NE(program.find(" rank_local 1 of data2 like l0.experts.0.w1"), std::string::npos) << program;
  }
}

// A scope that has the gate and all else as well: experts are found by the numbers in the names of their weights.
TEST(LoopedExperts, AreFoundByNamesInAScopeOfMore) {
  for (const Mixture& model : {Mixture{.experts = 3}, Mixture{.experts = 4, .layers = 2}}) {
    const Trained alone = trained(model, {"one rank"});
    for (const std::string scope : {R"("default": {"expert": 2})", R"("scopes": [{"match": "l*", "expert": 2}])"}) {
      const Layout layout{scope, 4, scope};
      const auto plan = plan_of(model, layout);
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      EXPECT_NE(notes_of(**plan).find(" have l0.experts.0, l0.experts.1; "), std::string::npos) << notes_of(**plan);
      EXPECT_EQ(notes_of(**plan).find("cut over"), std::string::npos) << notes_of(**plan);
      expect_same(trained(model, layout), alone, scope);
    }
  }
}

// Those that are not alike, or draw random numbers, are cut over the ranks, each of them.
TEST(LoopedExperts, ThatAreNotAlikeAreCutOverTheRanks) {
  const auto unlike = plan_of({.experts = 2, .hidden = {10, 12}}, {"unlike", 2, over(2)});
  ASSERT_TRUE(unlike.ok()) << unlike.status().to_string();
  EXPECT_NE(notes_of(**unlike).find("no two subgraphs of it are alike"), std::string::npos) << notes_of(**unlike);
  EXPECT_EQ((*unlike)->state().find("l0.experts.1.w1")->local.shape, (Shape{6, 6}));
  const auto drops = plan_of({.experts = 2, .drops = true}, {"drops", 2, over(2)});
  ASSERT_TRUE(drops.ok()) << drops.status().to_string();
  EXPECT_NE(notes_of(**drops).find("draws random numbers"), std::string::npos) << notes_of(**drops);
  EXPECT_EQ((*drops)->state().find("l0.experts.1.w1")->local.shape, (Shape{6, 5}));
  // Weights that other nodes use are nobody's expert, whatever their names.
  const auto elsewhere = plan_of({.experts = 2}, {"elsewhere", 2, over(2, R"("flat")")});
  ASSERT_TRUE(elsewhere.ok()) << elsewhere.status().to_string();
  EXPECT_NE(notes_of(**elsewhere).find("no two subgraphs of it are alike"), std::string::npos) << notes_of(**elsewhere);
  // Two of three are alike.
  const Mixture model{.experts = 3, .hidden = {10, 12, 10}};
  const Layout layout{"two of three", 2, over(2)};
  const auto some = plan_of(model, layout);
  ASSERT_TRUE(some.ok()) << some.status().to_string();
  EXPECT_NE(notes_of(**some).find("rank 0 has l0.experts.0; rank 1 has l0.experts.2"), std::string::npos)
      << notes_of(**some);
  EXPECT_NE(notes_of(**some).find("each rank has all of what is no such expert's: l0.experts.1.w1"), std::string::npos)
      << notes_of(**some);
  expect_same(trained(model, layout), trained(model, {"one rank"}), layout.name);
}

}  // namespace
}  // namespace epl::looped_experts_test
