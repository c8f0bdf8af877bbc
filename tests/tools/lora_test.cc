// What a checkpoint says of its low-rank adapters, as evaluate and export take it from there.
#include "tools/lora.h"

#include <gtest/gtest.h>

namespace epl::tools::lora_test {
namespace {

JobOptions matched(const std::string& adapters, const std::vector<std::string>& trained) {
  JobOptions o;
  o.train_only = {"what the command line said"};
  match_adapters(o, Json{{"facts", {{"adapters", adapters}}}}, trained);
  return o;
}

const std::string a = "base_model.model.net.0.lora_A.weight", b = "base_model.model.net.0.lora_B.weight";

TEST(Lora, ACheckpointsAdaptersAreReadBack) {
  const JobOptions o =
      matched("net.0 rank=2 alpha=4.0 dropout=0.1; a; rank=3 alpha=1e-05 dropout=0.0; * rank=8 alpha=16.0 dropout=0.0",
              {a, b, "net.2.bias"});
  ASSERT_EQ(o.adapters.size(), 3u);
  EXPECT_EQ(o.adapters[0].pattern, "net.0");
  EXPECT_EQ(o.adapters[0].rank, 2);
  EXPECT_EQ(o.adapters[0].alpha, 4);
  EXPECT_EQ(o.adapters[0].dropout, 0.1);
  EXPECT_EQ(o.adapters[1].pattern, "a;");
  EXPECT_EQ(o.adapters[1].rank, 3);
  EXPECT_EQ(o.adapters[1].alpha, 1e-5);
  EXPECT_EQ(o.adapters[2].pattern, "*");
  EXPECT_EQ(o.train_only, std::vector<std::string>{"net.2.bias"});
}

// A file may have parameters of its own under such names: one that PyTorch wrote with its adapters.
TEST(Lora, WithoutAdaptersTheirNamesAreNames) {
  const JobOptions o = matched("", {a, b});
  EXPECT_TRUE(o.adapters.empty());
  EXPECT_EQ(o.train_only, (std::vector<std::string>{a, b}));
}

TEST(Lora, WhatCannotBeReadIsSaid) {
  for (const char* text : {"net.0", "net.0 rank=2", "net.0 rank=x alpha=4.0 dropout=0.1",
                           "net.0 alpha=4.0 rank=2 dropout=0.1", "net.0 rank=2 alpha=4.0 dropout=0.1 more"}) {
    EXPECT_THROW(matched(text, {a, b}), UsageError) << text;
  }
}

}  // namespace
}  // namespace epl::tools::lora_test
