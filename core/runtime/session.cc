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

Result<const Entry*> Session::find_entry(EntryKind kind) const {
  const Entry* entry = plan_->entry(kind);
  if (!entry) return Status(Code::invalid_argument, cat("the plan has no ", entry_name(kind), " entry"));
  return entry;
}

namespace {

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
    return invalid("input ", name, " ", bound_text(bound, input, wrong), " (", place, ", node ", bound.node, ")")
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

void log_step(const Host& host, const StepMetrics& step, bool had_batch) {
  log(host, LogLevel::debug, "step ", step.step + 1, ": loss ", step.loss, ", ", step.seconds, " s");
  if (!had_batch) return;
  if (step.counts_nothing) {
    log(host, LogLevel::warning, "step ", step.step + 1,
        ": nothing in its batch counts: every target is ignored, or its class has weight 0; the loss is nan, and the "
        "step has changed nothing");
  } else if (step.counts_in_part) {
    log(host, LogLevel::warning, "step ", step.step + 1,
        ": a part of its loss is a mean over nothing, so the loss is nan; the other parts have trained");
  }
}

// No number has a sign.
double loss_in(const std::vector<Tensor>& results, const Entry& entry) {
  const double loss = results[static_cast<size_t>(entry.loss_output)].get(0);
  return std::isnan(loss) ? std::numeric_limits<double>::quiet_NaN() : loss;
}

}  // namespace

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
  if (outcome.counts_nothing && part != Part::update) clear_gradients();
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
  // What a batch gave in which nothing counts is no update by zeros: momentum and decay would change the weights.
  const bool idle = part == Part::update && gradients_count_nothing_ && healthy_;
  if (!idle) make_room(index, part);
  const Outcome outcome = idle ? Outcome{.done = true, .counts_nothing = true} : execute(*entry, inputs, options, part);
  if (!outcome.done) return outcome.status;
  // What a step gave that was skipped is in its metrics, and nowhere that the next call looks.
  const bool made = outcome.skipped.ok();
  if (made && !idle) take_results(index, part);
  std::vector<Tensor>& given = made ? results_[index] : next_results_[index];
  if (made && part != Part::update) {
    stepped_ = entry;
    batch_loss_ = loss_in(given, *entry);
  }
  last_applied_ = outcome.skipped.ok() && !outcome.counts_nothing;
  metrics.skipped = outcome.skipped;
  metrics.counts_nothing = outcome.counts_nothing;
  metrics.step = steps_done_;
  metrics.loss = made || part == Part::update ? batch_loss_ : loss_in(given, *entry);
  metrics.counts_in_part =
      part != Part::update && outcome.skipped.ok() && !outcome.counts_nothing && std::isnan(metrics.loss);
  metrics.learning_rate = plan_->learning_rate(facts(part));
  metrics.gradient_norm = -1;
  for (size_t i = 0; i < given.size(); ++i) {
    // Norms belong to the update, which has not run.
    if (outcome.counts_nothing && entry->outputs[i].name.starts_with("gradient_norm")) given[i].set(0, 0);
    if (entry->outputs[i].name == "gradient_norm") metrics.gradient_norm = given[i].get(0);
  }
  metrics.seconds = host_.seconds() - began;
  if (!made) return outcome.status;
  if (part == Part::gradients) {
    std::ranges::fill(has_gradient_, uint8_t{1});
    gradients_count_nothing_ = outcome.counts_nothing;
  } else {
    gradients_are("they were applied already");
    ++steps_done_;
    progress_.write({steps_done_, metrics.loss, metrics.gradient_norm, metrics.learning_rate, metrics.seconds});
  }
  if (outcome.status.ok()) log_step(host_, metrics, part != Part::update);
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
  gradients_count_nothing_ = false;
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
  if (trained == plan_->trained().end()) return;
  has_gradient_[static_cast<size_t>(trained - plan_->trained().begin())] = 1;
  gradients_count_nothing_ = false;
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
    loss = loss_in(results, *entry);
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

}  // namespace epl
