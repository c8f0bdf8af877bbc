// What a process of a job of several does in the tests: a small model trained data-parallel, the same on each.
#pragma once

#include <chrono>

#include "core/runtime/session.h"
#include "tests/runtime/graph_model.h"

namespace epl {

inline constexpr std::string_view two_process_model = R"(graph mlp(x: f32[8,12] batch 0) {
  w1: f32[12,16] = param
  b1: f32[16] = param
  w2: f32[16,4] = param
  forward:
  h: f32[8,16] = matmul(x, w1)
  hb: f32[8,16] = add(h, b1)
  a: f32[8,16] = relu(hb)
  y: f32[8,4] = matmul(a, w2)
  output y = y
}
)";

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline Host process_host() {
  Host host = test_host(1);
  host.seconds = seconds_now;
  return host;
}

inline Result<std::shared_ptr<const CompiledPlan>> two_process_plan(const Host& host, int64_t ranks,
                                                                    const std::string& micro_batches = "1") {
  PlanOptions options;
  options.model = GraphModel::parse(two_process_model);
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "adamw";
  options.train.optimizer_options = {{"lr", 0.01}};
  options.train.clip_norm = 1.0;
  options.ranks = ranks;
  EPL_TRY(set_config(options.strategy, "pipeline.num_micro_batch", micro_batches));
  return CompiledPlan::create(host, options);
}

// The whole batch of a step, which every process passes.
inline std::vector<Tensor> two_process_batch(int64_t step) {
  Tensor x(TensorType{DType::f32, {8, 12}}), t(TensorType{DType::i64, {8}});
  for (int i = 0; i < 96; ++i) x.set(i, philox_uniform(static_cast<uint64_t>(step), i) - 0.5);
  for (int i = 0; i < 8; ++i) t.set_int(i, i == 3 ? -100 : (i + step) % 4);
  return {x, t};
}

// Losses and all state, as bytes.
inline std::string all_state(const Session& session, const std::vector<double>& losses) {
  std::string out(reinterpret_cast<const char*>(losses.data()), losses.size() * sizeof(double));
  for (const StateSlot& slot : session.plan().state().slots()) {
    const Tensor value = session.state(slot.name).value();
    out += slot.name;
    out.append(static_cast<const char*>(value.data()), static_cast<size_t>(value.bytes()));
  }
  return out;
}

}  // namespace epl
