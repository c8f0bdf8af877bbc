// What a process of a job of several does in the tests: a small model trained data-parallel, or by a strategy, the same
// on each.
#pragma once

#include <chrono>
#include <set>

#include "core/runtime/session.h"
#include "tests/runtime/mlp.h"
#include "tests/runtime/skip_mlp.h"

namespace epl {

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline Host process_host() {
  Host host = test_host(1);
  host.seconds = seconds_now;
  host.packs = EPL_PACK_FOLDER;
  return host;
}

inline Result<std::shared_ptr<const CompiledPlan>> two_process_plan(const Host& host, int64_t ranks,
                                                                    const std::string& micro_batches = "1") {
  EPL_ASSIGN(const PlanOptions options, mlp_options(ranks, micro_batches));
  return CompiledPlan::create(host, options);
}

// The model with a skip connection, by a strategy.
inline Result<std::shared_ptr<const CompiledPlan>> strategy_plan(const Host& host, int64_t ranks,
                                                                 const std::string& strategy,
                                                                 std::string_view device = "cpu") {
  EPL_ASSIGN(PlanOptions options, mlp_options(ranks, "1"));
  options.device = device;
  options.model = GraphModel::parse(skip_mlp);
  EPL_ASSIGN(options.strategy, parse_strategy(strategy));
  return CompiledPlan::create(host, options);
}

// Losses and all state by name, as bytes. State in shards is gathered, so it may fail as a step may.
inline Result<std::string> gathered_state(Session& session, const std::vector<double>& losses) {
  std::string out(reinterpret_cast<const char*>(losses.data()), losses.size() * sizeof(double));
  std::set<std::string> names;
  for (const StateSlot& slot : session.plan().state().slots()) names.insert(slot.name);
  for (const std::string& name : names) {
    EPL_ASSIGN(const Tensor value, session.state().get(name));
    out += name;
    out.append(static_cast<const char*>(value.data()), static_cast<size_t>(value.bytes()));
  }
  return out;
}

// The same, where no peer can be lost.
inline std::string all_state(Session& session, const std::vector<double>& losses) {
  return gathered_state(session, losses).value();
}

// Losses, state and a prediction; or why there is none.
inline std::string answer(Session& session, const std::vector<double>& losses) {
  std::vector<Tensor> outputs = {Tensor(TensorType{DType::f32, {8, 4}})};
  const std::vector<Tensor> batch = mlp_batch(100);
  const Status status = session.predict(std::span(batch).first(1), outputs);
  if (!status.ok()) return status.to_string();
  auto state = gathered_state(session, losses);
  if (!state.ok()) return state.status().to_string();
  return state->append(static_cast<const char*>(outputs[0].data()), static_cast<size_t>(outputs[0].bytes()));
}

}  // namespace epl
