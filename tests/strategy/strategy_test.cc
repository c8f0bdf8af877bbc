// What a user may say, read and printed again, and the errors that help.
#include "core/strategy/strategy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/strategy/built.h"
#include "core/strategy/documentation.h"
#include "core/strategy/pass.h"
#include "core/strategy/pipeline.h"

namespace epl {
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
  return strategy.ok() ? check_built(*strategy, 2).message() : strategy.status().message();
}

TEST(Strategy, NamesTheNearestKeyAndTheRightWords) {
  EXPECT_NE(message_of(R"({"pipeline.num_micro_batchs": 2})").find("pipeline.num_micro_batch"), std::string::npos);
  EXPECT_NE(message_of(R"({"reproducible.level": "layer"})").find("run, data, layout"), std::string::npos);
  EXPECT_NE(message_of(R"({"pipeline.num_micro_batch": "two"})").find("integer"), std::string::npos);
}

TEST(Strategy, WhatIsNotBuiltIsAnErrorWithAllOfIt) {
  const std::string message =
      message_of(R"({"zero.level": "v1", "default": {"expert": 2}, "auto.auto_parallel": true})");
  for (const char* part : {"zero.level", "expert", "auto.auto_parallel"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
  EXPECT_EQ(message_of(R"({"default": {"replicate": 2}, "pipeline.num_micro_batch": 4})"), "");
}

TEST(Strategy, ADefaultIsNotIgnoredBesideStages) {
  const std::string stages = R"("scopes": [{"replicate": 1, "match": "a"}, {"replicate": 1, "match": "b"}])";
  EXPECT_EQ(message_of(cat("{", stages, "}")), "");
  EXPECT_NE(message_of(cat(R"({"default": {"split": 2}, )", stages, "}")).find("default: split(2)"), std::string::npos);
}

TEST(Passes, AListIsCheckedBeforeItRuns) {
  auto graph = parse_graph("graph g(x: f32[8,4] batch 0) {\n  forward:\n  y: f32[8,4] = relu(x)\n  output y = y\n}\n");
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  const auto shared = std::make_shared<const Graph>(*std::move(graph));
  const auto refused = [&](const char* passes) {
    auto plan = make_plan({.graph = shared, .passes = passes});
    return plan.ok() ? "" : plan.status().message();
  };
  EXPECT_EQ(refused("place; propagate; schedule"), "");
  EXPECT_NE(refused("palce; propagate").find("did you mean place?"), std::string::npos);
  EXPECT_NE(refused("place(level=v2)").find("pass place has no option \"level\""), std::string::npos);
  EXPECT_NE(refused("place(").find("the parenthesis is not closed"), std::string::npos);
  EXPECT_NE(refused("place; schedule").find("needs place and propagate before it"), std::string::npos);
}

// A key that is said to run is read somewhere beside its table.
TEST(Strategy, KeysThatAreBuiltHaveAReader) {
  std::string sources;
  for (const char* folder :
       {"/core/strategy", "/core/strategy/passes", "/core/program", "/core/runtime", "/core/train", "/core/capi"}) {
    for (const auto& file : std::filesystem::directory_iterator(std::string(EPL_SOURCE_DIR) + folder)) {
      if (file.path().extension() != ".cc" || file.path().filename() == "strategy.cc" ||
          file.path().filename() == "documentation.cc")
        continue;
      std::stringstream text;
      text << std::ifstream(file.path()).rdbuf();
      sources += text.str();
    }
  }
  int built = 0;
  for (const ConfigKey& key : config_keys()) {
    built += key.built;
    EXPECT_EQ(key.built, sources.find('"' + std::string(key.name) + '"') != std::string::npos)
        << key.name << (key.built ? " is said to run and nobody reads it" : " is read and said not to run");
  }
  EXPECT_GT(built, 2);
}

TEST(Strategy, DocumentationIsUpToDate) {
  const std::string path = std::string(EPL_SOURCE_DIR) + "/docs/strategy.md";
  if (std::getenv("EPL_UPDATE_DOCS")) {
    std::ofstream(path) << strategy_documentation();
    return;
  }
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == strategy_documentation())
      << "docs/strategy.md is stale: run test_strategy with EPL_UPDATE_DOCS=1";
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
    EXPECT_EQ(check_built(strategy, 1).ok(), find_pipeline(word) != nullptr) << word;
  }
  EXPECT_TRUE(built_words(key("amp.level")).empty()) << "a key that is not built";
  int numeric = 0;
  for (const ConfigKey& one : config_keys()) numeric += !keeps_bits(one);
  EXPECT_EQ(numeric, 11) << "a name in the list of numeric keys is of no key";
  EXPECT_TRUE(keeps_bits(key("pipeline.strategy")));
}

}  // namespace
}  // namespace epl
