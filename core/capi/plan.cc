// Plans: everything decided, nothing allocated.
#include "core/capi/plan.h"

#include <algorithm>

#include "core/base/shown.h"
#include "core/base/stop_hook.h"
#include "core/base/suggestion.h"
#include "core/capi/describe.h"
#include "core/compile/annotations.h"
#include "core/compile/plan_memory.h"
#include "core/compile/sample_slices.h"
#include "core/frontend/binding.h"
#include "core/runtime/auto_parallel.h"
#include "core/runtime/rehearsal.h"

namespace epl::capi {

namespace {

// Null where there is none.
const Entry* find_entry(const CompiledPlan& plan, int32_t entry) {
  const int32_t kind = entry % EPL_ENTRY_SHAPE;
  if (entry < 0 || kind > EPL_ENTRY_PREDICT) return nullptr;
  return plan.entry(static_cast<EntryKind>(kind), entry / EPL_ENTRY_SHAPE);
}

}  // namespace

Result<const Entry*> entry_argument(const CompiledPlan& plan, int32_t entry) {
  if (const Entry* found = find_entry(plan, entry)) return found;
  const int32_t kind = entry % EPL_ENTRY_SHAPE, shape = entry / EPL_ENTRY_SHAPE;
  if (entry < 0 || kind > EPL_ENTRY_PREDICT)
    return invalid("entry is ", entry, ", which is no entry: train, evaluate and predict are");
  if (shape >= plan.shapes())
    return error(Code::not_found, "the plan has no shape ", shape, "; it has ", plan.shapes(), ", counted from 0");
  return error(Code::not_found, "the plan has no ", entry_name(static_cast<EntryKind>(kind)), " entry");
}

Status check_ranks(const CompiledPlan& plan, int64_t first_rank, int64_t ranks) {
  const int64_t world = plan.options().ranks;
  if (first_rank < 0 || ranks < 1 || ranks > world || first_rank > world - ranks)
    return invalid("a slice of ", ranks, " ranks from rank ", first_rank, " on; the plan has ", world);
  return {};
}

namespace {

// "graph", "predict.graph" or "train@1.graph".
Result<std::string> print_stage(const epl_plan& handle, std::string_view stage) {
  const CompiledPlan& plan = *handle.plan;
  if (stage == "explain") {
    const Result<Rehearsal> rehearsal = rehearse(handle.engine->host, handle.plan);
    if (!rehearsal.ok()) return cat(plan.explain(), "no step is predicted: ", rehearsal.status().message(), "\n");
    return plan.explain() + explain(plan, make_overview(plan, *rehearsal));
  }
  EntryKind kind = plan.entries().front().kind;
  int of_shape = 0;
  std::string_view part = stage;
  for (EntryKind one : {EntryKind::train, EntryKind::evaluate, EntryKind::predict}) {
    for (int shape = 0; shape < plan.shapes(); ++shape) {
      const std::string prefix = cat(entry_name(one, shape), ".");
      if (!stage.starts_with(prefix)) continue;
      kind = one;
      of_shape = shape;
      part.remove_prefix(prefix.size());
    }
  }
  const std::vector<std::string> stages = {"graph", "plan", "local", "program", "kernels", "texts", "explain"};
  if (std::ranges::find(stages, part) == stages.end() || part == "explain")
    return error(Code::not_found, "a plan has no text ", shown(stage), choices(stage, stages));
  return plan.text(kind, part, of_shape);
}

Result<std::string> describe_plan(const epl_plan& handle, std::string_view document) {
  const CompiledPlan& plan = *handle.plan;
  if (document == "overview") {
    EPL_ASSIGN(const Rehearsal rehearsal, rehearse(handle.engine->host, handle.plan));
    return describe_overview(plan, make_overview(plan, rehearsal));
  }
  if (document == "memory") return describe_memory(plan);
  if (document == "parameters") return describe_parameters(plan);
  if (document == "notes") return describe_notes(plan);
  const std::vector<std::string> documents = {"overview", "memory", "parameters", "notes"};
  return error(Code::not_found, "a plan has no document ", shown(document), choices(document, documents));
}

// An initialiser that a group names in full is a parameter, whatever it looks like in the file.
void name_parameters(const epl_trainer& trainer, Binding& binding) {
  for (const epl_trainer::Group& group : trainer.groups) {
    for (const std::string& pattern : group.patterns) {
      if (!group.frozen && (group.constants || pattern.find_first_of("*?") == std::string::npos))
        binding.parameters.insert(pattern);
    }
  }
  for (const std::string& pattern : trainer.train_only) {
    if (pattern.find_first_of("*?") == std::string::npos) binding.parameters.insert(pattern);
  }
}

bool has_input(const Model& model, const std::string& name) {
  return std::ranges::find(model.inputs(), name, &ModelPort::name) != model.inputs().end();
}

// It is the loss's own input, unless the model has one of this name.
void leave_target_to_loss(const Model& model, const std::string& target, Binding& binding) {
  if (has_input(model, target)) return;
  binding.input_shapes.erase(target);
  binding.batch_dims.erase(target);
}

// The first shape with other sizes.
Result<PlanShape> bind_shape(const epl_trainer& trainer, const epl_trainer::Sizes& sizes, const Model& model,
                             const PlanOptions& request) {
  PlanShape out{request.binding, request.train.loss.target};
  for (const auto& [symbol, size] : sizes.symbols) out.binding.symbols[symbol] = size;
  for (const auto& [input, shape] : sizes.inputs) out.binding.input_shapes[input] = shape;
  const std::string& name = trainer.settings.loss_target;
  EPL_TRY(check_binding(out.binding, trainer.input_types, model, {name}));
  const auto target = sizes.inputs.find(name);
  if (has_input(model, name)) return out;  // it is the model's own
  if (target == sizes.inputs.end()) {
    if (out.target)
      return invalid("the trainer binds the target to ", out.target->text(),
                     "; this shape needs the target's dims too");
    return out;
  }
  if (!out.target)
    return invalid(
        "the element type of the target is not known; bind it for the first shape, by the trainer's bind_input");
  out.target->shape = target->second;
  return out;
}

// What the trainer says of the inputs.
Status bind_trainer(const epl_trainer& trainer, const Model& model, PlanOptions& request) {
  const std::string& target = trainer.settings.loss_target;
  EPL_TRY(check_binding(trainer.binding, trainer.input_types, model, {target}));
  if (trainer.binding.input_shapes.contains(target) && !trainer.input_types.contains(target) &&
      !has_input(model, target))
    return invalid("the target ", shown(target, 200), " needs an element type; the model does not know it");
  request.training = trainer.settings.loss != "none";
  if (request.training) {
    EPL_ASSIGN(request.train, resolve_trainer(trainer));
  }
  request.binding = trainer.binding;
  request.binding.free_batch = trainer.settings.free_batch;
  request.binding.max_trip_counts = trainer.settings.max_trip_counts;
  request.adapters.specs = trainer.adapters;
  name_parameters(trainer, request.binding);
  for (const auto& [name, dim] : trainer.binding.batch_dims) request.named_batch_dims.insert(name);
  for (size_t s = 0; s < trainer.shapes.size(); ++s) {
    auto shape = bind_shape(trainer, trainer.shapes[s], model, request);
    if (!shape.ok()) return shape.status().with_context(cat("shape ", s + 1));
    request.shapes.push_back(*std::move(shape));
  }
  leave_target_to_loss(model, target, request.binding);
  for (PlanShape& shape : request.shapes) leave_target_to_loss(model, target, shape.binding);
  return {};
}

void log_plan(const Host& host, const CompiledPlan& plan) {
  if (host.least_logged > LogLevel::info) return;
  std::string entries;
  for (const Entry& entry : plan.entries())
    entries += cat(entries.empty() ? "" : ", ", entry.name(), " of ", entry.programs.front().instructions.size(),
                   " instructions");
  log(host, LogLevel::info, "plan: ", entries, "; ", plan.options().ranks,
      plan.options().ranks == 1 ? " rank" : " ranks", " of ", plan.threads_per_rank(),
      plan.threads_per_rank() == 1 ? " thread, " : " threads, ", PlanMemory(plan).peak(), " bytes each at their peak; ",
      plan.trained().size(), " parameters are trained, ", plan.untrained().size(), " are not");
  for (const std::string& note : plan.device()->notes()) log(host, LogLevel::debug, "device: ", note);
}

const std::vector<Port>* ports_of(const epl_plan* plan, int32_t entry, int32_t kind) {
  const Entry* found = alive(plan) ? find_entry(*plan->plan, entry) : nullptr;
  if (found == nullptr) return nullptr;
  if (kind == EPL_PORT_INPUT) return &found->inputs;
  if (kind == EPL_PORT_OUTPUT) return &found->outputs;
  return nullptr;
}

}  // namespace

Result<PlanWish> plan_wish(const epl_model& model, const epl_trainer* trainer, const epl_strategy* strategy,
                           const epl_plan_options* options) {
  epl_plan_options known = EPL_PLAN_OPTIONS_INIT;
  EPL_TRY(copy_options(options, known, "epl_plan_options"));
  if (known.ranks < 0 || known.ranks > most_ranks)
    return invalid("ranks is ", known.ranks, "; 1 to ", most_ranks, " can be asked for");
  if (known.local_ranks < 0 || (known.ranks != 0 && known.local_ranks > known.ranks))
    return invalid("local_ranks is ", known.local_ranks, " of ", known.ranks, " ranks");
  PlanWish wish{.seed = known.seed};
  PlanOptions& request = wish.options;
  request.training = false;
  if (trainer != nullptr) {
    EPL_TRY(with_caller(const_cast<epl_trainer*>(trainer), "trainer",
                        [&] { return bind_trainer(*trainer, *model.model, request); }));
    request.adapters.seed = known.seed;
  }
  if (!request.training) {
    // Nothing says which dimension counts samples, and without a loss nothing needs to know: the batch is not cut.
    for (const ModelPort& input : model.model->inputs()) {
      request.binding.batch_dims.try_emplace(input.name, -1);
      for (PlanShape& shape : request.shapes) shape.binding.batch_dims.try_emplace(input.name, -1);
    }
  }
  request.rewrites = model.rewrites;
  request.model = model.model;
  if (strategy != nullptr) {
    EPL_TRY(with_caller(const_cast<epl_strategy*>(strategy), "strategy",
                        [&]() -> Status { return request.strategy = strategy->strategy, Status(); }));
  }
  request.ranks = known.ranks;
  request.local_ranks = known.local_ranks;
  if (known.device != nullptr) {
    EPL_ASSIGN(request.device, text_argument(known.device, known.device_length, "plan option device"));
  }
  return wish;
}

Result<std::unique_ptr<epl_plan>> made_plan(const epl_model& model, const PlanWish& wish) {
  auto made = std::make_unique<epl_plan>();
  made->engine = model.engine;
  made->seed = wish.seed;
  EPL_ASSIGN(made->plan, plan_in_parallel(model.engine->host, wish.options));
  log_plan(model.engine->host, *made->plan);
  return made;
}

}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

void epl_plan_options_init(epl_plan_options* options) {
  if (options) *options = EPL_PLAN_OPTIONS_INIT;
}

epl_error* epl_plan_create(const epl_model* model, const epl_trainer* trainer, const epl_strategy* strategy,
                           const epl_plan_options* options, const epl_call_options* call, epl_plan** plan) {
  return giving(plan, "plan", [&]() -> Result<std::unique_ptr<epl_plan>> {
    EPL_REQUIRE(model);
    EPL_ASSIGN(const Call begun, begin_call(*model->engine, call));
    EPL_ASSIGN(PlanWish wish, plan_wish(*model, trainer, strategy, options));
    wish.options.stop = begun.stop;
    if (wish.options.ranks == 0) wish.options.ranks = 1;
    return made_plan(*model, wish);
  });
}

void epl_plan_destroy(epl_plan* plan) { destroy(plan); }

int64_t epl_plan_port_count(const epl_plan* plan, int32_t entry, int32_t kind) {
  const auto* ports = ports_of(plan, entry, kind);
  return ports ? static_cast<int64_t>(ports->size()) : 0;
}

epl_error* epl_plan_port(const epl_plan* plan, int32_t entry, int32_t kind, int64_t index, epl_tensor_info* info) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(plan);
    EPL_REQUIRE(info);
    const auto* ports = ports_of(plan, entry, kind);
    if (ports == nullptr || index < 0 || index >= static_cast<int64_t>(ports->size())) {
      return invalid("there is no port ", index, " of kind ", kind, " of entry ", entry, "; there are ",
                     ports ? ports->size() : 0);
    }
    const Port& from = (*ports)[static_cast<size_t>(index)];
    return write_info(from.name, from.global_type.dtype, from.global_type.shape, info);
  });
}

epl_error* epl_plan_slice(const epl_plan* plan, int32_t entry, int64_t input, int64_t first_rank, int64_t ranks,
                          int64_t* first, int64_t* samples) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(plan);
    EPL_REQUIRE(first);
    EPL_REQUIRE(samples);
    EPL_ASSIGN(const Entry* found, entry_argument(*plan->plan, entry));
    const auto inputs = static_cast<int64_t>(found->inputs.size());
    if (input < 0 || input >= inputs) return invalid("there is no input ", input, "; there are ", inputs);
    EPL_TRY(check_ranks(*plan->plan, first_rank, ranks));
    const SampleRange range = samples_read(*plan->plan, *found, static_cast<size_t>(input),
                                           static_cast<int>(first_rank), static_cast<int>(ranks));
    *first = range.first;
    *samples = range.count;
    return {};
  });
}

int64_t epl_plan_ranks(const epl_plan* plan) { return alive(plan) ? plan->plan->options().ranks : 0; }

int64_t epl_plan_memory_bytes_peak(const epl_plan* plan, int64_t rank) {
  if (!alive(plan) || rank < 0 || rank >= plan->plan->options().ranks) return -1;
  return PlanMemory(*plan->plan)
      .peak(plan->plan->entries().front().plan.virtual_device_of_rank(static_cast<int>(rank)));
}

int64_t epl_plan_find_port(const epl_plan* plan, int32_t entry, int32_t kind, const char* name, size_t name_length) {
  const auto* ports = ports_of(plan, entry, kind);
  if (ports == nullptr || name == nullptr) return -1;
  const auto found = std::ranges::find(*ports, std::string_view(name, name_length), &Port::name);
  return found == ports->end() ? -1 : found - ports->begin();
}

epl_error* epl_plan_print(const epl_plan* plan, const char* stage, size_t stage_length, const epl_call_options* call,
                          epl_text** text) {
  return giving_text(text, "text", [&]() -> Result<std::string> {
    EPL_REQUIRE(plan);
    EPL_TEXT_ARGUMENT(stage);
    EPL_ASSIGN(const Call begun, begin_call(*plan->engine, call));
    return print_stage(*plan, stage_text);
  });
}

epl_error* epl_plan_describe(const epl_plan* plan, const char* document, size_t document_length,
                             const epl_call_options* call, epl_text** json) {
  return giving_text(json, "json", [&]() -> Result<std::string> {
    EPL_REQUIRE(plan);
    EPL_TEXT_ARGUMENT(document);
    EPL_ASSIGN(const Call begun, begin_call(*plan->engine, call));
    return describe_plan(*plan, document_text);
  });
}

epl_error* epl_plan_export_onnx(const epl_plan* plan, const char* path, size_t path_length,
                                const epl_call_options* call) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(plan);
    EPL_TEXT_ARGUMENT(path);
    EPL_ASSIGN(const Call begun, begin_call(*plan->engine, call));
    EPL_ASSIGN(const DeviceAnnotations annotations, device_annotations(plan->plan->entries().front().plan));
    return plan->plan->options().model->save(std::string(path_text), {},
                                             {.annotations = &annotations, .hook = stop_hook(begun.stop)});
  });
}
