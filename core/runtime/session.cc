#include "core/runtime/session.h"

#include <algorithm>

#include "core/base/check.h"

namespace epl {

struct Session::Rank {
  std::unique_ptr<Stream> stream;
  ParameterStore store;
  std::unique_ptr<Buffer> arena;
  std::vector<std::unique_ptr<Executor>> executors;   // by entry
  std::unique_ptr<Communicator> communicator;
  Status status;
};

Session::Session(const Host& host, std::shared_ptr<const CompiledPlan> plan, uint64_t seed)
    : host_(host), plan_(std::move(plan)), seed_(seed) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::create(const Host& host, std::shared_ptr<const CompiledPlan> plan, uint64_t seed) {
  std::unique_ptr<Session> session(new Session(host, std::move(plan), seed));
  const CompiledPlan& p = session->plan();
  session->device_ = p.device();
  for (int64_t r = 0; r < p.options().ranks; ++r) {
    auto rank = std::make_unique<Rank>();
    EPL_ASSIGN(rank->stream, session->device_->create_stream(p.threads_per_rank()));
    EPL_ASSIGN(rank->store, ParameterStore::create(*session->device_, *rank->stream, p.state()));
    EPL_ASSIGN(rank->arena, session->device_->allocate(std::max<int64_t>(p.arena_bytes(), 1)));
    for (const Entry& entry : p.entries()) {
      EPL_ASSIGN(auto executor, Executor::create(session->host_, *session->device_, *rank->stream, entry.program, rank->store,
                                                 *rank->arena, r));
      rank->executors.push_back(std::move(executor));
    }
    session->ranks_.push_back(std::move(rank));
  }
  EPL_TRY(session->connect());
  if (session->device_->executes()) session->rank_threads_ = std::make_unique<ThreadPool>(static_cast<int>(p.options().ranks));
  size_t most_inputs = 0, most_outputs = 0;
  for (const Entry& entry : p.entries()) {
    most_inputs = std::max(most_inputs, entry.program.inputs.size());
    most_outputs = std::max(most_outputs, entry.program.outputs.size());
    auto& results = session->results_.emplace_back();
    for (const ProgramPort& port : entry.program.outputs) {
      results.push_back(entry.kind == EntryKind::predict ? Tensor() : Tensor(port.global_type));
    }
  }
  session->input_pointers_.reserve(most_inputs);
  session->output_pointers_.reserve(most_outputs);
  return session;
}

Status Session::connect() {
  if (ranks_.size() == 1) return {};
  EPL_ASSIGN(auto communicators, device_->create_communicators(static_cast<int>(ranks_.size())));
  for (size_t r = 0; r < ranks_.size(); ++r) ranks_[r]->communicator = std::move(communicators[r]);
  return {};
}

Status Session::check_inputs(const Program& program, std::span<const Tensor> inputs) {
  if (inputs.size() != program.inputs.size()) {
    std::string names;
    for (const ProgramPort& port : program.inputs) names += cat(names.empty() ? "" : ", ", port.name, ": ", port.global_type.text());
    return invalid(program.name, " takes ", program.inputs.size(), " tensors (", names, "), got ", inputs.size());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ProgramPort& port = program.inputs[i];
    if (inputs[i].empty()) return invalid("input ", port.name, " (", port.global_type.text(), ") is missing").at(port.name);
    if (inputs[i].type() != port.global_type) {
      return invalid("input ", port.name, " is ", port.global_type.text(), " in the plan, got ", inputs[i].type().text()).at(port.name);
    }
  }
  return {};
}

Status Session::run(EntryKind kind, std::span<const Tensor> inputs, const CallOptions& options) {
  const Entry* entry = plan_->entry(kind);
  if (!entry) return Status(Code::invalid_argument, cat("the plan has no ", entry_name(kind), " entry"));
  if (!healthy_) {
    return Status(Code::misuse, "an earlier step failed while the weights were changing; restore the session from a checkpoint");
  }
  EPL_TRY(check_inputs(entry->program, inputs));
  size_t index = static_cast<size_t>(entry - plan_->entries().data());
  input_pointers_.clear();
  for (const Tensor& input : inputs) input_pointers_.push_back(input.data());
  if (kind == EntryKind::train) {
    plan_->scalars(steps_done_, scalars_);
  } else {
    scalars_.clear();
  }
  RunRequest request{.inputs = input_pointers_,
                     .outputs = output_pointers_,
                     .scalars = scalars_,
                     .seed = seed_,
                     .step = steps_done_,
                     .finite_output = kind == EntryKind::train ? entry->loss_output : -1,
                     .gradient_output = entry->gradient_output,
                     .trained = plan_->trained(),
                     .stop = options.stop,
                     .deadline_seconds = options.timeout_seconds > 0 ? host_.seconds() + options.timeout_seconds : 0};
  Status failure = run_ranks(index, request);
  if (failure.code() != Code::not_finite) return failure;
  // Nothing has changed, so the same step again meets the same NaN and can look for where it begins.
  request.diagnose = true;
  if (Status again = run_ranks(index, request); !again.ok()) return failure;
  const Executor::Origin* first = nullptr;
  for (const auto& rank : ranks_) {
    const Executor::Origin& origin = rank->executors[index]->origin();
    const auto better = [&] { return origin.nan != first->nan ? origin.nan : origin.order < first->order; };
    if (origin.order >= 0 && (!first || better())) first = &origin;
  }
  if (!first) return failure;
  return Status(Code::not_finite, cat(failure.message(), ". ", first->text), first->node);
}

Status Session::run_ranks(size_t index, const RunRequest& request) {
  auto run_rank = [&](int64_t r) {
    Rank& rank = *ranks_[r];
    try {
      rank.status = rank.executors[index]->run(request, rank.communicator.get());
    } catch (...) {
      if (rank.communicator) rank.communicator->abort(Status(Code::peer_failed, cat("rank ", r, " failed")));
      throw;   // an internal error: the C API poisons the session
    }
    if (!rank.status.ok() && rank.communicator) {
      rank.communicator->abort(Status(Code::peer_failed, cat("rank ", r, ": ", rank.status.message()), rank.status.where()));
    }
  };
  if (rank_threads_) {
    rank_threads_->run(static_cast<int64_t>(ranks_.size()), [&](int64_t r, int) { run_rank(r); });
  } else {
    for (size_t r = 0; r < ranks_.size(); ++r) run_rank(static_cast<int64_t>(r));   // simulated: nothing blocks
  }
  // The first cause wins over the ranks that only heard of it.
  Status failure;
  for (const auto& rank : ranks_) {
    if (rank->status.ok()) continue;
    if (failure.ok() || (failure.code() == Code::peer_failed && rank->status.code() != Code::peer_failed)) failure = rank->status;
    if (rank->executors[index]->state_torn()) healthy_ = false;
  }
  if (!failure.ok()) EPL_TRY(connect());   // an aborted group is never used again
  return failure;
}

Status Session::step(std::span<const Tensor> inputs, StepMetrics& metrics, const CallOptions& options) {
  const Entry& entry = plan_->entries().front();
  if (entry.kind != EntryKind::train) return Status(Code::invalid_argument, "the plan was made without a trainer and only predicts");
  output_pointers_.clear();
  for (Tensor& result : results_[0]) output_pointers_.push_back(result.data());
  EPL_TRY(run(EntryKind::train, inputs, options));
  metrics.step = steps_done_;
  metrics.loss = results_[0][entry.loss_output].get(0);
  metrics.learning_rate = plan_->learning_rate(steps_done_);
  metrics.gradient_norm = -1;
  for (size_t i = 0; i < results_[0].size(); ++i) {
    if (entry.program.outputs[i].name == "gradient_norm") metrics.gradient_norm = results_[0][i].get(0);
  }
  ++steps_done_;
  return {};
}

Status Session::evaluate(std::span<const Tensor> inputs, double& loss, const CallOptions& options) {
  const Entry* entry = plan_->entry(EntryKind::evaluate);
  if (!entry) return Status(Code::invalid_argument, "the plan has no evaluate entry");
  auto& results = results_[entry - plan_->entries().data()];
  output_pointers_.clear();
  for (Tensor& result : results) output_pointers_.push_back(result.data());
  EPL_TRY(run(EntryKind::evaluate, inputs, options));
  loss = results[entry->loss_output].get(0);
  return {};
}

Status Session::predict(std::span<const Tensor> inputs, std::span<Tensor> outputs, const CallOptions& options) {
  const Entry* entry = plan_->entry(EntryKind::predict);
  if (!entry) return Status(Code::invalid_argument, "the plan has no predict entry");
  const auto& ports = entry->program.outputs;
  if (outputs.size() != ports.size()) return invalid("predict gives ", ports.size(), " outputs, got room for ", outputs.size());
  output_pointers_.clear();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].empty() && outputs[i].type() != ports[i].global_type) {
      return invalid("output ", ports[i].name, " is ", ports[i].global_type.text(), ", got room for ", outputs[i].type().text());
    }
    output_pointers_.push_back(outputs[i].data());
  }
  return run(EntryKind::predict, inputs, options);
}

Result<Tensor> Session::step_output(std::string_view name) const {
  const auto& ports = plan_->entries().front().program.outputs;
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].name == name) return results_[0][i].clone();
  }
  return error(Code::not_found, "step has no output \"", name, "\"");
}

Result<double> Session::step_scalar(std::string_view name) const {
  EPL_ASSIGN(Tensor value, step_output(name));
  if (value.elements() != 1) return invalid("step output \"", name, "\" is no scalar");
  return value.get(0);
}

Result<Tensor> Session::state(std::string_view name) const {
  return ranks_[0]->store.get(*ranks_[0]->stream, plan_->state(), name);
}

Result<Tensor> Session::state_view(std::string_view name) const {
  return ranks_[0]->store.view(*ranks_[0]->stream, plan_->state(), name);
}

Status Session::set_state(std::string_view name, const Tensor& value) {
  for (auto& rank : ranks_) EPL_TRY(rank->store.set(*rank->stream, plan_->state(), name, value));
  return {};
}

double Session::virtual_seconds() const {
  double latest = 0;
  for (const auto& rank : ranks_) latest = std::max(latest, rank->stream->virtual_seconds());
  return latest;
}

int64_t Session::memory_bytes_used() const {
  int64_t most = 0;
  for (const auto& rank : ranks_) {
    for (const auto& executor : rank->executors) most = std::max(most, executor->arena_high_water());
  }
  return plan_->memory_bytes_peak() - plan_->arena_bytes() + most;
}

}  // namespace epl
