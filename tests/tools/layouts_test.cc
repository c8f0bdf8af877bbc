// Layouts are drawn from a seed within what a batch allows, become strategies, and get simpler one thing at a time.
#include "tools/layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace epl::tools::layouts_test {
namespace {

Json key(const char* name, Json fallback, std::vector<std::string> words, bool built = true, bool keeps_bits = true) {
  return {{"name", name},   {"default", std::move(fallback)}, {"words", words}, {"built_words", words},
          {"built", built}, {"keeps_bits", keeps_bits},       {"doc", ""}};
}

Json keys(bool num_stages) {
  return {key("pipeline.num_stages", 1, {}, num_stages),
          key("pipeline.num_micro_batch", 1, {}),
          key("pipeline.strategy", "GPipe", {"GPipe", "1F1B"}),
          key("reproducible.level", "data", {"run", "data"}, true, false),
          key("reproducible.units", 0, {}, true, false),
          key("zero.level", "", {"", "v0"}),
          key("amp.level", "", {"", "O1"}, true, false),
          key("cluster.run_visible_devices", "", {"", "v0"}, false)};
}

TEST(Layouts, AreDrawnWithinTheUnitsAndTheRanks) {
  const LayoutSource source(keys(false));
  Draws draws(3);
  std::set<std::string> drawn;
  std::set<int64_t> ranks, stages, splits;
  for (int i = 0; i < 500; ++i) {
    const int64_t units = int64_t{1} << (i % 4);
    const Layout one = source.draw(draws, units);
    EXPECT_LE(one.ranks(), 8);
    EXPECT_EQ(units % (one.copies * one.micro_batches), 0);
    EXPECT_FALSE(one.engine_cuts);
    for (const auto& [name, value] : one.keys) drawn.insert(name);
    ranks.insert(one.ranks());
    stages.insert(one.stages());
    splits.insert(one.split);
  }
  EXPECT_EQ(drawn, (std::set<std::string>{"pipeline.strategy", "zero.level"})) << "what is built and keeps the bits";
  EXPECT_EQ(stages, (std::set<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(splits, (std::set<int64_t>{1, 2, 4}));
  EXPECT_TRUE(ranks.contains(1) && ranks.contains(3) && ranks.contains(8));
  EXPECT_EQ(source.levels(), std::vector<std::string>{"data"});
}

TEST(Layouts, DependOnTheSeedAlone) {
  const LayoutSource source(keys(true));
  Draws a(7), b(7), c(8);
  bool other = false, engine = false;
  for (int i = 0; i < 50; ++i) {
    const Layout one = source.draw(a, 8);
    EXPECT_EQ(one, source.draw(b, 8));
    other = other || !(one == source.draw(c, 8));
    engine = engine || one.engine_cuts;
  }
  EXPECT_TRUE(other);
  EXPECT_TRUE(engine) << "stages that the engine finds, once it can";
}

TEST(Layouts, AreStrategies) {
  const std::vector<std::string> nodes = {"a", "b", "c", "d"};
  Layout one;
  EXPECT_EQ(print_json(strategy_of(one, {}, nodes)), "{}");
  one.split = 2;
  one.micro_batches = 4;
  EXPECT_EQ(print_json(strategy_of(one, {.units = 8}, nodes)),
            R"({"pipeline.num_micro_batch":4,"reproducible.units":8,"default":{"split":2}})");
  one = {.cuts = {250, 250}, .keys = {{"pipeline.strategy", "1F1B"}}};
  EXPECT_EQ(one.ranks(), 3);
  EXPECT_EQ(print_json(strategy_of(one, {}, nodes)),
            R"({"pipeline.strategy":"1F1B","scopes":[{"name":"stage0","replicate":1,"match":["a"]},)"
            R"({"name":"stage1","replicate":1,"match":["b"]},{"name":"stage2","replicate":1,"match":["c","d"]}]})");
  const std::vector<std::string> parts = {"a", "bn", "bn_1", "bn_2", "c"};  // of one node of the model
  EXPECT_EQ(strategy_of({.cuts = even_cuts(2)}, {}, parts)["scopes"][0]["match"], Json({"a", "bn", "bn_1", "bn_2"}));
  EXPECT_EQ(strategy_of({.cuts = even_cuts(2)}, {}, {"bn", "bn_1"})["scopes"][0]["match"], Json({"bn"}));
  one = {.split = 2, .cuts = even_cuts(2), .engine_cuts = true};
  EXPECT_EQ(print_json(strategy_of(one, {}, nodes)), R"({"pipeline.num_stages":2,"default":{"split":2}})");
}

TEST(Layouts, SayWhatIsKeptAndWhatIsNarrow) {
  const std::vector<std::string> nodes = {"a", "b", "c", "d"};
  EXPECT_EQ(print_json(strategy_of({.kept = {0, 750}}, {.narrow = "f16"}, nodes)),
            R"({"amp.level":"O1","amp.type":"f16","gradient_checkpoint.type":"collection",)"
            R"("gradient_checkpoint.tensors":"a, d"})");
  std::set<std::string> values;
  std::set<size_t> kept;
  const LayoutSource source({key("offload.level", "", {"", "v0"}), key("pipeline.num_stages", 1, {}),
                             key("gradient_checkpoint.type", "", {"", "collection", "budget"}),
                             key("pipeline.strategy", "GPipe", {"GPipe"})});
  Draws draws(3);
  for (int i = 0; i < 500; ++i) {
    const Layout one = source.draw(draws, 8);
    if (one.keys.contains("offload.values")) values.insert(one.keys.at("offload.values").get<std::string>());
    kept.insert(one.kept.size());
  }
  EXPECT_GE(values.size(), 10u);
  EXPECT_EQ(kept, (std::set<size_t>{0, 1, 2, 3, 4}));
}

// Plans that are found are found for a machine, now and then one that is drawn.
TEST(Layouts, HaveAMachineWherePlansAreFound) {
  Json all = keys(true);
  all.push_back(key("auto.auto_parallel", false, {}));
  const LayoutSource source(all);
  Draws draws(5);
  int found = 0, machines = 0, hosts = 0, kinds = 0;
  for (int i = 0; i < 500; ++i) {
    const Layout one = source.draw(draws, 8);
    const auto key = one.keys.find("auto.auto_parallel");
    const bool finds = key != one.keys.end() && key->second == Json(true);
    found += finds ? 1 : 0;
    if (one.machine.is_null()) continue;
    EXPECT_TRUE(finds);
    ++machines;
    hosts += one.machine.at("links").size() == 2 ? 1 : 0;
    kinds += one.machine.contains("kinds") ? 1 : 0;
    const std::vector<Layout> less = simpler(one);
    EXPECT_TRUE(std::ranges::any_of(less, [&](const Layout& other) {
      return other.machine.is_null() && other.keys == one.keys && other.copies == one.copies;
    }));
  }
  EXPECT_GT(machines, 10);
  EXPECT_LT(machines, found);
  EXPECT_TRUE(hosts > 0 && hosts < machines);
  EXPECT_TRUE(kinds > 0 && kinds < machines);
}

// An option stands alone and beside each strategy that says nothing of its keys.
TEST(Layouts, StandBesideOptions) {
  const auto rows = parse_strategies(R"([{"name": "2 copies", "ranks": 2},
    {"name": "2 copies, zero v1", "ranks": 2, "strategy": {"zero.level": "v1"}}])",
                                     "list");
  const auto all = with_options(rows, R"([{"name": "zero v0", "strategy": {"zero.level": "v0"}},
    {"name": "narrow", "optimizer": {"state_type": "bf16"}}, {"name": "budget", "budget": 0.5}])",
                                "options");
  std::vector<std::string> names;
  for (const StrategyRow& row : all) names.push_back(row.name);
  EXPECT_EQ(names, (std::vector<std::string>{"zero v0", "zero v0, 2 copies", "narrow", "narrow, 2 copies",
                                             "narrow, 2 copies, zero v1", "budget", "budget, 2 copies",
                                             "budget, 2 copies, zero v1"}));
  EXPECT_EQ(all[1].layout.ranks(), 2);
  EXPECT_EQ(all[1].layout.keys.at("zero.level"), "v0");
  EXPECT_EQ(all[4].optimizer, std::vector<std::string>{"state_type=bf16"});
  EXPECT_EQ(all[7].budget, 0.5);
  EXPECT_THROW(with_options(rows, "{}", "options"), UsageError);
}

// From any layout the steps lead to the plain one, and each takes something away.
TEST(Layouts, GetSimpler) {
  Layout one = {
      .copies = 2, .split = 2, .micro_batches = 4, .threads = 2, .cuts = {300}, .keys = {{"zero.level", "v0"}}};
  for (const Layout& less : simpler(one)) {
    EXPECT_LE(less.ranks(), one.ranks());
    EXPECT_LE(less.micro_batches, one.micro_batches);
    EXPECT_FALSE(less == one);
  }
  int steps = 0;
  for (std::vector<Layout> all = simpler(one); !all.empty(); all = simpler(one)) {
    one = all.back();
    ASSERT_LT(++steps, 20);
  }
  EXPECT_EQ(one, Layout());
}

}  // namespace
}  // namespace epl::tools::layouts_test
