#include "core/runtime/session.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/check.h"
#include "core/base/exception.h"
#include "core/base/hash.h"
#include "core/program/transfer.h"
#include "core/runtime/sharing.h"

namespace epl {

namespace {

Status check_bounds(const Entry& entry, std::span<const Tensor> inputs, ForeignTensors& foreign,
                    const CallOptions& options) {
  for (const InputBound& bound : entry.bounds) {
    const Tensor& given = inputs[static_cast<size_t>(bound.input)];
    if (given.empty()) continue;  // no rank here reads it
    Tensor loaded;
    if (device_memory_of(given) != nullptr) {
      EPL_ASSIGN(loaded, foreign.load(given));
    }
    const Tensor& input = loaded.empty() ? given : loaded;
    const int64_t wrong = find_out_of_bounds(bound, input);
    if (wrong < 0) continue;
    const std::string& name = entry.inputs[static_cast<size_t>(bound.input)].name;
    const int dim = entry.samples.inputs[static_cast<size_t>(bound.input)];
    const int64_t row = row_of(input.type(), dim, wrong);
    std::string position = row >= 0 && options.position ? options.position(static_cast<size_t>(bound.input), row) : "";
    if (position.empty()) position = element_text(input.type(), dim, wrong);
    return invalid("input ", name, " ", bound_text(bound, input, wrong), " (", position, ", node ", bound.node, ")")
        .at(name);
  }
  return {};
}

// Whether commands may fail that nobody waits for before the state changes: those of another stream than the first, and
// copies from and to another memory.
bool may_fail_late(const Program& program) {
  const auto moves = [](const Instruction& in) { return in.transfer && (in.transfer->fetches || in.transfer->evicts); };
  return program.streams > 1 ||
         std::any_of(program.instructions.begin() + program.commit_begin, program.instructions.end(), moves);
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

}  // namespace

// Inputs of full batches, already checked but for what they hold.
Session::Outcome Session::execute(const Entry& entry, std::span<const Tensor> inputs, const CallOptions& options,
                                  StepPhase phase) {
  if (!state_->healthy()) {
    return {.status = world_->give_up(Status(
                Code::state_lost,
                "an earlier step failed while the weights were changing; restore the session from a checkpoint"))};
  }
  const bool trains = entry.kind == EntryKind::train, applies = trains && phase == StepPhase::update;
  const size_t index = index_of(entry);
  if (const Status bounds = applies ? Status() : check_bounds(entry, inputs, *foreign_, options); !bounds.ok())
    return {.status = world_->give_up(bounds)};
  if (const Status placed = place_inputs(entry, inputs); !placed.ok()) return {.status = world_->give_up(placed)};
  scalars_.clear();
  if (trains) plan_->scalars(entry, facts(phase), scalars_);
  RunRequest request{.inputs = input_pointers_,
                     .outputs = output_pointers_,
                     .input_devices = input_devices_,
                     .output_devices = output_devices_,
                     .behind = foreign_->events(),
                     .scalars = scalars_,
                     .seed = host_state_->seed(),
                     .step = host_state_->steps_done(),
                     .verdict_output = entry.verdict_output,
                     .applies = applies,
                     .stop = options.stop,
                     .gate = &state_->gate()};
  if (world_->over_processes()) {
    world_->call().begin_program(entry.kind, phase);
    if (const Status told = describe_run(request, entry, inputs); !told.ok()) return {.status = world_->give_up(told)};
  }
  if (trains && !applies) {
    if (const Status same = check_gradients(entry, request); !same.ok()) return {.status = same};
  }
  Outcome outcome = run_ranks(index, request);
  const int64_t verdict = outcome.done ? world_->ranks().front().executors[index]->verdict() : -1;
  outcome.counts_nothing = verdict == 0 && counts_nothing(entry);
  if (outcome.counts_nothing && phase != StepPhase::update) state_->clear_gradients();
  // At 1 the scale is not what makes gradients too large, and neither is it where the loss is.
  outcome.overflowed = verdict >= 1 && !applies && plan_->mixed_precision().dynamic && host_state_->loss_scale() > 1;
  if (outcome.overflowed) {
    log_overflow(entry, inputs, request, verdict);
  } else if (verdict >= 0 && !outcome.counts_nothing) {
    outcome.skipped = reason(entry, inputs, request, verdict);
  }
  return outcome;
}

// Where the ranks find them. What has to be put together here is.
Status Session::place_inputs(const Entry& entry, std::span<const Tensor> inputs) {
  input_pointers_.clear();
  input_devices_.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (device_memory_of(inputs[i]) == nullptr) {
      input_pointers_.push_back(slices_.memory_of(entry, i, inputs[i]));
      input_devices_.push_back(nullptr);
    } else if (slices_.is_staged(entry, i)) {
      EPL_ASSIGN(const Tensor here, foreign_->load(inputs[i]));
      input_pointers_.push_back(slices_.memory_of(entry, i, here));
      input_devices_.push_back(nullptr);
    } else {
      input_pointers_.push_back(slices_.memory_of(entry, i, inputs[i]));
      input_devices_.push_back(foreign_->device_of(inputs[i]));
    }
  }
  return {};
}

void Session::place_outputs(std::span<const Tensor> outputs) {
  output_pointers_.clear();
  output_devices_.clear();
  for (const Tensor& output : outputs) {
    output_pointers_.push_back(address_of(output));
    output_devices_.push_back(foreign_->device_of(output));
  }
}

// To the other processes. A glance at each full batch tells whether all have the same.
Status Session::describe_run(const RunRequest& request, const Entry& entry, std::span<const Tensor> inputs) {
  std::vector<Tensor> here;
  if (!slices_.full()) inputs = {};
  if (ForeignTensors::any(inputs)) {
    EPL_ASSIGN(here, foreign_->load_all(inputs));
    inputs = here;
  }
  world_->call().describe_run(request.step, entry, inputs);
  return {};
}

void Session::log_overflow(const Entry& entry, std::span<const Tensor> inputs, const RunRequest& request,
                           int64_t verdict) {
  const bool asked = plan_->mixed_precision().debug_log;
  const double scale = host_state_->loss_scale();
  log(host_, asked ? LogLevel::warning : LogLevel::debug, "step ", host_state_->steps_done() + 1,
      " overflows at a loss scale of ", scale, ", which is halved; nothing has changed",
      asked ? cat(": ", reason(entry, inputs, request, verdict).message()) : "");
}

// Whether the loss of the last step is NaN because it is over nothing.
bool Session::counts_nothing(const Entry& entry) {
  if (entry.counted_output < 0) return false;
  return results_->next(entry)[static_cast<size_t>(entry.counted_output)].get(0) == 0;
}

// Whatever ends it, the other ranks do not wait for this one, and nothing that it has issued goes on.
void Session::run_rank(size_t index, const RunRequest& request, LocalRank& rank) {
  Executor& executor = *rank.executors[index];
  rank.bug = false;
  try {
    if (world_->over_processes()) rank.world->watch([&] { return executor.check_stop(); });
    rank.status = executor.run(request, rank.groups_of_entry[index]);
  } catch (const InternalError&) {
    rank.bug = true;
    rank.status = current_exception_status();
  } catch (...) {
    rank.status = current_exception_status();
  }
  if (world_->over_processes()) {
    rank.world->watch(nullptr);
    rank.world->hasten(nullptr);
  }
  if (rank.status.ok()) return;
  Status said = Status::no_memory();
  try {
    const bool own = rank.status.code() != Code::cancelled && rank.status.code() != Code::deadline_exceeded;
    if (own && rank.status.code() != Code::peer_failed) rank.status = rank.status.of_rank(rank.number);
    said = Status(Code::peer_failed, cat("rank ", rank.number, ": ", rank.status.message()), rank.status.where())
               .of_rank(rank.status.rank())
               .of_rank(rank.number);
  } catch (const std::bad_alloc&) {  // then there is less to say
  }
  if (rank.world) rank.world->abort(said);
  executor.drain();
}

Session::Outcome Session::run_ranks(size_t index, const RunRequest& request) {
  const LocalRanks& ranks = world_->ranks();
  for (const auto& rank : ranks) rank->events_before = rank->events.size();
  const Status entered = world_->run(request.stop, [&](LocalRank& rank) { run_rank(index, request, rank); });
  if (!entered.ok()) return {.status = entered};
  measure_memory();
  // The first cause wins over the ranks that only heard of it.
  Status failure;
  bool asked = false, reached = false;
  for (const auto& rank : ranks) {
    const Executor::Agreement agreement = rank->executors[index]->agreement();
    reached = reached || agreement == Executor::Agreement::reached;
    asked = asked || agreement == Executor::Agreement::asked;
    if (rank->status.ok()) continue;
    if (failure.ok() || (failure.code() == Code::peer_failed && rank->status.code() != Code::peer_failed))
      failure = rank->status;
  }
  if (!failure.ok() || request.diagnose) {  // a step that did not happen is not recorded
    for (const auto& rank : ranks) rank->events.resize(rank->events_before);
  }
  const bool over_processes = world_->over_processes();
  if (!failure.ok()) {
    const bool bug = std::ranges::any_of(ranks, [](const auto& rank) { return rank->bug; });
    // Where no rank here has heard that all agree, none here has changed anything; one of another process may have.
    state_->note_failure(reached || bug, over_processes && asked);
    failure = world_->abort(failure);                 // an aborted group is never used again
    if (bug) throw InternalError(failure.message());  // the C API poisons the session
    return {.status = failure};
  }
  if (!over_processes || request.diagnose) return {.done = !request.diagnose};
  const Entry& entry = plan_->entries()[index];
  if (reached && std::ranges::any_of(entry.programs, may_fail_late)) {
    if (Outcome ended = end_together(index); !ended.status.ok()) return ended;
  }
  // A step that has changed the state is not given up any more.
  LocalRank& first = ranks.front();
  if (entry.kind != EntryKind::train) first.world->watch([&] { return first.executors[index]->check_stop(); });
  Status shared;
  try {
    shared = share_outputs(entry, request);
  } catch (...) {
    shared = world_->abort(current_exception_status());
  }
  if (first.world) first.world->watch(nullptr);
  return {.status = shared, .done = true};
}

// What fails in another process while the state changes is a step that this one has done: all wait until all have, so
// that each call of a job ends alike in all processes.
Session::Outcome Session::end_together(size_t index) {
  LocalRank& first = world_->ranks().front();
  first.world->hasten([&] { return !first.executors[index]->check_stop().ok(); });
  const Status ended = world_->among_processes({.kind = Collective::Kind::barrier});
  first.world->hasten(nullptr);
  // Who is gone has taken its part of the state along, and what is left is that of one step.
  const bool gone = !world_->lost().ok();
  if (!ended.ok() && !gone) state_->note_failure(false, true);
  return {.status = ended, .done = gone};
}

Status Session::share_outputs(const Entry& entry, const RunRequest& request) {
  for (size_t i = 0; i < entry.outputs.size(); ++i) {
    auto* full = static_cast<std::byte*>(request.outputs[i]);
    const ProgramPort* port = nullptr;
    for (size_t t = 0; full != nullptr && port == nullptr && t < entry.programs.size(); ++t) {
      const std::vector<ProgramPort>& ports = entry.programs[t].outputs;
      const auto found = std::ranges::find(ports, static_cast<int>(i), &ProgramPort::index);
      if (found == ports.end()) continue;
      port = &*found;
      EPL_TRY(share_output(*world_, entry.mesh(static_cast<int>(t)), *port, full, parts_));
    }
  }
  return {};
}

Status Session::step(std::span<const Tensor> inputs, StepMetrics& metrics, const CallOptions& options) {
  return train(StepPhase::all, inputs, metrics, options);
}

Status Session::gradients(std::span<const Tensor> inputs, StepMetrics& metrics, const CallOptions& options) {
  return train(StepPhase::gradients, inputs, metrics, options);
}

Status Session::apply(StepMetrics& metrics, const CallOptions& options) {
  return train(StepPhase::update, {}, metrics, options);
}

Status Session::train(StepPhase phase, std::span<const Tensor> inputs, StepMetrics& metrics,
                      const CallOptions& options) {
  if (plan_->entries().front().kind != EntryKind::train)
    return world_->give_up(Status(Code::invalid_argument, "the plan was made without a trainer and only predicts"));
  if (phase != StepPhase::all && !plan_->options().train.keep_gradients)
    return world_->give_up(invalid("this plan keeps no gradients; set keep_gradients = true of its trainer"));
  const double began = host_.seconds();
  const StateGate::Change change(state_->gate(), false);  // begins with the update
  KeptGradients& kept = state_->gradients();
  const Entry* entry = &plan_->entries().front();  // an update is the same in all shapes
  if (phase == StepPhase::update) {
    EPL_TRY(world_->give_up(kept.check()));
  } else {
    const auto fitting = fit(EntryKind::train, inputs, options);
    EPL_TRY(world_->give_up(fitting.status()));
    entry = fitting->entry;
  }
  EPL_TRY(world_->give_up(foreign_->begin(*entry, inputs, {}, options.stream)));
  EPL_TRY(state_->compare_if_due(phase, options.stop));
  // What a batch gave in which nothing counts is no update by zeros: momentum and decay would change the weights.
  const bool idle = phase == StepPhase::update && kept.count_nothing() && state_->healthy();
  if (!idle) results_->begin_step(*entry, phase, output_pointers_);
  output_devices_.clear();
  const Outcome outcome =
      idle ? Outcome{.done = true, .counts_nothing = true} : execute(*entry, inputs, options, phase);
  if (!outcome.done) return outcome.status;
  // What a step gave that was skipped is in its metrics, and nowhere that the next call looks.
  const bool made = outcome.skipped.ok() && !outcome.overflowed;
  if (made && !idle) results_->keep_step(*entry, phase);
  std::vector<Tensor>& given = made ? results_->last(*entry) : results_->next(*entry);
  if (made && phase != StepPhase::update) batch_loss_ = Results::loss_of(*entry, given);
  metrics.skipped = outcome.skipped;
  metrics.counts_nothing = outcome.counts_nothing;
  metrics.overflowed = outcome.overflowed;
  // Who takes gradients must not take those of an earlier batch for them.
  if (outcome.overflowed && phase == StepPhase::gradients)
    metrics.skipped = Status(Code::not_finite, cat("gradients overflow at a loss scale of ", host_state_->loss_scale(),
                                                   ", which is halved; the same call may be made again"));
  metrics.step = host_state_->steps_done();
  metrics.loss = made || phase == StepPhase::update ? batch_loss_ : Results::loss_of(*entry, given);
  metrics.counts_in_part = phase != StepPhase::update && made && !outcome.counts_nothing && std::isnan(metrics.loss);
  metrics.learning_rate = plan_->learning_rate(facts(phase));
  metrics.gradient_norm = -1;
  for (size_t i = 0; i < given.size(); ++i) {
    // Norms belong to the update, which has not run.
    if (outcome.counts_nothing && entry->outputs[i].name.starts_with("gradient_norm")) given[i].set(0, 0);
    if (entry->outputs[i].name == "gradient_norm") metrics.gradient_norm = given[i].get(0);
  }
  metrics.seconds = host_.seconds() - began;
  host_state_->after(metrics, phase);
  if (!made) return outcome.status;
  if (phase == StepPhase::gradients) {
    kept.computed(outcome.counts_nothing);
  } else {
    kept.taken("they were applied already");
  }
  if (outcome.status.ok()) log_step(host_, metrics, phase != StepPhase::update);
  return outcome.status;  // not ok: the step was done, and then a process was lost
}

StepFacts Session::facts(StepPhase phase) const {
  StepFacts facts = host_state_->facts(phase);
  facts.last_output = [this](std::string_view name) { return results_->last_output(name); };
  return facts;
}

double Session::virtual_seconds() const {
  double latest = 0;
  for (const auto& rank : world_->ranks()) {
    if (const VirtualClock* clock = rank->stream->clock()) latest = std::max(latest, clock->seconds());
  }
  return latest;
}

}  // namespace epl
