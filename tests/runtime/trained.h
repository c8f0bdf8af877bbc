// What a plan learns in some steps, to be compared with what another layout of the same job learns.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/compile/plan_memory.h"
#include "core/runtime/session.h"
#include "core/runtime/session_checkpoint.h"
#include "tests/runtime/graph_model.h"

namespace epl {

// How a small model learns classes in these tests, by a strategy.
inline Result<PlanOptions> layout_options(std::shared_ptr<const Model> model, int64_t ranks,
                                          std::string_view strategy) {
  PlanOptions options;
  options.model = std::move(model);
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "adamw";
  options.train.optimizer_options = {{"lr", 0.01}};
  options.train.clip_norm = 1;
  options.ranks = ranks;
  EPL_ASSIGN(options.strategy, parse_strategy(strategy));
  return options;
}

inline Result<std::shared_ptr<const CompiledPlan>> layout_plan(const Result<PlanOptions>& options) {
  EPL_TRY(options.status());
  return CompiledPlan::create(test_host(2), *options);
}

// Keys and scopes as a strategy of a level.
inline std::string at_level(const std::string& level, const std::string& keys) {
  return cat("{\"reproducible.level\": \"", level, "\"", keys.empty() ? "" : ", ", keys, "}");
}

struct Trained {
  std::vector<double> losses;
  double evaluated = 0;           // the loss of batch(0) after the last step
  std::vector<Tensor> predicted;  // for the inputs of batch(0)
  std::map<std::string, Tensor> state;
};

// `batch` gives the inputs of a step, the target last; `layout` is said where something fails.
template <class Batch>
Trained train(const Result<std::shared_ptr<const CompiledPlan>>& plan, const std::string& layout, int steps,
              const Batch& batch) {
  Trained out;
  EXPECT_TRUE(plan.ok()) << layout << ": " << plan.status().to_string();
  if (!plan.ok()) return out;
  auto session = Session::create(test_host(2), *plan, {.seed = 7});
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  if (!session.ok()) return out;
  for (int s = 0; s < steps; ++s) {
    StepMetrics metrics;
    const Status status = (*session)->step(batch(s), metrics);
    EXPECT_TRUE(status.ok()) << layout << ": " << status.to_string();
    if (!status.ok()) return out;
    out.losses.push_back(metrics.loss);
  }
  std::vector<Tensor> inputs = batch(0);
  if ((*plan)->entry(EntryKind::evaluate) != nullptr) {
    const Status evaluated = (*session)->evaluate(inputs, out.evaluated);
    EXPECT_TRUE(evaluated.ok()) << layout << ": " << evaluated.to_string();
  }
  if (const Entry* predict = (*plan)->entry(EntryKind::predict)) {
    inputs.resize(predict->inputs.size());
    for (const Port& port : predict->outputs) out.predicted.emplace_back(port.global_type);
    const Status predicted = (*session)->predict(inputs, out.predicted);
    EXPECT_TRUE(predicted.ok()) << layout << ": " << predicted.to_string();
  }
  const PlanMemory memory(**plan);
  EXPECT_EQ((*session)->memory_bytes_used(), memory.peak()) << layout;
  for (int r = 0; r < (*plan)->options().ranks; ++r) {
    const int at = (*plan)->entries().front().plan.virtual_device_of_rank(r);
    EXPECT_EQ((*session)->memory_bytes_used_by(r), memory.peak(at)) << layout << ", rank " << r;
  }
  for (const StateSlot& slot : (*plan)->state().slots())
    out.state.emplace(slot.name, *(*session)->state().get(slot.name));
  return out;
}

inline void expect_same(const Trained& other, const Trained& one, const std::string& layout) {
  EXPECT_FALSE(one.losses.empty());
  EXPECT_EQ(other.losses, one.losses) << layout;
  EXPECT_EQ(other.evaluated, one.evaluated) << layout;
  ASSERT_EQ(other.predicted.size(), one.predicted.size()) << layout;
  for (size_t i = 0; i < one.predicted.size(); ++i)
    EXPECT_TRUE(identical(other.predicted[i], one.predicted[i])) << i << ", " << layout;
  ASSERT_EQ(other.state.size(), one.state.size()) << layout;
  for (const auto& [name, value] : one.state) {
    ASSERT_TRUE(other.state.contains(name)) << name << ", " << layout;
    EXPECT_TRUE(identical(other.state.at(name), value)) << name << ", " << layout;
  }
}

// The same sums in another order.
inline void expect_near(const Trained& other, const Trained& one, const std::string& layout, double loss_tolerance,
                        double state_tolerance, double output_tolerance = 1e-3) {
  EXPECT_FALSE(one.losses.empty());
  ASSERT_EQ(other.losses.size(), one.losses.size()) << layout;
  for (size_t s = 0; s < one.losses.size(); ++s)
    EXPECT_NEAR(other.losses[s], one.losses[s], loss_tolerance) << "step " << s << ", " << layout;
  EXPECT_NEAR(other.evaluated, one.evaluated, loss_tolerance) << layout;
  ASSERT_EQ(other.predicted.size(), one.predicted.size()) << layout;
  for (size_t p = 0; p < one.predicted.size(); ++p) {
    for (int64_t i = 0; i < one.predicted[p].elements(); ++i)
      ASSERT_NEAR(other.predicted[p].get(i), one.predicted[p].get(i), output_tolerance) << i << ", " << layout;
  }
  ASSERT_EQ(other.state.size(), one.state.size()) << layout;
  for (const auto& [name, value] : one.state) {
    ASSERT_TRUE(other.state.contains(name)) << name << ", " << layout;
    const Tensor& there = other.state.at(name);
    for (int64_t i = 0; i < value.elements(); ++i)
      ASSERT_NEAR(there.get(i), value.get(i), state_tolerance) << name << " " << i << ", " << layout;
  }
}

}  // namespace epl
