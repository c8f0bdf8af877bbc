#include "core/compile/entry.h"

#include <algorithm>
#include <set>

#include "core/compile/applied.h"
#include "core/compile/plan_file.h"
#include "core/ir/expand.h"
#include "core/ir/rewriter.h"
#include "core/strategy/pass.h"

namespace epl {

std::string_view entry_name(EntryKind kind) {
  switch (kind) {
    case EntryKind::train:
      return "train";
    case EntryKind::evaluate:
      return "evaluate";
    case EntryKind::predict:
      return "predict";
    case EntryKind::check:
      return "check";
  }
  return "?";
}

std::string entry_name(EntryKind kind, int shape) {
  return shape == 0 ? std::string(entry_name(kind)) : cat(entry_name(kind), "@", shape);
}

std::string inputs_text(const Entry& entry) {
  std::string out;
  for (const Port& port : entry.inputs) out += cat(out.empty() ? "" : ", ", port.name, " ", port.global_type.text());
  return out;
}

MemoryKind memory_beside(Device& device) {
  const Device& own = device.stands_for().of_rank(0);
  for (const MemoryKind kind : {MemoryKind::host, MemoryKind::file}) {
    if (own.has_memory(kind)) return kind;
  }
  return MemoryKind::device;
}

namespace {

// What the caller gives and gets, and which of it are the programs' ports.
void find_ports(Entry& entry) {
  const Graph& graph = *entry.plan.graph;
  for (Value v : graph.leaves(ValueKind::input))
    entry.inputs.push_back({graph.value(v).name, entry.plan.global_type(v)});
  for (Value v : graph.leaves(ValueKind::scalar)) entry.scalars.push_back(graph.value(v).name);
  for (const Graph::Output& output : graph.outputs)
    entry.outputs.push_back({output.name, entry.plan.global_type(output.value)});
  for (Program& program : entry.programs) {
    for (ProgramPort& port : program.inputs) {
      port.index = static_cast<int>(std::ranges::find(entry.inputs, port.name, &Port::name) - entry.inputs.begin());
    }
    for (ProgramPort& port : program.outputs) {
      port.index = static_cast<int>(std::ranges::find(entry.outputs, port.name, &Port::name) - entry.outputs.begin());
    }
    for (ProgramScalar& scalar : program.scalars) {
      scalar.index = static_cast<int>(std::ranges::find(entry.scalars, scalar.name) - entry.scalars.begin());
    }
  }
}

// By the passes, or from a file.
Result<Plan> plan_of(const EntryMaker& maker, EntryKind kind, const std::string& name,
                     const std::shared_ptr<const Graph>& graph, SamplePositions outputs) {
  const PlanOptions& options = maker.options;
  if (!options.decisions)
    return decide({.graph = graph,
                   .strategy = options.strategy,
                   .ranks = options.ranks,
                   .passes = kind == EntryKind::train ? maker.passes : std::string(),
                   .state_of = maker.before.empty() ? nullptr : &maker.before.front().plan,
                   .outputs = std::move(outputs),
                   .machine = maker.device.machine(),
                   .beside = memory_beside(maker.device),
                   .solved = options.solved.get()});
  EPL_TRY(check_graph(*options.decisions, name, *graph));
  EPL_ASSIGN(Plan plan, parse_plan(*options.decisions->entry(name), graph));
  if (plan.ranks() != options.ranks)
    return error(Code::data_loss, "the plan file has decisions for ", plan.ranks(), " ranks, not ", options.ranks);
  return plan;
}

// Of what each micro-batch has for itself and not for each sample, the caller gets the mean, if it is one number.
Status check_outputs(const Plan& plan) {
  const Graph& graph = *plan.graph;
  for (const Graph::Output& output : graph.outputs) {
    const Value v = output.value;
    if (!plan.alone(v) || plan.shardings[v].cut_dim(batch_axis) >= 0 || graph.type(v).elements() == 1) continue;
    return unsupported("output ", output.name, " ", graph.type(v).text(),
                       " is made of all samples of a micro-batch together, and batch.semantics = per_micro_batch has ",
                       plan.micro_batches(), " of them; leave it out")
        .at(output.name);
  }
  return {};
}

}  // namespace

Result<Entry> decide_entry(const EntryMaker& maker, EntryKind kind, int shape, Graph graph, SamplePositions outputs) {
  const PlanOptions& options = maker.options;
  Device& device = maker.device;
  Entry entry;
  entry.kind = kind;
  entry.shape = shape;
  graph.name = entry_name(kind);  // also of other shapes: what a program does depends on its graph alone
  const std::vector<std::string> notes = agree_on_samples(graph, options.named_batch_dims);
  EPL_TRY(verify(graph));
  EPL_TRY(options.stop.check());
  entry.graph = std::make_shared<const Graph>(std::move(graph));
  std::set<const KernelTable*> tables;
  for (int rank = 0; rank < options.ranks; ++rank) tables.insert(&device.of_rank(rank).kernels());
  const auto has_kernel = [&](std::string_view op, DType dtype) {
    return std::ranges::all_of(tables, [&](const KernelTable* table) { return table->takes(op, dtype); });
  };
  EPL_ASSIGN(Graph expanded, expand_composites(*entry.graph, has_kernel));
  auto planned = plan_of(maker, kind, entry.name(), std::make_shared<const Graph>(without_dead_nodes(expanded)),
                         std::move(outputs));
  if (!planned.ok()) {
    const Status& why = planned.status();
    return notes.empty() ? why : Status(why.code(), cat(why.message(), "; ", join(notes, "; ")), why.where());
  }
  entry.plan = *std::move(planned);
  entry.notes = notes;
  EPL_TRY(check_outputs(entry.plan));
  return entry;
}

Result<Lowered> lower_plan(const EntryMaker& maker, const Plan& plan) {
  Device& device = maker.device;
  return lower(plan, {.kernels = &device.kernels(), .device = &device.stands_for(), .threads = maker.threads},
               maker.options.stop);
}

Status lower_entry(const EntryMaker& maker, Entry& entry) {
  const EntryKind kind = entry.kind;
  const PlanOptions& options = maker.options;
  EPL_ASSIGN(Lowered made, lower_plan(maker, entry.plan));
  entry.locals = std::move(made.locals);
  entry.programs = std::move(made.programs);
  for (size_t c = 0; c < entry.programs.size() && kind == EntryKind::train && options.train.keep_gradients; ++c) {
    EPL_ASSIGN(std::vector<bool> applied, applied_instructions(entry.locals[c], entry.programs[c]));
    entry.applied.push_back(std::move(applied));
  }
  find_ports(entry);
  for (size_t i = 0; i < entry.outputs.size(); ++i) {
    const std::string& name = entry.outputs[i].name;
    if (name == "loss") entry.loss_output = static_cast<int>(i);
    if (name == scores_name) entry.loss_scores = static_cast<int>(i);
    if (name == terms_name) entry.loss_terms = static_cast<int>(i);
    if (name == weights_name) entry.loss_weights = static_cast<int>(i);
    const bool trains = kind == EntryKind::train || kind == EntryKind::check;
    if (trains && name == verdict_output) entry.verdict_output = static_cast<int>(i);
    if (kind != EntryKind::predict && name == counted_output) entry.counted_output = static_cast<int>(i);
  }
  entry.first_output = kind == EntryKind::evaluate ? 1 + (entry.loss_scores >= 0) + (entry.loss_terms >= 0) +
                                                         (entry.loss_weights >= 0) + (entry.counted_output >= 0)
                                                   : 0;
  entry.bounds = input_bounds(*entry.plan.graph, maker.loss, options.train.loss.target_input);
  entry.samples = sample_dims(entry.plan);
  EPL_ASSIGN(entry.merges, output_merges(entry.plan));
  return {};
}

// All other decisions are those of train, so that nothing else can make a difference.
Result<std::optional<Entry>> check_entry_of(const EntryMaker& maker, const Entry& train) {
  std::optional<Entry> check;
  if (!maker.options.strategy.flag("gradient_checkpoint.check_gradients") || train.plan.node_recomputed.empty())
    return check;
  check.emplace();
  check->kind = EntryKind::check;
  check->shape = train.shape;
  check->graph = train.graph;
  check->plan = train.plan;
  check->plan.node_recomputed = {};
  EPL_TRY(lower_entry(maker, *check));
  return check;
}

}  // namespace epl
