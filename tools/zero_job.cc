// Opens a model as epl trace does without data.
#include "tools/zero_job.h"

#include "tools/binding.h"
#include "tools/clock.h"
#include "tools/json.h"

namespace epl::tools {

ZeroTraining::ZeroTraining(const ZeroJob& job, const JobOptions& common, const std::string& folder) {
  JobOptions o = common;
  o.model = folder + "/model.onnx";
  o.batch = job.batch;
  o.ranks = job.ranks;
  o.threads = static_cast<int>(job.ranks);
  o.strategy = job.strategy;
  engine_ = make_engine(o);
  check(epl_x_template_write(engine_.get(), job.family.data(), job.family.size(), job.options.data(),
                             job.options.size(), o.model.data(), o.model.size(), nullptr));
  model_ = load_model(engine_, o.model);
  const Trainer trainer = make_trainer(engine_, o);
  bind_open(trainer, model_, o, 0);
  plan_ = make_plan(model_, trainer, make_strategy(engine_, o), o);
}

void ZeroTraining::begin() {
  session_ = make<Session>(epl_session_create, plan_.get(), static_cast<const epl_session_options*>(nullptr), nullptr);
  for (int64_t i = 0; i < epl_plan_port_count(plan_.get(), EPL_ENTRY_TRAIN, EPL_PORT_INPUT); ++i) {
    const Port port = port_of(epl_plan_port, plan_.get(), EPL_ENTRY_TRAIN, EPL_PORT_INPUT, i);
    held_.push_back(
        make<TensorHandle>(epl_tensor_create, engine_.get(), port.dtype, port.dims.data(), port.dims.size()));
    inputs_.push_back(held_.back().get());
  }
}

int64_t ZeroTraining::input_bytes() const {
  size_t bytes = 0;
  for (const TensorHandle& one : held_) bytes += epl_tensor_bytes(one.get());
  return static_cast<int64_t>(bytes);
}

double ZeroTraining::step() {
  epl_metrics metrics = EPL_METRICS_INIT;
  check(epl_session_step(session_.get(), inputs_.data(), inputs_.size(), nullptr, &metrics));
  return static_cast<double>(metrics.nanoseconds) * 1e-9;
}

std::vector<double> ZeroTraining::steps_for(double seconds) {
  std::vector<double> taken;
  for (const double begin = steady_seconds(); taken.empty() || steady_seconds() - begin < seconds;)
    taken.push_back(step());
  return taken;
}

Json ZeroTraining::record(int64_t steps) {
  check(epl_session_record(session_.get(), steps));
  for (int64_t i = 0; i < steps; ++i) step();
  return parse_json(text_of(epl_session_trace, session_.get()));
}

Json ZeroTraining::overview() const {
  constexpr std::string_view document = "overview";
  return parse_json(text_of(epl_plan_describe, plan_.get(), document.data(), document.size(), nullptr));
}

}  // namespace epl::tools
