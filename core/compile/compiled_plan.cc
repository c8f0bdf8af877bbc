#include "core/compile/compiled_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/check.h"
#include "core/compile/amp.h"
#include "core/compile/budget.h"
#include "core/compile/plan_file.h"
#include "core/rewrite/rewrite.h"
#include "core/strategy/built.h"
#include "core/strategy/samples.h"
#include "core/train/kept_outputs.h"
#include "core/train/masters.h"
#include "core/train/precision.h"

namespace epl {

std::string_view gradient_of(const CompiledPlan& plan, std::string_view name) {
  if (!plan.options().train.keep_gradients || !name.ends_with(gradient_suffix)) return {};
  name.remove_suffix(gradient_suffix.size());
  return std::ranges::find(plan.trained(), name) == plan.trained().end() ? std::string_view() : name;
}

namespace {

constexpr std::string_view reduce_method = "communication.gradients_reduce_method";

// Where each micro-batch is independent: the binding of one, from the graph of all samples. A file that fixes its
// batch is freed of it, and what its constants say of a batch (the capacity of a gate) is then said of a micro-batch.
// `batch`: the samples of all.
Result<Binding> of_micro_batch(const PlanOptions& options, Binding binding, Graph graph, int64_t micro_batches,
                               int64_t& batch) {
  agree_on_samples(graph, options.named_batch_dims);
  for (Value v : graph.leaves(ValueKind::input)) {
    const ValueInfo& info = graph.value(v);
    binding.batch_dims[info.name] = info.batch_dim;
    if (info.batch_dim < 0) continue;
    Shape shape = info.type.shape;
    int64_t& samples = shape[static_cast<size_t>(info.batch_dim)];
    if (samples % micro_batches != 0)
      return invalid("input ", info.name, " has ", samples, " samples, which ", micro_batches,
                     " micro-batches do not divide");
    batch = samples;
    samples /= micro_batches;
    const auto port = std::ranges::find(options.model->inputs(), info.name, &ModelPort::name);
    if (port != options.model->inputs().end() && port->dims.size() == shape.size()) {
      const auto& [in_file, symbol] = port->dims[static_cast<size_t>(info.batch_dim)];
      binding.free_batch = binding.free_batch || (in_file >= 0 && in_file != samples);
      if (binding.symbols.contains(symbol)) binding.symbols[symbol] = samples;
    }
    binding.input_shapes[info.name] = std::move(shape);
  }
  return binding;
}

// The model's graph with its fused meaning restored (attention, norms, ...).
Result<Graph> bind(const PlanOptions& options, const Binding& binding, int64_t independent, int64_t& batch) {
  EPL_TRY(options.stop.check());
  EPL_ASSIGN(Graph graph, options.model->bind(binding));
  if (options.rewrites) {
    EPL_ASSIGN(graph, rewrite_graph(graph));
  }
  if (binding.free_batch) EPL_TRY(require_independent_samples(graph));
  if (independent < 2) return graph;
  EPL_ASSIGN(const Binding of_one, of_micro_batch(options, binding, std::move(graph), independent, batch));
  auto made = options.model->bind(of_one);
  if (!made.ok()) return made.status().with_context("one micro-batch by itself");
  return options.rewrites ? rewrite_graph(*made) : std::move(made);
}

// The binding of an entry with the loss: it may be applied to a tensor inside the graph, and what else there is may
// then be left out.
Binding with_loss_output(const PlanOptions& options, Binding binding) {
  const std::string name(loss_output_name(options.train.loss));
  if (!name.empty()) binding.inner_outputs.push_back(name);
  return binding;
}

// Where the model computes in float16 itself, not where only its weights are stored so.
bool computes_in_float16(const Graph& graph) {
  for (int n = 0; n < graph.node_count(); ++n) {
    const Node& node = graph.node(NodeId{n});
    if (node.op->moves != Moves::converted && graph.type(node.outputs[0]).dtype == DType::f16) return true;
  }
  return false;
}

std::string outputs_left_out(const Model& model, const Graph& graph) {
  std::vector<std::string> names;
  for (const ModelPort& port : model.outputs()) {
    if (std::ranges::find(graph.outputs, port.name, &Graph::Output::name) == graph.outputs.end())
      names.push_back(port.name);
  }
  return join(names, ", ");
}

bool same_names(const std::vector<Adapter>& a, const std::vector<Adapter>& b) {
  return std::ranges::equal(a, b, {}, &Adapter::a, &Adapter::a);
}

}  // namespace

// The model's graph with its adapters, which are the same in every entry.
Result<Graph> CompiledPlan::bound(Binding binding, Binding::Mode mode) {
  binding.mode = mode;
  std::vector<std::string> notes;
  binding.notes = &notes;
  EPL_ASSIGN(Graph graph, bind(options_, binding, independent_, batch_));
  add_notes(notes);
  if (options_.train.precision == DType::f64) {
    EPL_ASSIGN(graph, with_float64(graph));
  }
  if (!options_.adapters.specs.empty()) {
    EPL_ASSIGN(Adapted adapted, insert_adapters(graph, options_.adapters, mode == Binding::Mode::train));
    if (adapters_.empty()) {
      adapters_ = adapted.adapters;
      add_notes(adapted.notes);
    }
    if (!same_names(adapters_, adapted.adapters))
      return unsupported(
          "the model has other layers when it is trained than when it predicts, so adapters cannot serve both");
    graph = std::move(adapted.graph);
  }
  if (mixed_.narrow()) {
    EPL_ASSIGN(graph, with_mixed_precision(graph, mixed_.type));
  }
  return options_.training ? with_masters(graph, training()) : std::move(graph);
}

// The target is that of a micro-batch, where each is independent.
LossSpec CompiledPlan::loss_spec() const {
  LossSpec out = options_.train.loss;
  out.target = target_;
  const int dim = out.target_batch_dim;
  if (!out.target || dim < 0 || dim >= out.target->ndim()) return out;
  int64_t& samples = out.target->shape[static_cast<size_t>(dim)];
  if (samples == batch_) samples /= independent_;
  return out;
}

// Micro-batches of one sample do not show where outputs count samples: the graph of all of them does.
Result<SamplePositions> CompiledPlan::positions_of(const std::function<Result<Graph>()>& make) {
  if (independent_ < 2 || batch_ != independent_) return SamplePositions();
  const int64_t independent = std::exchange(independent_, 1);
  Result<Graph> graph = make();
  independent_ = independent;
  EPL_TRY(graph.status());
  agree_on_samples(*graph, options_.named_batch_dims);
  return sample_positions(*graph);
}

// How it is trained, the names of its adapters included.
TrainOptions CompiledPlan::training() const {
  TrainOptions out = options_.train;
  out.loss = loss_spec();
  out.independent_micro_batches = independent_ > 1;
  out.scales_loss = mixed_.scaled();
  if (options_.strategy.text(reduce_method) != "mean") out.gradient_factor = static_cast<double>(independent_);
  for (const Adapter& one : adapters_) out.adapters.insert(out.adapters.end(), {one.a, one.b});
  return out;
}

// Evaluation is the forward pass and the loss, without dropout and with running statistics. What metrics are made of
// comes out with it: the loss's terms and the model's outputs, which cost nothing where the caller does not want them.
Result<Graph> CompiledPlan::evaluation_graph(const Binding& binding) {
  EPL_ASSIGN(Graph graph, bound(with_loss_output(options_, binding), Binding::Mode::evaluate));
  graph.updates.clear();
  EPL_ASSIGN(MeasuredLoss loss, add_measured_loss(graph, loss_spec()));
  std::vector<Graph::Output> outputs = {{"loss", loss.value}};
  if (loss.scores) outputs.push_back({std::string(scores_name), loss.scores});
  if (loss.terms) outputs.push_back({std::string(terms_name), loss.terms});
  if (loss.weights) outputs.push_back({std::string(weights_name), loss.weights});
  if (loss.counted) outputs.push_back({std::string(counted_output), loss.counted});
  for (Graph::Output& output : graph.outputs) {
    const bool taken = output.name == "loss" || output.name == scores_name || output.name == terms_name ||
                       output.name == weights_name || output.name == counted_output;
    outputs.push_back({taken ? cat("output:", output.name) : std::move(output.name), output.value});
  }
  graph.outputs = std::move(outputs);
  return graph;
}

Status CompiledPlan::add_train_entry(const Binding& binding, int shape) {
  const PlanOptions& options = options_;
  EPL_ASSIGN(Graph forward, bound(with_loss_output(options, binding), Binding::Mode::train));
  if (!mixed_.scaled() && computes_in_float16(forward)) {
    add_notes(
        {"the model computes in float16, whose gradients are not scaled here: below 6e-8 they become zero; in "
         "bfloat16 or float32 nothing is lost"});
  }
  if (const std::string names = outputs_left_out(*options.model, forward); !names.empty()) {
    add_notes(
        {cat("outputs that need what is not supported are left out, since the loss is on another tensor: ", names)});
  }
  std::vector<std::string> kept = options.train_outputs;
  for (const Graph::Output& output : forward.outputs) {
    if (!mergings_of(options.strategy, output.name).empty()) kept.push_back(output.name);
  }
  EPL_ASSIGN(TrainStep step, build_train_step(forward, training(), kept));
  EPL_ASSIGN(SamplePositions outputs, positions_of([&]() -> Result<Graph> {
               EPL_ASSIGN(Graph all, bound(with_loss_output(options, binding), Binding::Mode::train));
               EPL_ASSIGN(TrainStep of_all, build_train_step(all, training(), kept));
               return std::move(of_all.graph);
             }));
  if (shape > 0 && step.trained != trained_)
    return unsupported("the model has other parameters to train at these sizes: ", step.trained.size(), " instead of ",
                       trained_.size());
  trained_ = step.trained;
  untrained_ = step.untrained;
  rates_ = step.rates;
  first_group_ = step.first_group;
  add_notes(step.notes);
  loss_ = step.loss;
  schedule_ = step.schedule;
  for (const HostScalar& scalar : step.scalars) {
    const ValueInfo& info = step.graph.value(scalar.value);
    if (std::ranges::find(scalars_, info.name, &Scalar::name) == scalars_.end())
      scalars_.push_back({info.name, info.type.dtype, scalar.at});
  }
  EPL_TRY(add_entry(EntryKind::train, shape, std::move(step.graph), std::move(outputs), loss_));
  EPL_ASSIGN(std::optional<Entry> check, check_entry_of(maker(loss_), entries_.back()));
  if (check) entries_.push_back(*std::move(check));
  return {};
}

EntryMaker CompiledPlan::maker(const LossFacts& loss) const {
  return {.options = options_,
          .device = *device_,
          .threads = threads_,
          .loss = loss,
          .before = entries_,
          .passes = passes_};
}

Status CompiledPlan::add_entry(EntryKind kind, int shape, Graph graph, SamplePositions outputs, const LossFacts& loss) {
  const EntryMaker maker = this->maker(loss);
  EPL_ASSIGN(Entry made, decide_entry(maker, kind, shape, std::move(graph), std::move(outputs)));
  EPL_TRY(lower_entry(maker, made));
  entries_.push_back(std::move(made));
  return {};
}

// Each once, though every shape has it to say.
void CompiledPlan::add_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) {
    if (std::ranges::find(notes_, note) == notes_.end()) notes_.push_back(note);
  }
}

// The entries of one shape.
Status CompiledPlan::add_entries(int shape) {
  const PlanOptions& options = options_;
  const PlanShape* other = shape == 0 ? nullptr : &options.shapes[static_cast<size_t>(shape - 1)];
  const Binding& binding = other ? other->binding : options.binding;
  target_ = other ? other->target : options.train.loss.target;
  if (options.training) EPL_TRY(add_train_entry(binding, shape));
  if (options.training && options.evaluate) {
    EPL_ASSIGN(Graph graph, evaluation_graph(binding));
    EPL_ASSIGN(SamplePositions outputs, positions_of([&] { return evaluation_graph(binding); }));
    EPL_TRY(add_entry(EntryKind::evaluate, shape, std::move(graph), std::move(outputs), loss_));
  }
  if (options.predict || !options.training) {
    const auto prediction = [&] {
      Result<Graph> graph = bound(binding, Binding::Mode::evaluate);
      if (!graph.ok() && graph.status().code() == Code::unsupported && options.training) {
        graph = bound(with_loss_output(options, binding), Binding::Mode::evaluate);  // what else there is is left out
      }
      if (graph.ok()) graph->updates.clear();
      return graph;
    };
    EPL_ASSIGN(Graph graph, prediction());
    EPL_ASSIGN(SamplePositions outputs, positions_of(prediction));
    EPL_TRY(add_entry(EntryKind::predict, shape, std::move(graph), std::move(outputs), {}));
  }
  return check_shape(shape);
}

// That a call's inputs tell its shape from those before it.
Status CompiledPlan::check_shape(int shape) const {
  const EntryKind kind = entries_.front().kind;
  const std::string inputs = inputs_text(*entry(kind, shape));
  for (int before = 0; before < shape; ++before) {
    if (inputs_text(*entry(kind, before)) == inputs)
      return invalid("its inputs are those of shape ", before, ": ", inputs);
  }
  return {};
}

// A strategy without scopes takes those that the model's file asks for, and the options beside them that it does not
// set itself. A default of its own says that it wants others.
Status CompiledPlan::take_annotations() {
  Strategy& strategy = options_.strategy;
  if (options_.ranks == 1 || !strategy.scopes.empty() || strategy.has_default) return {};
  constexpr std::string_view where = "the model's own annotations";
  constexpr std::string_view instead =
      R"(; a strategy with scopes, or with {"default": {"replicate": 1}}, does without)";
  auto text = options_.model->strategy(options_.ranks);
  if (!text.ok()) return text.status().with_context(cat(where, instead));
  if (text->empty()) return {};
  auto annotated = parse_strategy(*text);
  if (!annotated.ok()) return annotated.status().with_context(cat(where, instead));
  for (const Attributes::Entry& entry : strategy.config.entries()) annotated->config.set(entry.name, entry.value);
  strategy = *std::move(annotated);
  notes_.push_back(cat("the scopes are ", where, instead));
  return {};
}

namespace {

// What the verifiers of plans and programs find is our mistake, unless the decisions came from a file.
Status of_file(const std::string& why) {
  return error(Code::data_loss,
               "the plan file is damaged, or was changed by hand: its decisions cannot be carried out: ", why);
}

}  // namespace

Result<std::shared_ptr<const CompiledPlan>> CompiledPlan::create(const Host& host, const PlanOptions& given,
                                                                 int64_t* least) {
  if (!given.decisions) return compile_all(host, given, least);
  try {
    auto made = compile_all(host, given, least);
    if (made.status().code() == Code::internal) return of_file(made.status().message());
    return made;
  } catch (const InternalError& e) {
    return of_file(e.what());
  }
}

Result<std::shared_ptr<const CompiledPlan>> CompiledPlan::compile_all(const Host& host, const PlanOptions& given,
                                                                      int64_t* least) {
  EPL_ASSIGN(std::shared_ptr<CompiledPlan> plan, compile(host, given, {}));
  if (given.keeps_to_budget) {
    EPL_ASSIGN(const int64_t budget, memory_budget(plan->options_.strategy));
    if (budget > 0) EPL_TRY(keep_to_budget(host, given, budget, least, plan));
    for (Entry& entry : plan->entries_) {
      std::vector<std::string>& notes = entry.plan.notes;
      if (budget == 0 && entry.kind == EntryKind::train)
        notes.insert(notes.end(), given.notes.begin(), given.notes.end());
    }
  }
  EPL_TRY(given.stop.check());
  plan->forget_search(given);
  return std::shared_ptr<const CompiledPlan>(std::move(plan));
}

void CompiledPlan::forget_search(const PlanOptions& given) {
  options_.stop = Stop();
  options_.solved = nullptr;
  options_.threads = given.threads;
}

int CompiledPlan::threads_of(const Host& host, const PlanOptions& options) {
  const int64_t local_ranks = options.local_ranks > 0 ? options.local_ranks : options.ranks;
  const int64_t share = std::max<int64_t>(1, host.threads / std::max<int64_t>(local_ranks, 1));
  return options.threads > 0 ? options.threads : static_cast<int>(share);
}

Result<std::shared_ptr<CompiledPlan>> CompiledPlan::compile(const Host& host, const PlanOptions& given,
                                                            const std::string& passes) {
  auto plan = std::make_shared<CompiledPlan>();
  plan->options_ = given;
  plan->passes_ = passes;
  EPL_TRY(plan->take_annotations());
  EPL_TRY(check_needs(plan->options_.strategy));
  if (given.decisions) EPL_TRY(check_strategy(*given.decisions, plan->options_.strategy));
  const PlanOptions& options = plan->options_;
  plan->threads_ = threads_of(host, options);
  plan->independent_ = independent_micro_batches(options.strategy);
  if (options.strategy.text(reduce_method) != "mean" && options.strategy.text("batch.semantics") == "global")
    return unsupported(reduce_method, " = sum adds up the gradients of independent micro-batches, and by ",
                       "batch.semantics = global there are none: the loss is the mean of the full batch, and what a "
                       "copy has of it depends on the layout; say batch.semantics = per_micro_batch");
  EPL_ASSIGN(plan->mixed_, read_mixed_precision(options));
  const bool any_order = options.strategy.text("reproducible.level") == "run";
  EPL_ASSIGN(plan->device_, open_device(options.device, host,
                                        {.any_order = any_order,
                                         .folder = options.strategy.text("offload.folder"),
                                         .ranks = static_cast<int>(options.ranks)}));

  for (int shape = 0; shape < plan->shapes(); ++shape) {
    const Status added = plan->add_entries(shape);
    if (!added.ok()) return shape == 0 ? added : added.with_context(cat("shape ", shape));
  }
  EPL_TRY(plan->check_scopes());
  EPL_TRY(plan->check_merges());
  EPL_TRY(plan->check_meshes());
  EPL_TRY(plan->link_programs());
  for (const Entry& entry : plan->entries_) {
    if (entry.kind == plan->entries_.front().kind) plan->add_notes(entry.notes);
  }
  plan->constants_ = options.model->constants(options.binding);
  return plan;
}

const Entry* CompiledPlan::entry(EntryKind kind, int shape) const {
  auto it = std::ranges::find_if(entries_, [&](const Entry& one) { return one.kind == kind && one.shape == shape; });
  return it == entries_.end() ? nullptr : &*it;
}

void CompiledPlan::scalars(const Entry& entry, const StepFacts& facts, std::vector<uint64_t>& out) const {
  const std::vector<std::string>& names = entry.scalars;
  out.assign(names.size(), 0);
  for (size_t i = 0; i < out.size(); ++i) {
    const auto it = std::ranges::find(scalars_, names[i], &Scalar::name);
    EPL_CHECK(it != scalars_.end(), "nobody sets scalar ", names[i]);
    store_double(it->dtype, &out[i], 0, it->at(facts));
  }
}

double CompiledPlan::learning_rate(const StepFacts& facts) const {
  if (rates_.empty()) return 0;
  const std::span<const double> rates = facts.rates.empty() ? std::span<const double>(rates_) : facts.rates;
  return rates[static_cast<size_t>(first_group_)] * schedule_.factor(facts.step) * facts.rate_scale;
}

}  // namespace epl
