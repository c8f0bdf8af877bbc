// What a plan learns in some steps, to be compared with what another layout of the same job learns.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/runtime/session.h"
#include "core/runtime/session_state.h"
#include "tests/runtime/graph_model.h"

namespace epl {

struct Trained {
  std::vector<double> losses;
  Tensor predicted;  // for the first input of batch(99)
  std::map<std::string, Tensor> state;
};

// `batch` gives the inputs of a step; `answer` is the type of what the model predicts.
template <class Batch>
Trained train(const Result<std::shared_ptr<const CompiledPlan>>& plan, const std::string& layout, int steps,
              const Batch& batch, const TensorType& answer) {
  Trained out;
  EXPECT_TRUE(plan.ok()) << layout << ": " << plan.status().to_string();
  if (!plan.ok()) return out;
  auto session = Session::create(test_host(2), *plan, 7);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  if (!session.ok()) return out;
  for (int s = 0; s < steps; ++s) {
    StepMetrics metrics;
    const Status status = (*session)->step(batch(s), metrics);
    EXPECT_TRUE(status.ok()) << layout << ": " << status.to_string();
    out.losses.push_back(metrics.loss);
  }
  const Tensor inputs[] = {batch(99)[0]};
  Tensor outputs[] = {Tensor(answer)};
  const Status status = (*session)->predict(inputs, outputs);
  EXPECT_TRUE(status.ok()) << layout << ": " << status.to_string();
  out.predicted = outputs[0];
  for (const StateSlot& slot : (*plan)->state().slots()) out.state.emplace(slot.name, *(*session)->state(slot.name));
  EXPECT_LE((*session)->memory_bytes_used(), (*plan)->memory_bytes_peak()) << layout;
  return out;
}

}  // namespace epl
