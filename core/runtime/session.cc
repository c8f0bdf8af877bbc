#include "core/runtime/session.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/check.h"
#include "core/base/exception.h"
#include "core/base/hash.h"
#include "core/runtime/checkpoint.h"
#include "core/runtime/facts.h"
#include "core/runtime/mean_loss.h"
#include "core/runtime/session_rank.h"
#include "core/runtime/session_state.h"

namespace epl {

Session::Session(const Host& host, std::shared_ptr<const CompiledPlan> plan, const SessionOptions& options)
    : host_(host), plan_(std::move(plan)), options_(options), seed_(options.seed) {
  options_.stop = Stop();
}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::create(const Host& host, std::shared_ptr<const CompiledPlan> plan,
                                                 uint64_t seed) {
  return create(host, std::move(plan), SessionOptions{.seed = seed});
}

Result<std::unique_ptr<Session>> Session::create(const Host& host, std::shared_ptr<const CompiledPlan> plan,
                                                 const SessionOptions& options) {
  std::unique_ptr<Session> session(new Session(host, std::move(plan), options));
  const CompiledPlan& p = session->plan();
  session->device_ = options.device ? options.device : p.device();
  EPL_ASSIGN(const int local_ranks, session->local_ranks());
  for (int r = options.first_rank; r < options.first_rank + local_ranks; ++r) {
    auto rank = std::make_unique<Rank>();
    EPL_ASSIGN(rank->stream, session->device_->create_stream(p.threads_per_rank()));
    const int at = rank->rank_class = p.class_of_rank(r);
    const int64_t arena_bytes = options.predicts_only ? p.prediction_arena_bytes(at) : p.arena_bytes(at);
    if (options.predicts_only) {
      const int64_t state_bytes = p.prediction_state_bytes(at);
      EPL_ASSIGN(rank->store, ParameterStore::create_room(*session->device_, state_bytes, p.mesh(at), r));
    } else {
      EPL_ASSIGN(rank->store,
                 ParameterStore::create(*session->device_, *rank->stream, p.state_of(at), p.mesh(at), r, options.stop));
    }
    EPL_ASSIGN(rank->arena, session->device_->allocate(arena_bytes));
    for (const Entry& entry : p.entries()) {
      // Of the ranks here that have an output, or a piece of it, the first gives it.
      const Mesh& mesh = entry.mesh(at);
      const Cuts& batch = entry.programs[static_cast<size_t>(at)].batch;
      const auto batch_place = [&](int of) { return mesh.first_unit(batch, mesh.place(of)); };
      bool first = true, first_of_piece = true;
      for (int other = options.first_rank; other < r; ++other) {
        if (p.class_of_rank(other) != at) continue;
        first = false;
        first_of_piece = first_of_piece && batch_place(other) != batch_place(r);
      }
      if (!session->runs(entry)) {
        rank->executors.push_back(nullptr);
        continue;
      }
      EPL_TRY(options.stop.check());
      const Program& program = entry.programs[static_cast<size_t>(at)];
      EPL_ASSIGN(auto executor, Executor::create(session->host_, *session->device_, *rank->stream, program,
                                                 entry.agreement_bytes(at), rank->store, *rank->arena, mesh, r));
      executor->give_outputs(first, first_of_piece);
      if (!entry.applied.empty()) executor->set_applied(&entry.applied[static_cast<size_t>(at)]);
      rank->executors.push_back(std::move(executor));
    }
    session->ranks_.push_back(std::move(rank));
  }
  if (session->device_->executes() && local_ranks > 1) {
    const auto workers = host.workers ? host.workers : std::make_shared<Workers>(host.threads, wait_of(host));
    session->rank_threads_ = workers->teams(local_ranks);
    Team started(*session->rank_threads_);  // now, so that a step finds them
  }
  {
    const Call creating(*session, options.stop);
    EPL_TRY(session->connect(options.stop));
  }
  size_t max_inputs = 0, max_outputs = 0;
  for (const Entry& entry : p.entries()) {
    max_inputs = std::max(max_inputs, entry.inputs.size());
    max_outputs = std::max(max_outputs, entry.outputs.size());
    auto& results = session->results_.emplace_back();
    auto& next = session->next_results_.emplace_back();
    // Of evaluate and predict the rest is wanted by few, who bring the room.
    for (const Port& port : entry.outputs) {
      const bool merged = entry.merges[results.size()].has_value();
      const bool kept =
          session->runs(entry) &&
          (entry.kind == EntryKind::train || (entry.kind == EntryKind::evaluate && (merged || port.name == "loss")));
      results.push_back(kept ? Tensor(port.global_type) : Tensor());
      next.push_back(kept ? Tensor(port.global_type) : Tensor());
    }
  }
  if (p.options().train.keep_gradients) session->has_gradient_.assign(p.trained().size(), 0);
  session->gradients_are("none were computed yet");
  if (options.slices) EPL_TRY(session->find_slices());
  session->input_pointers_.reserve(max_inputs);
  session->output_pointers_.reserve(max_outputs);
  session->measure_memory();
  return session;
}

Result<int> Session::local_ranks() const {
  const int count = options_.ranks == 0 && options_.first_rank == 0 ? world() : options_.ranks;
  const int first = options_.first_rank;
  if (first < 0 || count < 1 || first > world() - count) {
    return invalid("a session of ", count, " ranks from rank ", first, " on; the plan has ", world(), " ranks");
  }
  if (count < world() && !options_.rendezvous) {
    return invalid("a session of ", count, " of ", world(), " ranks needs a rendezvous, where it finds the others");
  }
  return count;
}

Result<const Entry*> Session::find_entry(EntryKind kind) const {
  const Entry* entry = plan_->entry(kind);
  if (!entry) return Status(Code::invalid_argument, cat("the plan has no ", entry_name(kind), " entry"));
  return entry;
}

namespace {

// How many samples an input has, 0 where nothing counts them; an error if its type is not that of the plan but for this
// number.
Result<int64_t> samples_in(const Port& port, const TensorType& type, int dim, int64_t batch) {
  if (type == port.global_type) return dim < 0 ? 0 : batch;
  TensorType fitting = port.global_type;
  if (dim >= 0 && type.ndim() > dim) fitting.shape[static_cast<size_t>(dim)] = type.shape[static_cast<size_t>(dim)];
  const int64_t samples = dim >= 0 && type.ndim() > dim ? type.shape[static_cast<size_t>(dim)] : -1;
  if (fitting == type && samples > 0 && samples < batch) return samples;
  return invalid("input ", port.name, " is ", port.global_type.text(), " in the plan, got ", type.text()).at(port.name);
}

Status check_bounds(const Entry& entry, std::span<const Tensor> inputs, const CallOptions& options) {
  for (const InputBound& bound : entry.bounds) {
    const Tensor& input = inputs[static_cast<size_t>(bound.input)];
    if (input.empty()) continue;  // no rank here reads it
    const int64_t wrong = find_out_of_bounds(bound, input);
    if (wrong < 0) continue;
    const std::string& name = entry.inputs[static_cast<size_t>(bound.input)].name;
    const int dim = entry.samples.inputs[static_cast<size_t>(bound.input)];
    const int64_t row = row_of(input.type(), dim, wrong);
    std::string place = row >= 0 && options.place ? options.place(static_cast<size_t>(bound.input), row) : "";
    if (place.empty()) place = place_text(input.type(), dim, wrong);
    return invalid("input ", name, " ", bound_text(bound, cat(input.get_int(wrong))), " (", place, ", node ",
                   bound.node, ")")
        .at(name);
  }
  return {};
}

// The inputs as whole batches.
std::vector<Tensor> padded(const Entry& entry, std::span<const Tensor> inputs) {
  std::vector<Tensor> whole;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& type = entry.inputs[i].global_type;
    whole.push_back(inputs[i].type() == type ? inputs[i] : Tensor(type));
    if (inputs[i].type() != type) pad_samples(inputs[i], entry.samples.inputs[i], whole.back());
  }
  return whole;
}

}  // namespace

Result<Session::Fit> Session::fit(EntryKind kind, std::span<const Tensor> inputs, const CallOptions& options) const {
  EPL_ASSIGN(const Entry* first, find_entry(kind));
  Status why;
  Fit partial;
  std::string shapes;
  for (const Entry& entry : plan_->entries()) {
    if (entry.kind != kind) continue;
    const auto samples = samples_of(entry, inputs, options);
    if (samples.ok() && *samples == entry.samples.batch) return Fit{&entry, *samples};
    if (samples.ok() && partial.entry == nullptr) partial = {&entry, *samples};
    if (!samples.ok() && &entry == first) why = samples.status();
    if (plan_->shapes() > 1 && !samples.ok()) shapes += cat(shapes.empty() ? "" : "; ", inputs_text(entry));
  }
  if (partial.entry != nullptr) return partial;
  if (plan_->shapes() == 1 || inputs.size() != first->inputs.size()) return why;
  return Status(why.code(), cat(why.message(), "; no shape of the plan is like this: ", shapes), why.where());
}

// How many samples of the entry's batch these inputs hold.
Result<int64_t> Session::samples_of(const Entry& entry, std::span<const Tensor> inputs,
                                    const CallOptions& options) const {
  const bool is_train = entry.kind == EntryKind::train;
  if (inputs.size() != entry.inputs.size()) {
    std::string names;
    for (const Port& port : entry.inputs)
      names += cat(names.empty() ? "" : ", ", port.name, ": ", port.global_type.text());
    return invalid(entry_name(entry.kind), " takes ", entry.inputs.size(), " tensors (", names, "), got ",
                   inputs.size());
  }
  if (options.samples != 0 && slices_.empty())
    return invalid("samples is ", options.samples, "; it is for slices, and these inputs are whole");
  const int64_t batch = entry.samples.batch;
  const bool is_part = options.samples != 0 && options.samples != batch;
  if (options.samples < 0 || options.samples > batch || (is_part && is_train)) {
    return invalid("samples is ", options.samples, ", of a batch of ", batch,
                   is_train ? ", of which a step takes all" : "");
  }
  if (!slices_.empty()) {
    EPL_TRY(check_slices(entry, inputs));
    return options.samples > 0 ? options.samples : batch;
  }
  int64_t samples = 0;
  size_t first = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Port& port = entry.inputs[i];
    if (inputs[i].empty())
      return invalid("input ", port.name, " (", port.global_type.text(), ") is missing").at(port.name);
    EPL_ASSIGN(int64_t here, samples_in(port, inputs[i].type(), entry.samples.inputs[i], batch));
    if (here == 0) continue;
    if (samples != 0 && here != samples) {
      return invalid("input ", port.name, " holds ", here, " samples, input ", entry.inputs[first].name, " ", samples)
          .at(port.name);
    }
    if (samples == 0) first = i;
    samples = here;
  }
  samples = samples == 0 ? batch : samples;
  if (is_train && samples != batch) {
    return invalid("a step takes the whole batch of the plan, ", batch, " samples; got ", samples, " (input ",
                   entry.inputs[first].name, " ", inputs[first].type().text(),
                   "). Keep them for the next batch, or give the trainer a shape of ", samples,
                   " as well. Evaluation and prediction take fewer")
        .at(entry.inputs[first].name);
  }
  return samples;
}

// Inputs of whole batches, already checked but for what they hold.
Session::Outcome Session::execute(const Entry& entry, std::span<const Tensor> inputs, const CallOptions& options,
                                  Part part) {
  if (!healthy_) {
    return {.status = refuse(Status(
                Code::state_lost,
                "an earlier step failed while the weights were changing; restore the session from a checkpoint"))};
  }
  const bool applies = entry.kind == EntryKind::train && part == Part::update;
  const size_t index = index_of(entry);
  input_pointers_.clear();
  if (const Status bounds = applies ? Status() : check_bounds(entry, inputs, options); !bounds.ok())
    return {.status = refuse(bounds)};
  for (size_t i = 0; i < inputs.size(); ++i) input_pointers_.push_back(memory_of(entry, i, inputs[i]));
  if (entry.kind == EntryKind::train) {
    plan_->scalars(entry, facts(part), scalars_);
  } else {
    scalars_.clear();
  }
  RunRequest request{.inputs = input_pointers_,
                     .outputs = output_pointers_,
                     .scalars = scalars_,
                     .seed = seed_,
                     .step = steps_done_,
                     .verdict_output = entry.verdict_output,
                     .applies = applies,
                     .stop = options.stop,
                     .gate = &gate_};
  if (over_processes()) look_at(entry, inputs, part);
  Outcome outcome = run_ranks(index, request);
  const int64_t verdict = outcome.done ? ranks_[0]->executors[index]->verdict() : -1;
  outcome.counts_nothing = verdict == 0 && counts_nothing(entry);
  if (outcome.counts_nothing && part == Part::gradients) clear_gradients();
  if (verdict >= 0 && !outcome.counts_nothing) outcome.skipped = reason(entry, inputs, request, verdict);
  return outcome;
}

// Whether the loss of the last step is NaN because it is over nothing.
bool Session::counts_nothing(const Entry& entry) const {
  if (entry.counted_output < 0) return false;
  return next_results_[index_of(entry)][static_cast<size_t>(entry.counted_output)].get(0) == 0;
}

// The gradients that a batch has in which nothing counts.
void Session::clear_gradients() {
  const StateGate::Change change(gate_);
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = *ranks_[r];
    for (const StateSlot& slot : plan_->state_of(rank.rank_class).slots()) {
      if (!slot.name.ends_with(gradient_suffix)) continue;
      const bool kept = std::ranges::any_of(
          plan_->trained(), [&](const std::string& name) { return slot.name == cat(name, gradient_suffix); });
      if (kept && device_->executes()) rank.stream->fill(rank.store.data() + slot.offset, slot.local.bytes(), 0);
    }
  }
}

// On every local rank at once, or one after another where they are simulated and nothing blocks.
void Session::on_ranks(FunctionRef<void(int)> body) {
  if (rank_threads_) {
    Team team(*rank_threads_);
    team.threads().run(static_cast<int64_t>(ranks_.size()), [&](int64_t r, int) { body(static_cast<int>(r)); });
  } else {
    for (size_t r = 0; r < ranks_.size(); ++r) body(static_cast<int>(r));
  }
}

// Whatever ends it, the other ranks do not wait for this one, and nothing that it has issued goes on.
void Session::run_rank(size_t index, const RunRequest& request, int r) {
  Rank& rank = *ranks_[static_cast<size_t>(r)];
  Executor& executor = *rank.executors[index];
  const int number = options_.first_rank + r;
  rank.bug = false;
  try {
    if (over_processes()) rank.world->watch([&] { return executor.check_stop(); });
    rank.status = executor.run(request, rank.groups_of_entry[index]);
  } catch (const InternalError&) {
    rank.bug = true;
    rank.status = current_exception_status();
  } catch (...) {
    rank.status = current_exception_status();
  }
  if (over_processes()) {
    rank.world->watch(nullptr);
    rank.world->hasten(nullptr);
  }
  if (rank.status.ok()) return;
  Status said = Status::no_memory();
  try {
    const bool own = rank.status.code() != Code::cancelled && rank.status.code() != Code::deadline_exceeded;
    if (own && rank.status.code() != Code::peer_failed) rank.status = rank.status.of_rank(number);
    said = Status(Code::peer_failed, cat("rank ", number, ": ", rank.status.message()), rank.status.where())
               .of_rank(rank.status.rank())
               .of_rank(number);
  } catch (const std::bad_alloc&) {  // then there is less to say
  }
  if (rank.world) rank.world->abort(said);
  executor.drain();
}

Session::Outcome Session::run_ranks(size_t index, const RunRequest& request) {
  if (const Status connected = reconnect(request.stop); !connected.ok()) return {.status = connected};
  ++meetings_;
  for (const auto& rank : ranks_) rank->events_before = rank->events.size();
  on_ranks([&](int r) { run_rank(index, request, r); });
  measure_memory();
  // The first cause wins over the ranks that only heard of it.
  Status failure;
  bool asked = false, reached = false;
  for (const auto& rank : ranks_) {
    const Executor::Agreement agreement = rank->executors[index]->agreement();
    reached = reached || agreement == Executor::Agreement::reached;
    asked = asked || agreement == Executor::Agreement::asked;
    if (rank->status.ok()) continue;
    if (failure.ok() || (failure.code() == Code::peer_failed && rank->status.code() != Code::peer_failed))
      failure = rank->status;
  }
  if (!failure.ok() || request.diagnose) {  // a step that did not happen is not recorded
    for (const auto& rank : ranks_) rank->events.resize(rank->events_before);
  }
  if (!failure.ok()) {
    const bool bug = std::ranges::any_of(ranks_, [](const auto& rank) { return rank->bug; });
    // Where no rank here has heard that all agree, none here has changed anything; one of another process may have.
    whole_here_ = whole_here_ && !reached && !bug;
    if (!whole_here_ || (over_processes() && asked)) healthy_ = false;
    connected_ = false;  // an aborted group is never used again
    if (over_processes()) failure = give_up_world(failure);
    if (bug) throw InternalError(failure.message());  // the C API poisons the session
    return {.status = failure};
  }
  if (!over_processes() || request.diagnose) return {.done = !request.diagnose};
  // A step that has changed the state is not given up any more.
  const Entry& entry = plan_->entries()[index];
  Rank& first = *ranks_.front();
  if (entry.kind != EntryKind::train) first.world->watch([&] { return first.executors[index]->check_stop(); });
  Status shared;
  try {
    shared = share_outputs(entry, request);
  } catch (...) {
    shared = give_up_world(current_exception_status());
  }
  if (first.world) first.world->watch(nullptr);
  return {.status = shared, .done = true};
}

Status Session::step(std::span<const Tensor> inputs, StepMetrics& metrics, const CallOptions& options) {
  return train(Part::all, inputs, metrics, options);
}

Status Session::gradients(std::span<const Tensor> inputs, StepMetrics& metrics, const CallOptions& options) {
  return train(Part::gradients, inputs, metrics, options);
}

Status Session::apply(StepMetrics& metrics, const CallOptions& options) {
  return train(Part::update, {}, metrics, options);
}

Status Session::train(Part part, std::span<const Tensor> inputs, StepMetrics& metrics, const CallOptions& options) {
  if (plan_->entries().front().kind != EntryKind::train)
    return refuse(Status(Code::invalid_argument, "the plan was made without a trainer and only predicts"));
  if (part != Part::all && !plan_->options().train.keep_gradients)
    return refuse(invalid("this plan keeps no gradients; set keep_gradients = true of its trainer"));
  const double began = host_.seconds();
  const StateGate::Change change(gate_, false);    // begins with the update
  const Entry* entry = &plan_->entries().front();  // an update is the same in all shapes
  if (part == Part::update) {
    EPL_TRY(refuse(check_gradients()));
  } else {
    const auto fitting = fit(EntryKind::train, inputs, options);
    EPL_TRY(refuse(fitting.status()));
    entry = fitting->entry;
  }
  EPL_TRY(compare_if_due(part, options.stop));
  const size_t index = index_of(*entry);
  make_room(index, part);
  const Outcome outcome = execute(*entry, inputs, options, part);
  if (!outcome.done) return outcome.status;
  take_results(index, part);
  if (part != Part::update) stepped_ = entry;
  last_applied_ = outcome.skipped.ok() && !outcome.counts_nothing;
  metrics.skipped = outcome.skipped;
  metrics.counts_nothing = outcome.counts_nothing;
  metrics.step = steps_done_;
  metrics.loss = stepped_ ? results_[index_of(*stepped_)][static_cast<size_t>(stepped_->loss_output)].get(0)
                          : std::numeric_limits<double>::quiet_NaN();
  metrics.counts_in_part =
      part != Part::update && outcome.skipped.ok() && !outcome.counts_nothing && std::isnan(metrics.loss);
  metrics.learning_rate = plan_->learning_rate(facts(part));
  metrics.gradient_norm = -1;
  for (size_t i = 0; i < results_[index].size(); ++i) {
    // Norms belong to the update, which has not run.
    if (outcome.counts_nothing && entry->outputs[i].name.starts_with("gradient_norm")) results_[index][i].set(0, 0);
    if (entry->outputs[i].name == "gradient_norm") metrics.gradient_norm = results_[index][i].get(0);
  }
  metrics.seconds = host_.seconds() - began;
  if (!outcome.skipped.ok()) return outcome.status;
  if (part == Part::gradients) {
    std::ranges::fill(has_gradient_, uint8_t{1});
  } else {
    gradients_are("they were applied already");
    ++steps_done_;
    progress_.write({steps_done_, metrics.loss, metrics.gradient_norm, metrics.learning_rate, metrics.seconds});
  }
  return outcome.status;  // not ok: the step was done, and then a process was lost
}

// An update gives few numbers anew, and none of the samples: the others stay those of the batch.
void Session::make_room(size_t index, Part part) {
  output_pointers_.clear();
  for (size_t i = 0; i < next_results_[index].size(); ++i) {
    Tensor& room = next_results_[index][i];
    const bool wanted = part != Part::update || room.elements() == 1;
    if (part == Part::update && wanted)
      std::memcpy(room.data(), results_[index][i].data(), static_cast<size_t>(room.bytes()));
    output_pointers_.push_back(wanted ? room.data() : nullptr);
  }
}

void Session::take_results(size_t index, Part part) {
  for (size_t i = 0; i < next_results_[index].size(); ++i) {
    Tensor& room = next_results_[index][i];
    if (part != Part::update || room.elements() == 1) std::swap(results_[index][i], room);
  }
}

// There is none of any parameter, for this reason.
void Session::gradients_are(std::string_view why_not) {
  why_no_gradients_ = why_not;
  std::ranges::fill(has_gradient_, uint8_t{0});
}

// An update by gradients that are zero, of another batch's weights or applied already would change weights in silence.
Status Session::check_gradients() const {
  const auto missing = std::ranges::find(has_gradient_, 0);
  if (missing == has_gradient_.end()) return {};
  const bool none = std::ranges::find(has_gradient_, 1) == has_gradient_.end();
  const std::string& name = plan_->trained()[static_cast<size_t>(missing - has_gradient_.begin())];
  return Status(
      Code::misuse,
      cat("there ", none ? cat("are no gradients to apply: ") : cat("is no gradient of ", name, " to apply: "),
          why_no_gradients_, "; compute the gradients of a batch, or set ", none ? "them" : cat(name, gradient_suffix)),
      none ? std::string() : name);
}

// Gradients are of the weights and buffers that there were.
void Session::note_set(const StateSlot& slot) {
  if (has_gradient_.empty()) return;
  if (slot.kind == ValueKind::parameter || slot.kind == ValueKind::buffer)
    return gradients_are("those that there were are of other weights, which were set or loaded since");
  const std::string_view of = gradient_of(*plan_, slot.name);
  const auto trained = std::ranges::find(plan_->trained(), of);
  if (trained != plan_->trained().end()) has_gradient_[static_cast<size_t>(trained - plan_->trained().begin())] = 1;
}

void Session::set_steps_done(int64_t steps) {
  steps_done_ = steps;
  progress_.write({.steps = steps});
}

StepFacts Session::facts(Part part) const {
  return {.step = steps_done_,
          .rate_scale = rate_scale_.scale,
          .rates = rates_,
          .frozen = frozen_,
          .updates = part != Part::gradients,
          .gradients_given = part == Part::update,
          .last_applied = last_applied_,
          .last_output = [this](std::string_view name) -> const Tensor* {
            if (stepped_ == nullptr) return nullptr;
            const auto port = std::ranges::find(stepped_->outputs, name, &Port::name);
            if (port == stepped_->outputs.end()) return nullptr;
            return &results_[index_of(*stepped_)][static_cast<size_t>(port - stepped_->outputs.begin())];
          }};
}

Status Session::run(EntryKind kind, std::span<const Tensor> inputs, std::span<Tensor> outputs,
                    const CallOptions& options) {
  if (kind == EntryKind::train) return refuse(invalid("a train entry runs in steps"));
  const auto fitting = fit(kind, inputs, options);
  EPL_TRY(refuse(fitting.status()));
  const auto [entry, samples] = *fitting;
  EPL_TRY(refuse(check_room(*entry, samples, outputs)));
  output_pointers_.clear();
  for (Tensor& output : outputs) output_pointers_.push_back(output.data());
  if (samples == entry->samples.batch || !slices_.empty()) return execute(*entry, inputs, options).status;
  return execute(*entry, padded(*entry, inputs), options).status;
}

// Room for the outputs of a whole batch of which so many samples count.
Status Session::check_room(const Entry& entry, int64_t samples, std::span<const Tensor> outputs) const {
  const auto& ports = entry.outputs;
  if (outputs.size() != ports.size())
    return invalid(entry_name(entry.kind), " gives ", ports.size(), " outputs, got room for ", outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].empty()) continue;
    if (outputs[i].type() != ports[i].global_type) {
      return invalid("output ", ports[i].name, " is ", ports[i].global_type.text(), ", got room for ",
                     outputs[i].type().text());
    }
    if (samples != entry.samples.batch && entry.samples.outputs[i] < 0) {
      return unsupported("output ", ports[i].name, " does not keep the samples of a batch apart, so it needs all ",
                         entry.samples.batch, "; got ", samples)
          .at(ports[i].name);
    }
  }
  return {};
}

Status Session::evaluate(std::span<const Tensor> inputs, double& loss, const CallOptions& options) {
  const auto fitting = fit(EntryKind::evaluate, inputs, options);
  EPL_TRY(refuse(fitting.status()));
  const auto [entry, samples] = *fitting;
  const size_t index = index_of(*entry);
  std::vector<Tensor>& results = next_results_[index];
  if (samples == entry->samples.batch) {
    EPL_TRY(run(EntryKind::evaluate, inputs, results, options));
    loss = results[static_cast<size_t>(entry->loss_output)].get(0);
  } else {
    if (entry->loss_terms < 0) {
      return refuse(unsupported("the model computes its own loss of a whole batch, ", entry->samples.batch,
                                " samples; got ", samples));
    }
    MeanLoss mean;
    std::vector<Tensor> terms = MeanLoss::room(*entry);
    for (size_t i = 0; i < terms.size(); ++i) {
      if (terms[i].empty() && entry->merges[i] && entry->samples.outputs[i] >= 0) terms[i] = results[i];
    }
    EPL_TRY(run(EntryKind::evaluate, inputs, terms, options));
    mean.add(*entry, terms, samples);
    loss = mean.value();
  }
  std::swap(results_[index], results);
  evaluated_ = entry;
  evaluated_samples_ = samples;
  return {};
}

double Session::virtual_seconds() const {
  double latest = 0;
  for (const auto& rank : ranks_) latest = std::max(latest, rank->stream->virtual_seconds());
  return latest;
}

void Session::measure_memory() {
  int64_t fullest = 0;
  for (const auto& rank : ranks_) {
    int64_t arena = 0;
    for (const auto& executor : rank->executors) {
      if (executor) arena = std::max(arena, executor->arena_high_water());
    }
    const int at = rank->rank_class;
    fullest = std::max(fullest, plan_->memory_bytes_peak(at) - plan_->arena_bytes(at) + arena);
  }
  memory_bytes_used_.store(fullest, std::memory_order_relaxed);
}

}  // namespace epl
