// What a user may say, read and printed again, and the errors that help.
#include "core/strategy/strategy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/strategy/built.h"
#include "core/strategy/pass.h"
#include "core/strategy/pipeline.h"
#include "core/strategy/scope_layout.h"

namespace epl::strategy_test {
namespace {

TEST(Strategy, ReadsPrintsAndReadsAgain) {
  for (
      const char* json : {
          R"({"default": {"replicate": 1}})",
          R"({"default": {"split": 2}})",
          R"({"default": {"replicate": 2, "scopes": [{"match": "*", "split": 2}]}, "zero.level": "v2"})",
          R"({"pipeline.num_stages": 2, "pipeline.num_micro_batch": 4, "pipeline.strategy": "ZB-V", "gradient_checkpoint.type": "auto"})",
          R"({"pipeline.num_micro_batch": 4, "scopes": [{"name": "stage0", "replicate": 1, "match": ["*/h.0/*", "*/wte/*"]},
               {"name": "stage1", "replicate": 2, "match": "*", "scopes": [{"match": "*/mlp/*", "split": 2}]}]})",
          R"({"scopes": [{"match": "*/experts*", "expert": 4}], "default": {"replicate": 1}})",
          R"({"auto.auto_parallel": true, "memory.budget": "2GiB"})",
      }) {
    auto first = parse_strategy(json);
    ASSERT_TRUE(first.ok()) << json << ": " << first.status().to_string();
    const std::string text = print_strategy(*first);
    auto second = parse_strategy(text);
    ASSERT_TRUE(second.ok()) << text << ": " << second.status().to_string();
    EXPECT_EQ(print_strategy(*second), text) << json;
  }
}

std::string message_of(std::string_view json) {
  auto strategy = parse_strategy(json);
  if (!strategy.ok()) return strategy.status().message();
  if (Status status = check_built(*strategy); !status.ok()) return status.message();
  return lay_out_scopes(*strategy, 2).status().message();
}

TEST(Strategy, NamesTheNearestKeyAndTheRightWords) {
  EXPECT_NE(message_of(R"({"pipeline.num_micro_batchs": 2})").find("pipeline.num_micro_batch"), std::string::npos);
  EXPECT_NE(message_of(R"({"reproducible.level": "layer"})").find("run, data, layout"), std::string::npos);
  EXPECT_NE(message_of(R"({"pipeline.num_micro_batch": "two"})").find("integer"), std::string::npos);
}

TEST(Strategy, WhatIsNotBuiltIsAnErrorWithAllOfIt) {
  const std::string message =
      message_of(R"({"communication.num_communicators": 2, "default": {"expert": 2}, "auto.auto_parallel": true})");
  EXPECT_NE(message.find("communication.num_communicators"), std::string::npos) << message;
  EXPECT_EQ(message.find("auto.auto_parallel"), std::string::npos) << message;
  EXPECT_EQ(message.find("expert"), std::string::npos) << message;
  EXPECT_EQ(message_of(R"({"default": {"replicate": 2}, "pipeline.num_micro_batch": 4})"), "");
}

TEST(Strategy, ADefaultIsNotIgnoredBesideStages) {
  const std::string stages = R"("scopes": [{"replicate": 1, "match": "a"}, {"replicate": 1, "match": "b"}])";
  EXPECT_EQ(message_of(cat("{", stages, "}")), "");
  EXPECT_NE(message_of(cat(R"({"default": {"split": 2}, )", stages, "}"))
                .find("a default of split(2) cannot stand beside stages"),
            std::string::npos);
}

// "name: data 2 split 2 on [0, 1, 2, 3]" for each TaskGraph.
std::vector<std::string> leaves_of(const char* json, int64_t ranks) {
  auto strategy = parse_strategy(json);
  EXPECT_TRUE(strategy.ok()) << strategy.status().to_string();
  auto layout = lay_out_scopes(*strategy, ranks);
  if (!layout.ok()) return {layout.status().message()};
  std::vector<std::string> found;
  for (const ScopeLeaf& leaf : layout->leaves) {
    std::string text = cat(leaf.name, ": data ", leaf.data);
    for (const ScopeRole& role : leaf.roles)
      text += cat(role.kind == ScopeKind::split ? " split " : " expert ", role.degree);
    const auto& on = layout->devices[static_cast<size_t>(leaf.device)].ranks;
    found.push_back(cat(text, " on ", on.front(), "-", on.back()));
  }
  return found;
}

using Texts = std::vector<std::string>;

TEST(Scopes, WhatIsLeftOverIsDataParallelism) {
  EXPECT_EQ(leaves_of("{}", 4), (Texts{"default: data 4 on 0-3"}));
  EXPECT_EQ(leaves_of(R"({"default": {"split": 2}})", 4), (Texts{"default: data 2 split 2 on 0-3"}));
  EXPECT_EQ(leaves_of(R"({"scopes": [{"replicate": 1, "match": "a"}, {"replicate": 1, "match": "b"}]})", 8),
            (Texts{"stage0: data 4 on 0-3", "stage1: data 4 on 4-7"}));
  EXPECT_EQ(leaves_of(R"({"scopes": [{"name": "x", "replicate": 1, "match": "a"}, {"split": 2, "match": "b"}]})", 6),
            (Texts{"x: data 2 on 0-1", "stage1: data 2 split 2 on 2-5"}));
}

TEST(Scopes, InsideScopesDivideOneCopy) {
  EXPECT_EQ(leaves_of(R"({"default": {"replicate": 2, "scopes": [{"match": "*", "split": 2}]}})", 4),
            (Texts{"default.0: data 2 split 2 on 0-3"}));
  EXPECT_EQ(leaves_of(R"({"default": {"split": 4, "scopes": [{"name": "moe", "match": "e*", "expert": 2}]}})", 8),
            (Texts{"moe: data 2 split 2 expert 2 on 0-7", "default: data 2 split 4 on 0-7"}));
  EXPECT_EQ(leaves_of(R"({"scopes": [{"replicate": 1, "match": "a"},
                          {"replicate": 4, "match": "b", "scopes": [{"name": "in", "split": 2, "scopes": [
                            {"name": "deep", "match": "*", "expert": 2}]}]}]})",
                      10),
            (Texts{"stage0: data 2 on 0-1", "deep: data 4 expert 2 on 2-9"}));
  EXPECT_EQ(
      leaves_of(R"({"default": {"replicate": 4, "scopes": [{"split": 2, "match": "a"}, {"split": 2, "match": "b"}]}})",
                8),
      (Texts{"stage0: data 2 split 2 on 0-3", "stage1: data 2 split 2 on 4-7"}));
}

TEST(Scopes, OneScopeAndColocatedOnesShareRanks) {
  EXPECT_EQ(leaves_of(R"({"scopes": [{"name": "e", "match": "x*", "expert": 4}], "default": {"replicate": 1}})", 4),
            (Texts{"e: data 1 expert 4 on 0-3", "default: data 4 on 0-3"}));
  EXPECT_EQ(leaves_of(R"({"cluster.colocate_split_and_replicate": true,
                          "scopes": [{"replicate": 1, "match": "a"}, {"split": 2, "match": "b"}]})",
                      2),
            (Texts{"scope0: data 2 on 0-1", "scope1: data 1 split 2 on 0-1", "default: data 2 on 0-1"}));
}

TEST(Scopes, NumbersThatDoNotDivideAreNamed) {
  EXPECT_EQ(leaves_of(R"({"scopes": [{"name": "x", "split": 3, "match": "a"}, {"replicate": 2, "match": "b"}]})", 8),
            (Texts{"the scopes of the job need x 3 + stage1 2 = 5 ranks for a copy, which do not divide the 8 that "
                   "there are; with cluster.colocate_split_and_replicate they share them"}));
  EXPECT_EQ(leaves_of(R"({"default": {"split": 3}})", 4),
            (Texts{"scope default (split 3): 3 ranks do not divide the 4 of the job"}));
  EXPECT_EQ(leaves_of(R"({"default": {"replicate": 4, "scopes": [{"name": "in", "split": 3, "match": "a"}]}})", 4),
            (Texts{"scope in (split 3): 3 ranks do not divide the 4 of scope default (replicate 4)"}));
}

TEST(Meshes, ShareTheOrderOfTheBatch) {
  auto strategy = parse_strategy(R"({"scopes": [{"name": "a", "replicate": 4, "match": "a"},
                                                {"name": "b", "replicate": 1, "match": "b"}]})");
  auto layout = lay_out_scopes(*strategy, 5);
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  auto meshes = make_meshes(*layout, *find_batch_axes(*layout), 8, {.count = 2});
  ASSERT_TRUE(meshes.ok()) << meshes.status().to_string();
  const Mesh& a = (*meshes)[0].mesh;
  const Mesh& b = (*meshes)[1].mesh;
  const BatchLayout of_a = (*meshes)[0].batch, of_b = (*meshes)[1].batch;
  EXPECT_EQ(of_a.units(a), 8);
  EXPECT_EQ(of_b.units(b), 8);
  EXPECT_EQ(of_a.runs(a), 1);
  EXPECT_EQ(of_b.runs(b), 4) << "micro-batch 0 has units 0, 2, 4 and 6";
  EXPECT_EQ(of_b.units_of_run(b), 1);
  EXPECT_EQ(of_b.run_stride(b), 2);
  EXPECT_EQ(of_b.first_unit(b, b.coordinates(4, 1)), 1);
  EXPECT_EQ(of_a.first_unit(a, a.coordinates(2, 1)), 5);
  EXPECT_EQ(crossing_targets(b, b.coordinates(4), a), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(crossing_targets(a, a.coordinates(0), b), (std::vector<int>{4}));
  EXPECT_TRUE(crossing_targets(a, a.coordinates(3), b).empty());
  EXPECT_EQ(crossing_source(a, b.coordinates(4)), 0);
}

TEST(Passes, AListIsCheckedBeforeItRuns) {
  auto graph = parse_graph("graph g(x: f32[8,4] batch 0) {\n  forward:\n  y: f32[8,4] = relu(x)\n  output y = y\n}\n");
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  const auto shared = std::make_shared<const Graph>(*std::move(graph));
  const auto refused = [&](const char* passes) {
    auto plan = decide({.graph = shared, .passes = passes});
    return plan.ok() ? "" : plan.status().message();
  };
  EXPECT_EQ(refused("place; propagate; schedule"), "");
  EXPECT_NE(refused("palce; propagate").find("did you mean place?"), std::string::npos);
  EXPECT_NE(refused("place(level=v2)").find("pass place has no option \"level\""), std::string::npos);
  EXPECT_NE(refused("place(").find("the parenthesis is not closed"), std::string::npos);
  EXPECT_NE(refused("place; schedule").find("needs place and propagate before it"), std::string::npos);
}

// As of a model that folding has left nothing to compute: what it gives is a constant, or what it was given.
TEST(Passes, TakeAGraphWithoutNodes) {
  auto graph = parse_graph("graph g(x: f32[8,4] batch 0) {\n  forward:\n  output y = x\n}\n");
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  const auto plan = decide({.graph = std::make_shared<const Graph>(*std::move(graph))});
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
}

// A key that is said to run is read somewhere beside its table.
TEST(Strategy, KeysThatAreBuiltHaveAReader) {
  std::string sources;
  for (const auto& file : std::filesystem::recursive_directory_iterator(EPL_SOURCE_DIR "/core")) {
    if (file.path().extension() != ".cc" || file.path().filename() == "strategy.cc") continue;
    std::stringstream text;
    text << std::ifstream(file.path()).rdbuf();
    sources += text.str();
  }
  int built = 0;
  for (const ConfigKey& key : config_keys()) {
    built += key.built;
    EXPECT_EQ(key.built, sources.find('"' + std::string(key.name) + '"') != std::string::npos)
        << key.name << (key.built ? " is said to run and nobody reads it" : " is read and said not to run");
  }
  EXPECT_GT(built, 2);
}

// What has no meaning here may be said as it is done, and is an error with its reason where it asks for something else.
TEST(StrategyKeys, WithoutAMeaningHaveTheirDefault) {
  int settled = 0;
  for (const ConfigKey& key : config_keys()) {
    if (key.settled.empty()) continue;
    ++settled;
    EXPECT_FALSE(key.built) << key.name;
    Strategy same, other;
    same.config.set(key.name, key.value);
    EXPECT_TRUE(check_built(same).ok()) << key.name;
    const bool* flag = std::get_if<bool>(&key.value);
    const int64_t* number = std::get_if<int64_t>(&key.value);
    other.config.set(key.name, flag     ? Attribute(!*flag)
                               : number ? Attribute(*number + 1)
                                        : Attribute(std::string("0,1")));
    const Status refused = check_built(other);
    EXPECT_EQ(refused.code(), Code::unsupported) << key.name;
    for (const std::string& part : {key.name, key.settled})
      EXPECT_NE(refused.message().find(part), std::string::npos) << refused.message();
  }
  EXPECT_EQ(settled, 6);
}

// What may be drawn by those who compare layouts.
TEST(StrategyKeys, SayWhichWordsAreBuilt) {
  const auto key = [](std::string_view name) {
    return *std::ranges::find(config_keys(), name, [](const ConfigKey& one) { return std::string_view(one.name); });
  };
  for (const std::string& word : key("pipeline.strategy").words) {
    const std::vector<std::string> words = built_words(key("pipeline.strategy"));
    EXPECT_EQ(find_pipeline(word) != nullptr, std::ranges::find(words, word) != words.end()) << word;
    Strategy strategy;
    ASSERT_TRUE(set_config(strategy, "pipeline.strategy", word).ok());
    EXPECT_EQ(check_built(strategy).ok(), find_pipeline(word) != nullptr) << word;
  }
  EXPECT_TRUE(built_words(key("communication.compression")).empty()) << "a key that is not built";
  int numeric = 0;
  for (const ConfigKey& one : config_keys()) numeric += !keeps_bits(one);
  EXPECT_EQ(numeric, 16) << "a name in the list of numeric keys is of no key";
  EXPECT_TRUE(keeps_bits(key("pipeline.strategy")));
}

}  // namespace
}  // namespace epl::strategy_test
