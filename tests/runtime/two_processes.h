// What a process of a job of several does in the tests: a small model trained data-parallel, the same on each.
#pragma once

#include <chrono>

#include "core/runtime/session.h"
#include "tests/runtime/mlp.h"

namespace epl {

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
  EPL_ASSIGN(const PlanOptions options, mlp_options(ranks, micro_batches));
  return CompiledPlan::create(host, options);
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
