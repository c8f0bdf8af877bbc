// Keys that do nothing by themselves are errors that say what they need.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/strategy/built.h"

namespace epl::key_needs_test {
namespace {

const ConfigKey& row_of(std::string_view name) {
  const auto found =
      std::ranges::find(config_keys(), name, [](const ConfigKey& one) { return std::string_view(one.name); });
  EXPECT_NE(found, config_keys().end()) << name;
  return *found;
}

// A value that asks for something.
std::string value_of(const ConfigKey& key) {
  if (std::holds_alternative<bool>(key.value)) return "true";
  if (const auto* number = std::get_if<int64_t>(&key.value)) return cat(*number + 2);
  return key.words.empty() ? "2GiB" : key.words.back();
}

std::string other_value(const KeyNeed& need) {
  return need.words.empty() ? value_of(row_of(need.other)) : std::string(need.words.back());
}

Strategy strategy_of(const std::vector<std::pair<std::string_view, std::string>>& keys) {
  Strategy strategy;
  for (const auto& [key, value] : keys) {
    const Status set = set_config(strategy, key, value);
    EXPECT_TRUE(set.ok()) << set.to_string();
  }
  return strategy;
}

class KeyThatNeeds : public ::testing::TestWithParam<int> {
 protected:
  const KeyNeed& need() const { return key_needs()[static_cast<size_t>(GetParam())]; }
  const ConfigKey& key() const { return row_of(need().key); }
};

TEST_P(KeyThatNeeds, IsRefusedAloneWithWhatItNeeds) {
  EXPECT_TRUE(key().built) << need().key;
  EXPECT_TRUE(row_of(need().other).built) << need().other;
  const Status refused = check_needs(strategy_of({{need().key, value_of(key())}}));
  EXPECT_EQ(refused.code(), Code::invalid_argument) << need().key;
  EXPECT_TRUE(refused.message().starts_with(cat(need().key, " = "))) << refused.to_string();
  EXPECT_NE(refused.message().find(need().other), std::string::npos) << refused.to_string();
  for (const std::string_view word : need().words)
    EXPECT_NE(refused.message().find(word), std::string::npos) << refused.to_string();
}

TEST_P(KeyThatNeeds, IsTakenBesideIt) {
  Strategy strategy = strategy_of({{need().key, value_of(key())}, {need().other, other_value(need())}});
  for (const KeyNeed& outer : key_needs()) {
    if (outer.key != need().other) continue;
    EXPECT_TRUE(set_config(strategy, outer.other, other_value(outer)).ok());
  }
  const Status taken = check_needs(strategy);
  EXPECT_TRUE(taken.ok()) << taken.to_string();
}

// "false", the number that stands for none, and an empty text ask for nothing.
TEST_P(KeyThatNeeds, MayBeSetToNothing) {
  Strategy strategy;
  strategy.config.set(need().key, key().value);
  const auto* word = std::get_if<std::string>(&key().value);
  EXPECT_EQ(check_needs(strategy).ok(), !word || word->empty()) << need().key;
}

INSTANTIATE_TEST_SUITE_P(All, KeyThatNeeds, ::testing::Range(0, static_cast<int>(key_needs().size())));

TEST(KeyNeeds, HoldForAnyOfSeveral) {
  EXPECT_FALSE(check_needs(strategy_of({{"offload.folder", "scratch"}})).ok());
  EXPECT_TRUE(check_needs(strategy_of({{"offload.folder", "scratch"}, {"offload.level", "v0"}})).ok());
  EXPECT_TRUE(check_needs(strategy_of({{"offload.folder", "scratch"}, {"memory.budget", "1GB"}})).ok());
  EXPECT_FALSE(check_needs(strategy_of({{"amp.level", "O1"}, {"amp.loss_scale", "1024"}})).ok());
  EXPECT_FALSE(check_needs(strategy_of({{"communication.max_splits", "3"}, {"zero.level", "v0"}})).ok());
}

}  // namespace
}  // namespace epl::key_needs_test
