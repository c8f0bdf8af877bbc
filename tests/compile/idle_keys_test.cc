// No key of a strategy is ignored in silence: by itself it changes what ranks do, or it is refused, or it stands in a
// list here that says when it acts.
#include <gtest/gtest.h>

#include <map>

#include "core/strategy/built.h"
#include "tests/runtime/trained.h"

namespace epl::idle_keys_test {
namespace {

constexpr std::string_view model = R"(graph layers(x: f32[16,16] batch 0) {
  w0: f32[16,16] = param
  w1: f32[16,4] = param
  forward:
  h: f32[16,16] = matmul(x, w0)
  a: f32[16,16] = gelu(h)
  y: f32[16,4] = matmul(a, w1)
  output y = y
}
)";

// What a plan of two copies shows nothing of.
const std::map<std::string_view, std::string_view> acts_elsewhere = {
    {"auto.auto_parallel", "several plans, of which one is taken"},
    {"io.slicing", "files of a dataset"},
    {"reproducible.level", "packs, and splits"},
    {"reproducible.units", "4 units of 8 for 2 ranks"},
    {"communication.hierarchical", "machines of several hosts"},
    {"pipeline.strategy", "all schedules of one stage are one"},
    {"cluster.colocate_split_and_replicate", "sibling scopes"},
    {"split.sequence", "splits"},
    {"split.spatial", "splits"},
    {"batch.order", "one micro-batch has one order"},
    {"batch.semantics", "one micro-batch is the full batch"},
    {"memory.budget", "a plan that fits as it is"}};

std::string value_of(const ConfigKey& key) {
  if (key.name == "pipeline.num_stages" || key.name == "pipeline.num_micro_batch") return "2";
  if (key.name.starts_with("outputs.")) return "nothing";
  if (std::holds_alternative<bool>(key.value)) return "true";
  if (std::holds_alternative<int64_t>(key.value)) return "2";
  return key.words.empty() ? "2GiB" : built_words(key).back();
}

// Or why there is none.
std::string plan_text(const std::string& key, const std::string& value) {
  auto options = layout_options(GraphModel::parse(model), 2, "{}");
  EXPECT_TRUE(options.ok());
  if (!key.empty()) {
    EXPECT_TRUE(set_config(options->strategy, key, value).ok()) << key;
  }
  const auto plan = layout_plan(options);
  if (!plan.ok()) return plan.status().message();
  std::string out;
  for (const Entry& entry : (*plan)->entries()) {
    out += (*plan)->text(entry.kind, "program").value();
    for (const auto& merge : entry.merges) out += merge ? "merged" : "";
  }
  return out;
}

TEST(IdleKeys, AreErrorsOrListed) {
  const std::string plain = plan_text("", "");
  for (const ConfigKey& key : config_keys()) {
    if (!key.built || acts_elsewhere.contains(key.name)) continue;
    EXPECT_NE(plan_text(key.name, value_of(key)), plain) << key.name << " = " << value_of(key) << " does nothing";
  }
}

}  // namespace
}  // namespace epl::idle_keys_test
