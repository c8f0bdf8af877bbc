// Training low-rank adapters through every layer: the same bits under every layout, the base untouched, and what they
// add is what merging them adds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/compile/plan_memory.h"
#include "core/runtime/session.h"
#include "tests/runtime/graph_model.h"

namespace epl::adapters_test {
namespace {

constexpr std::string_view net = R"(graph net(x: f32[8,3,6,6] batch 0) {
  conv.weight: f32[5,3,3,3] = param
  first.weight: f32[16,80] = param
  first.bias: f32[16] = param
  head.weight: f32[4,16] = param
  forward:
  c: f32[8,5,4,4] = conv(x, conv.weight) {dilations=[1,1], groups=1, pads=[0,0,0,0], strides=[1,1]}
  r: f32[8,5,4,4] = relu(c)
  f: f32[8,80] = reshape(r) {shape=[8,80]}
  h: f32[8,16] = matmul(f, first.weight) {transpose_b=true}
  hb: f32[8,16] = add(h, first.bias)
  a: f32[8,16] = tanh(hb)
  y: f32[8,4] = matmul(a, head.weight) {transpose_b=true}
  output y = y
}
)";

struct Layout {
  int64_t ranks = 1;
  std::string micro_batches = "1";
  int threads = 1;
};

PlanOptions options_for(const Layout& layout, bool adapters, std::string_view text = net) {
  PlanOptions options;
  options.model = GraphModel::parse(text);
  options.train.optimizer = "adamw";
  options.train.optimizer_options = {{"lr", 0.02}};
  if (adapters) {
    options.adapters.specs = {{"conv", 2, 4.0, 0.25}, {"first", 3, 16.0, 0.25}};
    options.train.train_only = {"head.*"};
  }
  options.ranks = layout.ranks;
  EXPECT_TRUE(set_config(options.strategy, "pipeline.num_micro_batch", layout.micro_batches).ok());
  return options;
}

Tensor sample(int step) {
  Tensor x(TensorType{DType::f32, {8, 3, 6, 6}});
  for (int64_t i = 0; i < x.elements(); ++i)
    x.set(i, philox_uniform(static_cast<uint64_t>(step), static_cast<uint64_t>(i)) - 0.5);
  return x;
}

std::unique_ptr<Session> session_of(const Host& host, const Layout& layout, bool adapters) {
  auto plan = CompiledPlan::create(host, options_for(layout, adapters));
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  if (!plan.ok()) return nullptr;
  auto session = Session::create(host, *plan, {.seed = 7});
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  return session.ok() ? std::move(*session) : nullptr;
}

void train(Session& session, std::vector<double>& losses) {
  for (int step = 0; step < 12; ++step) {
    Tensor target(TensorType{DType::i64, {8}});
    for (int i = 0; i < 8; ++i) target.set_int(i, (i * 3 + step) % 4);
    StepMetrics metrics;
    std::vector<Tensor> inputs = {sample(step % 3), target};
    Status status = session.step(inputs, metrics);
    ASSERT_TRUE(status.ok()) << status.to_string();
    losses.push_back(metrics.loss);
  }
}

Tensor predict(Session& session) {
  std::vector<Tensor> inputs = {sample(50)}, outputs = {Tensor(TensorType{DType::f32, {8, 4}})};
  Status status = session.predict(inputs, outputs);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return outputs[0];
}

const std::vector<std::string> trained = {"base_model.model.conv.lora_A.weight", "base_model.model.conv.lora_B.weight",
                                          "base_model.model.first.lora_A.weight",
                                          "base_model.model.first.lora_B.weight", "head.weight"};

TEST(AdaptedSession, LearnsTheSameBitsUnderEveryLayout) {
  const Host one_thread = test_host(1);
  auto one = session_of(one_thread, {}, true);
  ASSERT_TRUE(one);
  std::vector<double> losses;
  train(*one, losses);
  std::vector<std::string> names = one->plan().trained();
  std::ranges::sort(names);
  EXPECT_EQ(names, trained);
  for (const Layout& layout : {Layout{1, "1", 2}, Layout{1, "4", 2}, Layout{2, "1", 2}, Layout{2, "2", 2}}) {
    const Host host = test_host(layout.threads);
    auto other = session_of(host, layout, true);
    ASSERT_TRUE(other);
    std::vector<double> other_losses;
    train(*other, other_losses);
    EXPECT_EQ(other_losses, losses) << layout.ranks << " ranks, " << layout.micro_batches << " micro-batches";
    for (const std::string& name : trained)
      EXPECT_TRUE(identical(*one->state().get(name), *other->state().get(name))) << name;
  }
}

TEST(AdaptedSession, PredictsAsItsMergedWeightsDo) {
  const Host host = test_host(1);
  auto adapted = session_of(host, {}, true), plain = session_of(host, {}, false);
  ASSERT_TRUE(adapted && plain);
  const Tensor before = predict(*plain);
  EXPECT_TRUE(identical(predict(*adapted), before)) << "an adapter begins as no change";
  std::vector<double> losses;
  train(*adapted, losses);
  for (const char* name : {"conv.weight", "first.weight", "first.bias"})
    EXPECT_TRUE(identical(*adapted->state().get(name), *plain->state().get(name))) << name << " is frozen";
  for (const Adapter& one : adapted->plan().adapters()) {
    const Tensor merged = merge_adapter(one, *adapted->state().get(one.weight), *adapted->state().get(one.a),
                                        *adapted->state().get(one.b));
    EXPECT_FALSE(identical(merged, *adapted->state().get(one.weight))) << one.weight;
    ASSERT_TRUE(plain->state().set(one.weight, merged).ok());
  }
  ASSERT_TRUE(plain->state().set("head.weight", *adapted->state().get("head.weight")).ok());
  const Tensor beside = predict(*adapted), merged = predict(*plain);
  double most = 0, moved = 0;
  for (int64_t i = 0; i < beside.elements(); ++i) {
    most = std::max(most, std::fabs(beside.get(i) - merged.get(i)));
    moved = std::max(moved, std::fabs(beside.get(i) - before.get(i)));
  }
  EXPECT_GT(moved, 0.1);
  EXPECT_LT(most, 2e-6);
}

// Of frozen weights there is neither a gradient nor an optimizer's state: what a plan counts beside the weights is the
// adapters' own.
TEST(AdaptedSession, PlansMemoryForTheAdaptersAlone) {
  const Host host = test_host(1);
  auto adapted = CompiledPlan::create(host, options_for({}, true)),
       plain = CompiledPlan::create(host, options_for({}, false));
  ASSERT_TRUE(adapted.ok() && plain.ok());
  int64_t small = 0, state = 0;
  for (const StateSlot& slot : (*adapted)->state().slots()) {
    if (slot.kind == ValueKind::state) state += slot.type.bytes();
    if (std::ranges::find(trained, slot.name) != trained.end()) small += slot.type.bytes();
  }
  EXPECT_EQ(state, 2 * small) << "adamw has two numbers for each that is trained";
  // The first layer's weight is the only matrix of its size, and its gradient would be another.
  const auto matrices = [](const CompiledPlan& plan) {
    const Graph& graph = *plan.entry(EntryKind::train)->graph;
    int count = 0;
    for (int v = 0; v < graph.value_count(); ++v)
      count += graph.type(Value{v}).elements() == 16 * 80 && graph.value(Value{v}).producer;
    return count;
  };
  EXPECT_GT(matrices(**plain), 0);
  EXPECT_EQ(matrices(**adapted), 0);
  const auto beside_weights = [](const CompiledPlan& plan) { return PlanMemory(plan).items()[2].bytes; };
  EXPECT_GE(beside_weights(**plain), 2 * 16 * 80 * 4);
  EXPECT_LT(beside_weights(**adapted), 2 * 16 * 80 * 4);
}

// A model of 16-bit weights that computes in this type: frozen weights stay as they are, adapters have 32 bits.
class AdaptersBeside : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Halves, AdaptersBeside, testing::Values(DType::f16, DType::bf16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST_P(AdaptersBeside, LearnAsInFloat32) {
  std::string half(net);
  for (size_t at = half.find("f32["); at != std::string::npos; at = half.find("f32[", at))
    half.replace(at, 3, dtype_name(GetParam()));
  const Host host = test_host(1);
  const auto train_16 = [&](std::string_view text, std::vector<double>& losses) -> std::unique_ptr<Session> {
    PlanOptions options = options_for({}, true, text);
    for (AdapterSpec& spec : options.adapters.specs) spec.dropout = 0;
    auto plan = CompiledPlan::create(host, options);
    if (!plan.ok()) return ADD_FAILURE() << plan.status().to_string(), nullptr;
    auto session = Session::create(host, *plan, {.seed = 7});
    if (!session.ok()) return ADD_FAILURE() << session.status().to_string(), nullptr;
    const DType dtype = (*plan)->entry(EntryKind::train)->inputs[0].global_type.dtype;
    for (int step = 0; step < 20; ++step) {
      Tensor x = sample(step % 2), target(TensorType{DType::i64, {8}}), typed(TensorType{dtype, x.shape()});
      for (int64_t i = 0; i < x.elements(); ++i) typed.set(i, x.get(i));
      for (int i = 0; i < 8; ++i) target.set_int(i, (i * 3 + step % 2) % 4);
      StepMetrics metrics;
      std::vector<Tensor> inputs = {typed, target};
      Status status = (*session)->step(inputs, metrics);
      if (!status.ok()) return ADD_FAILURE() << status.to_string(), nullptr;
      losses.push_back(metrics.loss);
    }
    return std::move(*session);
  };
  std::vector<double> losses, losses_16;
  auto full = train_16(net, losses), session = train_16(half, losses_16);
  ASSERT_TRUE(full && session);
  EXPECT_LT(losses_16.back(), 0.7 * losses_16.front());
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses_16[i], losses[i], GetParam() == DType::f16 ? 0.03 : 0.1) << "step " << i;
  for (const StateSlot& slot : session->plan().state().slots()) {
    const bool frozen = slot.kind == ValueKind::parameter && std::ranges::find(trained, slot.name) == trained.end();
    EXPECT_EQ(slot.type.dtype, frozen ? GetParam() : DType::f32) << slot.name;
    if (!frozen) continue;
    EXPECT_TRUE(identical(*session->state().get(slot.name), slot.initial)) << slot.name;
  }
  const auto& notes = session->plan().notes();
  EXPECT_EQ(std::ranges::any_of(
                notes, [](const std::string& note) { return note.find("computes in float16") != std::string::npos; }),
            GetParam() == DType::f16);
}

}  // namespace
}  // namespace epl::adapters_test
