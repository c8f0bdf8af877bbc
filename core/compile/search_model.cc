// Measures layers in the plans and the traces of forms.
#include "core/compile/search_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/ir/op.h"
#include "core/program/describe.h"
#include "core/program/transfer.h"
#include "core/strategy/node_cost.h"
#include "core/strategy/recompute_stage.h"
#include "core/strategy/stage_cut.h"

namespace epl {
namespace {

// Which layer a node is in, by its name and that of its origin.
using LayersByName = std::map<std::string, int, std::less<>>;

LayersByName find_layers(const Plan& plan) {
  const Graph& graph = *plan.graph;
  ByValue<bool> on_inputs(graph.value_count());
  std::vector<std::string> chain;  // names of origins, each once
  int last_named = -1;
  for (const NodeId n : graph.node_ids()) {
    const Node& node = graph.node(n);
    if (node.phase != Phase::forward) continue;
    const bool sees = std::ranges::any_of(
        node.inputs, [&](Value v) { return v && (graph.value(v).kind == ValueKind::input || on_inputs[v]); });
    for (Value v : node.outputs) {
      if (v) on_inputs[v] = sees;
    }
    if (!sees || (!chain.empty() && chain.back() == node.origin_name())) continue;
    chain.push_back(node.origin_name());
    if (!layer_of(chain.back()).empty()) last_named = static_cast<int>(chain.size()) - 1;
  }
  LayersByName layers;
  std::map<std::string_view, int> named;
  int count = 0;
  bool behind = false;
  for (int i = 0; i < std::ssize(chain); ++i) {
    const std::string_view name = layer_of(chain[i]);
    int at = count - 1;
    if (last_named < 0 || count == 0 || (i > last_named && !behind)) {
      at = count++;
      behind = i > last_named;
      if (!name.empty()) named.emplace(name, at);
    } else if (!name.empty()) {
      const auto [known, is_new] = named.emplace(name, count);
      at = known->second;
      count += is_new ? 1 : 0;
    }
    layers.emplace(chain[i], at);
  }
  return layers;
}

// One form: what each layer takes and has on a rank.
class FormLayers {
 public:
  FormLayers(const RehearsedForm& form, const LayersByName& layers, int count)
      : form_(form),
        entry_(*form.plan->entry(EntryKind::train)),
        plan_(entry_.plan),
        graph_(*plan_.graph),
        cost_(of_threads(form.plan->device()->machine(), form.plan->threads_per_rank())),
        layers_(layers),
        made_(static_cast<size_t>(count)) {}

  std::vector<SearchLayer> run() {
    add_weights();
    add_results();
    add_inputs();
    add_seconds();
    add_ways();
    const double samples = of_rank();
    for (SearchLayer& layer : made_) {
      for (double* bytes : {&layer.kept, &layer.working, &layer.enters, &layer.given}) *bytes /= samples;
    }
    return std::move(made_);
  }

 private:
  int layer_at(NodeId n) const {
    const auto found = layers_.find(graph_.node(n).origin_name());
    return found == layers_.end() ? -1 : found->second;
  }

  // Samples.
  double of_rank() const { return static_cast<double>(plan_.batch) / static_cast<double>(form_.experts); }

  // What other ranks run in its place is none of this rank's.
  bool is_own(NodeId n) const {
    return plan_.node_representative.empty() || !plan_.node_representative[n] || plan_.node_representative[n] == n;
  }

  bool is_of_experts(Value v, int task_graph) const {
    const Sharding& lies = plan_.shardings[v];
    const std::vector<int>& axes = plan_.task_graphs[task_graph].experts;
    return std::ranges::any_of(axes, [&](int axis) { return lies.cut_dim(axis) >= 0; }) ||
           (!axes.empty() && !lies.rank_local.axes.empty());
  }

  void add_weights() {
    std::set<Value> seen;
    for (const NodeId n : graph_.node_ids()) {
      const int at = layer_at(n);
      if (at < 0 || !in_forward_pass(plan_, n) || !is_own(n)) continue;
      const int task_graph = plan_.node_task_graph[n];
      for (Value v : graph_.node(n).inputs) {
        if (!v || graph_.value(v).kind != ValueKind::parameter || !seen.insert(v).second) continue;
        (is_of_experts(v, task_graph) ? made_[at].expert_weights : made_[at].weights) +=
            local_bytes(plan_, task_graph, graph_.type(v), plan_.shardings[v]);
        made_[at].parameters += 1;
      }
    }
  }

  // What waits for the backward pass, what goes from layer to layer, and what the backward pass works on.
  void add_results() {
    std::map<Value, int> kept;  // and by which layer
    std::set<Value> gone;
    for (const NodeId n : graph_.node_ids()) {
      const int at = layer_at(n);
      const bool backward = in_backward_pass(plan_, n);
      if (at < 0 || !is_own(n) || (!backward && !in_forward_pass(plan_, n))) continue;
      double working = 0, gradient = 0;
      const auto look = [&](Value v, bool is_input) {
        v = viewed(graph_, v);
        const NodeId producer = v ? graph_.value(v).producer : NodeId{};
        if (!producer || !(in_forward_pass(plan_, producer) || in_backward_pass(plan_, producer))) return;
        const double bytes = result_bytes(plan_, v);
        const int from = layer_at(producer);
        if (!in_forward_pass(plan_, producer)) {
          (plan_.shardings[v].cut_dim(batch_axis) < 0 ? gradient : working) += bytes;
        } else if (backward && is_input && from >= 0) {
          keep(v, at, kept);
        } else if (!backward && is_input && from >= 0 && from < at && gone.insert(v).second) {
          // Until its last use; one that goes over several layers is counted where it comes in first.
          made_[from + 1].enters += bytes;
        }
      };
      for (Value v : graph_.node(n).inputs) look(v, true);
      for (Value v : graph_.node(n).outputs) look(v, false);
      if (!backward) continue;
      made_[at].working = std::max(made_[at].working, working);
      made_[at].gradient = std::max(made_[at].gradient, gradient);
    }
    for (const auto& [v, at] : kept) {
      const double bytes = result_bytes(plan_, v);
      made_[at].kept += bytes;
      const NodeId producer = graph_.value(v).producer;
      const int from = layer_at(producer);
      // What comes from another layer is kept in every way.
      if (from != at) continue;
      if (node_work(producer).kind() == WorkKind::product) {
        products_[at] += bytes;
      } else {
        others_[at] += node_seconds(cost_, plan_, producer, plan_.node_shardings[producer]);
      }
    }
  }

  // By the first layer that takes it, because the layers of its node and of who takes it may be in two stages. The
  // backward pass comes to the last layers first.
  static void keep(Value v, int at, std::map<Value, int>& kept) {
    int& layer = kept.emplace(v, at).first->second;
    layer = std::min(layer, at);
  }

  // A device of its own memory has a copy of what the caller gives, while a call needs it. One that several layers take
  // is the first one's.
  void add_inputs() {
    if (form_.plan->device()->shares_host_memory()) return;
    std::set<Value> seen;
    for (const NodeId n : graph_.node_ids()) {
      const int at = layer_at(n);
      if (at < 0 || !in_forward_pass(plan_, n)) continue;
      for (Value v : graph_.node(n).inputs) {
        v = viewed(graph_, v);
        if (v && graph_.value(v).kind == ValueKind::input && seen.insert(v).second)
          made_[at].given += local_bytes(plan_, plan_.node_task_graph[n], graph_.type(v), plan_.shardings[v]);
      }
    }
  }

  Work node_work(NodeId n) const { return work_of(plan_, n, plan_.node_shardings[n]); }

  void add_seconds() {
    const Program& program = entry_.programs.front();
    const std::vector<Phase> phases = phases_of(program, entry_.locals.front());
    struct Sum {
      double seconds = 0, launches = 0;
    };
    std::vector<Sum> forward(made_.size()), backward(made_.size());
    int current = 0;
    for (const TraceEvent& event : form_.trace.ranks.front().events) {
      if (event.instruction < 0) continue;
      const Phase phase = phases[static_cast<size_t>(event.instruction)];
      const Instruction& in = program.instructions[static_cast<size_t>(event.instruction)];
      // Sums over copies are counted where it is known how many there are.
      const bool of_copies = form_.experts > 1 && in.transfer && in.transfer->name == "all_reduce";
      if (phase == Phase::update || of_copies) continue;
      const int found = layer_of_instruction(in);
      if (found >= 0) current = found;
      Sum& sum = (phase == Phase::forward ? forward : backward)[static_cast<size_t>(current)];
      sum.seconds += event.end - std::max(event.begin, event.moves);
      sum.launches += cost_.launch();
    }
    const double samples = of_rank();
    for (size_t l = 0; l < made_.size(); ++l) {
      const double reading = cost_.memory(made_[l].weights + made_[l].expert_weights);
      const auto per_call = [&](const Sum& sum, double reads) {
        const double once = std::min(sum.seconds, sum.launches + reads);
        return PerCall{once, (sum.seconds - once) / samples};
      };
      made_[l].forward = per_call(forward[l], reading);
      // For the gradients of results; those of weights are written.
      made_[l].backward = per_call(backward[l], 2 * reading);
    }
  }

  // A transfer has the name of a value, and is where that is made: behind the node that is known.
  int layer_of_instruction(const Instruction& in) const {
    const Graph& local = entry_.locals.front().graph;
    const auto find = [&](const std::string& name) {
      const NodeId n = local.find_node(name);
      const auto found = n ? layers_.find(local.node(n).origin_name()) : layers_.end();
      return found == layers_.end() ? -1 : found->second;
    };
    for (const DoneNode& node : in.nodes) {
      if (const int at = find(node.name); at >= 0) return at;
    }
    return find(in.name);
  }

  // From the one that costs least.
  void add_ways() {
    const double samples = of_rank();
    for (int l = 0; l < std::ssize(made_); ++l) {
      SearchLayer& layer = made_[l];
      const double products = products_[l], enters = layer.enters;
      if (products + enters < layer.kept && products > enters)
        layer.again.push_back({{0, others_[l] / samples}, (products + enters) / samples});
      // The first layer has nothing in front of it, and the last one's results are taken at once.
      if (l > 0 && l + 1 < std::ssize(made_) && enters < layer.kept)
        layer.again.push_back({layer.forward, enters / samples});
    }
  }

  const RehearsedForm& form_;
  const Entry& entry_;
  const Plan& plan_;
  const Graph& graph_;
  const CostModel cost_;
  const LayersByName& layers_;
  std::vector<SearchLayer> made_;
  std::map<int, double> products_;  // by layer: bytes of what products give and the backward pass takes
  std::map<int, double> others_;    // the same: seconds of all else that makes what it takes
};

// All numbers of a layer, by which layers are alike.
void append_numbers(const SearchLayer& layer, std::vector<double>& out) {
  for (const PerCall& one : {layer.forward, layer.backward}) out.insert(out.end(), {one.once, one.sample});
  out.insert(out.end(), {layer.weights, layer.parameters, layer.expert_weights, layer.kept, layer.working, layer.enters,
                         layer.given, layer.gradient});
  for (const SearchLayer::Again& way : layer.again)
    out.insert(out.end(), {way.seconds.once, way.seconds.sample, way.kept});
}

// Times of a trace differ in their last bits.
double rounded(double number) {
  constexpr int bits = 24;
  int exponent = 0;
  const double fraction = std::frexp(number, &exponent);
  return std::ldexp(std::round(std::ldexp(fraction, bits)), exponent - bits);
}

// Numbers of layers become kinds.
void join_kinds(const std::vector<std::vector<SearchLayer>>& forms, SearchProblem& problem) {
  std::map<std::vector<double>, int> kinds;
  for (size_t l = 0; l < forms.front().size(); ++l) {
    std::vector<double> numbers;
    for (const std::vector<SearchLayer>& form : forms) append_numbers(form[l], numbers);
    std::ranges::transform(numbers, numbers.begin(), rounded);
    const auto [kind, is_new] = kinds.emplace(std::move(numbers), static_cast<int>(kinds.size()));
    problem.layers.push_back(kind->second);
    for (size_t f = 0; is_new && f < forms.size(); ++f) problem.forms[f].kinds.push_back(forms[f][l]);
  }
}

// Bytes of leaves for each byte of all parameters.
double share_of_weights(const Graph& graph, bool of_states) {
  double weights = 0, some = 0;
  for (const Value v : graph.leaves(ValueKind::parameter)) weights += static_cast<double>(graph.type(v).bytes());
  for (const Value v : graph.leaves(ValueKind::state)) some += static_cast<double>(graph.type(v).bytes());
  if (of_states) return weights > 0 ? some / weights : 0;
  double trained = 0;
  for (const Graph::Update& update : graph.updates) {
    if (graph.value(update.state).kind == ValueKind::parameter)
      trained += static_cast<double>(graph.type(update.state).bytes());
  }
  return weights > 0 ? trained / weights : 0;
}

// Of the bytes of gradients, those that go from rank to rank.
double summed_share(const Plan& plan) {
  double all = 0, summed = 0;
  for (const Value v : plan.sum_forms.ids()) {
    const TensorType& type = plan.graph->type(v);
    if (!plan.sum_form(v)) continue;
    all += static_cast<double>(type.bytes());
    summed += static_cast<double>(type.elements()) * static_cast<double>(dtype_bytes(plan.sum_form(v).type));
  }
  return all > 0 ? summed / all : 1;
}

// 0: they follow what is cut.
int64_t fixed_units(const Strategy& strategy, const Plan& plan) {
  const bool follow = strategy.text("reproducible.level") == "run" && strategy.integer("reproducible.units") == 0;
  return follow ? 0 : plan.units();
}

}  // namespace

Result<SearchProblem> search_problem_of(const std::vector<RehearsedForm>& forms, int64_t ranks) {
  const CompiledPlan& first = *forms.front().plan;
  const Entry& entry = *first.entry(EntryKind::train);
  if (entry.plan.batch < 1)
    return unsupported("plans for several ranks are searched by how they share samples, and no input counts any");
  const LayersByName layers = find_layers(entry.plan);
  int count = 0;
  for (const auto& [name, at] : layers) count = std::max(count, at + 1);
  if (count == 0) return unsupported("nothing that the model computes depends on its inputs");
  const Machine machine = of_threads(first.device()->machine(), first.threads_per_rank());
  SearchProblem problem{.cost = CostModel(machine)};
  problem.ranks = ranks;
  problem.devices = devices_of(machine, ranks);
  problem.batch = entry.plan.batch;
  problem.units = fixed_units(first.options().strategy, entry.plan);
  problem.gradients = share_of_weights(*entry.plan.graph, false);
  problem.summed = summed_share(entry.plan);
  problem.tree = true;
  problem.states = share_of_weights(*entry.plan.graph, true);
  const Program& program = entry.programs.front();
  problem.always = static_cast<double>(program.constant_bytes + program.scalar_bytes);
  problem.bytes = static_cast<double>(first.device()->memory_bytes());
  std::vector<std::vector<SearchLayer>> of_forms;
  for (const RehearsedForm& form : forms) {
    problem.forms.push_back({.name = form.name,
                             .ranks = form.plan->options().ranks / form.experts,
                             .sequence = form.sequence,
                             .experts = form.experts,
                             .staged = form.experts == 1,
                             .kinds = {}});
    of_forms.push_back(FormLayers(form, layers, count).run());
  }
  join_kinds(of_forms, problem);
  return problem;
}

}  // namespace epl
