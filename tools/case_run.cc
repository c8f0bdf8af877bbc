#include "tools/case_run.h"

#include <algorithm>

#include "tools/binding.h"

namespace epl::tools {

OpenedCase CaseRun::opened() {
  open();
  Trainer made = trainer();
  return {std::move(engine_), std::move(model_), std::move(dataset_), std::move(made)};
}

void CaseRun::open() {
  dataset_ = nullptr;
  model_ = nullptr;
  engine_ = make_engine(job_);
  for (const Json& row : described("optimizers")) {
    if (o_.without_state ? row.at("states").empty() : row.at("name") == reference_.optimizer) optimizer_ = row;
  }
  model_ = load_model(engine_, folder_ + "/model.onnx");
  const std::string data = folder_ + "/train.safetensors";
  dataset_ = make<Dataset>(epl_dataset_open, engine_.get(), data.data(), data.size(), static_cast<const char*>(nullptr),
                           size_t{0}, nullptr);
}

void CaseRun::start(bool gradient_norms) {
  session_ = nullptr;
  Trainer made = trainer();
  if (gradient_norms) set(made.get(), "report.gradient_norms", "true");
  plan_ = make_plan(model_, made, make_strategy(engine_, job_), job_);
  begin_session();
}

void CaseRun::begin_session() {
  check(epl_dataset_bind(dataset_.get(), plan_.get(), EPL_ENTRY_TRAIN));
  session_ = new_session();
  for (int kind = 0; kind < 3; ++kind) {
    for (int64_t i = 0; i < epl_session_state_count(session_.get(), kind); ++i)
      state_.insert(port_of(epl_session_state_port, session_.get(), kind, i).name);
  }
}

Session CaseRun::new_session() {
  Processes processes = job_.processes;
  processes.rendezvous += "/" + std::to_string(sessions_++);
  processes.agreement.compare_every = 1;  // copies that part are found where they part
  return make_session(engine_, plan_, processes, job_.ranks, store_, nullptr, false);
}

epl_metrics CaseRun::step() {
  std::vector<const epl_tensor*> batch(
      static_cast<size_t>(epl_plan_port_count(plan_.get(), EPL_ENTRY_TRAIN, EPL_PORT_INPUT)));
  check(epl_dataset_next(dataset_.get(), nullptr, batch.data(), batch.size()));
  epl_metrics metrics = EPL_METRICS_INIT;
  check(epl_session_step(session_.get(), batch.data(), batch.size(), nullptr, &metrics));
  return metrics;
}

std::string CaseRun::name_here(const std::string& name, const std::set<std::string>& there) const {
  if (there.contains(name)) return name;
  for (const std::vector<std::string>& names : reference_.tied) {
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    for (const std::string& other : names) {
      if (there.contains(other)) return other;
    }
  }
  return name;
}

Trainer CaseRun::trainer() {
  JobOptions job = job_;
  const Json& settings = reference_.json();
  job.loss = reference_.loss;
  job.optimizer = optimizer_.value("name", reference_.optimizer);
  if (optimizer_.contains("options")) {
    for (const auto& [key, unused] : optimizer_.at("options").items()) {
      if (!reference_.has(key.c_str())) continue;
      const Json& value = settings[key];
      job.optimizer_options.push_back(key + "=" + (value.is_string() ? value.get<std::string>() : print_json(value)));
    }
  }
  if (reference_.has("ignore_index") && settings["ignore_index"].is_number() && job.loss == "softmax_cross_entropy") {
    job.ignore_index = std::to_string(settings["ignore_index"].get<int64_t>());
  }
  Trainer made = make_trainer(engine_, job);
  set(made.get(), "precision", o_.precision);
  bind_inputs(made, model_, dataset_, job);
  for (const auto& [name, dim] : reference_.batch_dims)
    check(epl_trainer_bind_batch_dim(made.get(), name.data(), name.size(), static_cast<int32_t>(dim)));
  choose_parameters(made);
  return made;
}

void CaseRun::choose_parameters(const Trainer& made) const {
  std::set<std::string> initializers;
  for (int64_t i = 0; i < epl_model_port_count(model_.get(), EPL_PORT_INITIALIZER); ++i)
    initializers.insert(port_of(epl_model_port, model_.get(), EPL_PORT_INITIALIZER, i).name);
  int64_t group = -1;
  for (const std::string& name : reference_.trainable) {
    const std::string here = name_here(name, initializers);
    if (!initializers.contains(here) && is_absent(name)) continue;
    if (group < 0) {
      check(epl_trainer_add_group(made.get(), here.data(), here.size(), &group));
    } else {
      check(epl_trainer_group_add(made.get(), group, here.data(), here.size()));
    }
  }
  int64_t rest = 0;
  check(epl_trainer_add_group(made.get(), EPL_STR("*"), &rest));
  check(epl_trainer_group_set(made.get(), rest, EPL_STR("frozen"), EPL_STR("true")));
}

bool CaseRun::is_absent(const std::string& name) const {
  const auto gradient = reference_.gradients.find(name);
  return reference_.missing.contains(name) || reference_.without_gradient.contains(name) ||
         (gradient != reference_.gradients.end() && gradient->second == 0);
}

void CaseRun::measure(int64_t& planned, int64_t& measured) const {
  std::vector<const epl_tensor*> batch(
      static_cast<size_t>(epl_plan_port_count(plan_.get(), EPL_ENTRY_EVALUATE, EPL_PORT_INPUT)));
  check(epl_dataset_seek(dataset_.get(), 0));
  check(epl_dataset_next(dataset_.get(), nullptr, batch.data(), batch.size()));
  epl_metrics metrics = EPL_METRICS_INIT;
  check(epl_session_evaluate(session_.get(), batch.data(), batch.size(), nullptr, &metrics));
  const bool several = job_.processes.several();
  const int64_t first = several ? job_.processes.rank * job_.ranks : 0,
                end = several ? first + job_.ranks : epl_plan_ranks(plan_.get());
  for (int64_t rank = first; rank < end; ++rank) {
    planned = std::max(planned, epl_plan_memory_bytes_peak(plan_.get(), rank));
    measured = std::max(measured, epl_session_memory_bytes_peak(session_.get(), rank));
  }
}

std::string CaseRun::hash() const {
  uint64_t hash = 0;
  check(epl_session_hash(session_.get(), nullptr, &hash));
  char hex[20];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(hash));
  return hex;
}

}  // namespace epl::tools
