#include "tools/validation.h"

#include <algorithm>

namespace epl::tools {

void add_validation_options(CLI::App& app, ValidationOptions& o) {
  app.add_option("--evaluate-every", o.every, "measure the held-out loss every so many steps (a quarter of --steps)")->check(CLI::NonNegativeNumber);
  app.add_option("--evaluate-batches", o.batches, "batches of held-out text to measure on")->check(CLI::PositiveNumber)->capture_default_str();
}

bool Validation::due(int64_t step, int64_t steps) const {
  return any() && step % (o_.every > 0 ? o_.every : std::max<int64_t>(steps / 4, 1)) == 0;
}

int64_t Validation::batches() const { return std::min(o_.batches, epl_dataset_batches(data_.held_out.get())); }

Evaluated Validation::measure() {
  check(epl_dataset_seek(data_.held_out.get(), 0));
  std::vector<const epl_tensor*> batch(static_cast<size_t>(epl_plan_port_count(plan_.get(), EPL_ENTRY_TRAIN, EPL_PORT_INPUT)));
  double total = 0;
  const int64_t count = batches();
  for (int64_t i = 0; i < count; ++i) {
    check(epl_dataset_next(data_.held_out.get(), batch.data(), batch.size()));
    epl_metrics metrics = EPL_METRICS_INIT;
    check(epl_session_evaluate(session_.get(), batch.data(), batch.size(), nullptr, &metrics));
    total += metrics.loss;
  }
  Evaluated out;
  out.step = epl_session_steps(session_.get());
  out.metrics = {{"loss", total / static_cast<double>(count)}};
  out.samples = count * data_.batch;
  return out;
}

}  // namespace epl::tools
