#include "core/strategy/plan_text.h"

// The .plan text form: the decisions of a plan, beside the values and nodes of its graph, by name.
#include <algorithm>
#include <unordered_map>

#include "core/ir/op.h"
#include "core/strategy/mesh_text.h"

namespace epl {
namespace {

constexpr std::string_view reductions[] = {"sum", "max", "min", "owner"};

// "partial sum data.micro_batch": the axes of each kind of reduction that is pending.
std::string partial_text(const Plan& plan, const std::vector<Partial>& partial) {
  std::string out;
  using enum ShardingRule::Reduce;
  for (const auto kind : {sum, max, min, owner}) {
    std::vector<int> axes;
    for (const Partial& p : partial) {
      if (p.kind == kind) axes.push_back(p.axis);
    }
    if (!axes.empty())
      out += cat(" partial ", reductions[static_cast<size_t>(kind)], " ", axis_names(plan.mesh(), axes));
  }
  return out;
}

bool parse_axes(TextReader& reader, const Plan& plan, std::vector<int>& out) {
  std::string names;
  return !plan.meshes.empty() && reader.name(names) && parse_axis_names(names, plan.mesh(), out);
}

bool parse_sharding(TextReader& reader, const Plan& plan, Sharding& out) {
  if (plan.task_graphs.empty() || !parse_cuts(reader, plan.mesh(), out.dims)) return false;
  while (reader.take("partial")) {
    std::string word;
    std::vector<int> axes;
    if (!reader.name(word) || std::ranges::find(reductions, word) == std::end(reductions) ||
        !parse_axes(reader, plan, axes))
      return false;
    const auto kind = static_cast<ShardingRule::Reduce>(std::ranges::find(reductions, word) - std::begin(reductions));
    for (int axis : axes) out.partial.push_back({axis, kind});
  }
  return true;
}

// What stands for values and nodes that are rank-local, by name. The tables are there once anything is.
class Representatives {
 public:
  explicit Representatives(const Graph& graph) : graph_(graph) {}
  // The next value and node, whose tables of shardings have those before them; false: there is no such representative.
  bool add_value(Plan& plan, const std::string& representative) {
    const Value v = representative.empty() ? Value() : graph_.find(representative);
    return (representative.empty() || v) &&
           set(plan.value_representative, Value{plan.shardings.size()}, graph_.value_count(), v);
  }
  bool add_node(Plan& plan, const std::string& representative) {
    if (representative.empty()) return true;
    if (nodes_.empty()) {
      for (const NodeId n : graph_.node_ids()) nodes_.emplace(graph_.node(n).name, n);
    }
    const auto found = nodes_.find(representative);
    return found != nodes_.end() &&
           set(plan.node_representative, NodeId{plan.node_shardings.size() - 1}, graph_.node_count(), found->second);
  }

 private:
  template <class Id> static bool set(By<Id, Id>& table, Id at, int size, Id representative) {
    if (!representative) return true;
    table.resize(size);
    table[at] = representative;
    return true;
  }

  const Graph& graph_;
  std::unordered_map<std::string_view, NodeId> nodes_;
};

// "class ranks [0, 1]", its axes, its calls, its TaskGraphs: "taskgraph stage0 nodes 5".
std::string class_text(const Plan& plan, size_t c) {
  const Mesh& mesh = plan.meshes[c];
  std::vector<std::string> ranks;
  for (int rank : mesh.device.ranks) ranks.push_back(cat(rank));
  std::string out = cat("class ranks [", join(ranks, ", "), "]\n", axis_lines(mesh));
  for (size_t i = 0; c < plan.calls.size() && i < plan.calls[c].size(); ++i)
    out += cat("run ", plan.calls[c][i].text(), "\n");
  return out;
}

std::string task_graph_text(const Plan& plan, const TaskGraph& t) {
  const std::string split =
      t.split.empty() ? "" : cat("split ", axis_names(plan.meshes[t.virtual_device], t.split), "\n");
  const std::string experts =
      t.experts.empty() ? "" : cat("experts ", axis_names(plan.meshes[t.virtual_device], t.experts), "\n");
  std::string pins;
  for (const DimPin& pin : t.pins) pins += cat("pin ", quoted(pin.value), " ", pin.dim, "\n");
  return cat("taskgraph ", name_text(t.scope), " class ", t.virtual_device, t.stage == 0 ? "" : cat(" stage ", t.stage),
             " nodes ", t.nodes, "\n", split, experts, batch_line(plan.meshes[t.virtual_device], t.batch), pins);
}

bool parse_virtual_device(TextReader& reader, Mesh& out) {
  int64_t number = 0;
  if (!reader.take("ranks") || !reader.take("[")) return false;
  for (bool first = true; !reader.take("]"); first = false) {
    if ((!first && !reader.take(",")) || !reader.integer(number) || number < 0 || number > INT32_MAX) return false;
    out.device.ranks.push_back(static_cast<int>(number));
  }
  return true;
}

// What follows the word "segments": "4 of factor 2 outer 3".
bool parse_segments(TextReader& reader, SumSegments& out) {
  int64_t factor = 0;
  if (!reader.integer(out.count) || !reader.take("of factor") || !reader.integer(factor)) return false;
  if (reader.take("outer") && !reader.integer(out.outer)) return false;
  if (factor < 0 || factor > INT32_MAX || out.count < 1 || out.outer < 1) return false;
  out.factor = static_cast<int>(factor);
  return true;
}

bool parse_task_graph(TextReader& reader, const Plan& plan, TaskGraph& out) {
  int64_t virtual_device = 0, stage = 0, nodes = 0;
  if (!reader.name(out.scope) || !reader.take("class") || !reader.integer(virtual_device) || virtual_device < 0 ||
      virtual_device >= plan.virtual_devices() || (reader.take("stage") && !reader.integer(stage)) || stage < 0 ||
      stage > INT32_MAX || !reader.take("nodes") || !reader.integer(nodes))
    return false;
  out.virtual_device = static_cast<int>(virtual_device);
  out.stage = static_cast<int>(stage);
  out.nodes = static_cast<int>(nodes);
  return true;
}

// Where values are as find_value_task_graphs has it, which state of another entry need not be.
ByValue<int> found_by_use(const Plan& plan) {
  if (plan.node_task_graph.size() != plan.graph->node_count()) return plan.value_task_graph;
  Plan placed;
  placed.graph = plan.graph;
  placed.node_task_graph = plan.node_task_graph;
  find_value_task_graphs(placed);
  return placed.value_task_graph;
}

// " memory host"; nothing where kernels compute.
std::string memory_text(const Plan& plan, Value v) {
  const MemoryKind kind = plan.value_memory.empty() ? MemoryKind::device : plan.value_memory[v];
  return kind == MemoryKind::device ? "" : cat(" memory ", memory_kind_name(kind));
}

std::string print(const Plan& plan, bool reasons) {
  std::string out =
      cat("plan batch ", plan.batch, plan.independent_micro_batches ? " of independent micro-batches\n" : "\n");
  out += cat("strategy ", quoted(print_strategy(plan.strategy)), "\n", "passes ", quoted(plan.passes), "\n");
  for (const std::string& note : plan.notes) out += cat("note ", quoted(note), "\n");
  for (int c = 0; c < std::ssize(plan.meshes); ++c) out += class_text(plan, c);
  for (const TaskGraph& t : plan.task_graphs) out += task_graph_text(plan, t);
  const Graph& graph = *plan.graph;
  const ByValue<int> found = found_by_use(plan);
  for (const Value v : plan.shardings.ids()) {
    const ValueInfo& info = graph.value(v);
    const Sharding& sharding = plan.shardings[v];
    out += cat("value ", name_text(info.name), " ", info.type.text(), " @ ", cuts_text(plan.mesh(), sharding.dims),
               partial_text(plan, sharding.partial),
               rank_local_text(plan.mesh(), sharding.rank_local, graph.value(plan.representative_of(v)).name),
               memory_text(plan, v), sum_form_text(plan.sum_form(v)),
               found[v] == plan.value_task_graph[v] ? "" : cat(" taskgraph ", plan.value_task_graph[v]), "\n");
  }
  for (const NodeId n : plan.node_block.ids()) {
    const Node& node = graph.node(n);
    out += cat("node ", name_text(node.name), " ", node.op->name, " in ", block_name(plan.node_block[n]));
    if (plan.node_shardings[n].cut()) out += cat(" cut ", cuts_text(plan.mesh(), plan.node_shardings[n].factors));
    if (const SumSegments& s = plan.node_shardings[n].segments)
      out += cat(" segments ", s.count, " of factor ", s.factor, s.outer == 1 ? "" : cat(" outer ", s.outer));
    if (!plan.node_shardings[n].flowing.empty())
      out += cat(" flowing ", axis_names(plan.mesh(), plan.node_shardings[n].flowing));
    if (const RankLocal& rank_local = plan.node_shardings[n].rank_local)
      out += rank_local_text(plan.mesh(), rank_local, graph.node(plan.node_representative[n]).name);
    if (plan.node_cloned[n]) out += " cloned";
    if (!plan.node_recomputed.empty() && plan.node_recomputed[n]) out += " recomputed";
    out += plan.node_task_graph[n] == every_task_graph ? " taskgraph every\n"
                                                       : cat(" taskgraph ", plan.node_task_graph[n], "\n");
    if (reasons && !plan.why.empty() && !plan.why[n].empty()) out += cat("why ", quoted(plan.why[n]), "\n");
  }
  return out;
}

// The lines of a plan's text, each by its first word.
class PlanReader {
 public:
  PlanReader(std::string_view text, std::shared_ptr<const Graph> graph) : reader_(text), representatives_(*graph) {
    plan_.graph = std::move(graph);
  }

  Result<Plan> run() {
    EPL_ASSIGN(plan_.rules, node_rules(*plan_.graph));
    if (!reader_.next_line() || !reader_.take("plan batch") || !reader_.integer(plan_.batch))
      return fail("expected plan batch N");
    plan_.independent_micro_batches = reader_.take("of independent micro-batches");
    if (!reader_.at_end()) return fail("text after a line");
    while (reader_.next_line()) {
      EPL_TRY(read_line());
      if (!reader_.at_end()) return fail("text after a line");
    }
    if (node_ == plan_.graph->node_count()) {
      find_value_task_graphs(plan_);
      for (const auto& [v, at] : elsewhere_) plan_.value_task_graph[v] = at;
    } else {
      plan_.value_task_graph.assign(plan_.graph->value_count(), 0);
    }
    EPL_TRY(verify_plan(plan_));
    return std::move(plan_);
  }

 private:
  Status read_line() {
    struct Line {
      const char* word;
      Status (PlanReader::*read)();
    };
    static constexpr Line lines[] = {{"strategy", &PlanReader::read_strategy},
                                     {"passes", &PlanReader::read_passes},
                                     {"note", &PlanReader::read_note},
                                     {"taskgraph", &PlanReader::read_task_graph},
                                     {"class", &PlanReader::read_virtual_device},
                                     {"axis", &PlanReader::read_axis},
                                     {"split", &PlanReader::read_split},
                                     {"experts", &PlanReader::read_experts},
                                     {"batch", &PlanReader::read_batch},
                                     {"pin", &PlanReader::read_pin},
                                     {"run", &PlanReader::read_run},
                                     {"why", &PlanReader::read_why},
                                     {"value", &PlanReader::read_value},
                                     {"node", &PlanReader::read_node}};
    for (const Line& line : lines) {
      if (reader_.take(line.word)) return (this->*line.read)();
    }
    return fail("unknown line");
  }

  Status fail(std::string_view what) { return reader_.fail(what); }
  Status expect(bool well, std::string_view what) { return well ? Status() : fail(cat("expected ", what)); }
  bool has_task_graph() const { return !plan_.task_graphs.empty(); }

  Status read_strategy() {
    std::string text;
    EPL_TRY(expect(reader_.name(text), "a strategy"));
    EPL_ASSIGN(plan_.strategy, parse_strategy(text));
    return {};
  }
  Status read_passes() { return expect(reader_.name(plan_.passes), "a pass list"); }
  Status read_note() { return expect(reader_.name(plan_.notes.emplace_back()), "a text"); }
  Status read_task_graph() {
    return expect(parse_task_graph(reader_, plan_, plan_.task_graphs.emplace_back()),
                  "a task graph of one of the virtual devices");
  }
  Status read_virtual_device() {
    return expect(parse_virtual_device(reader_, plan_.meshes.emplace_back()), "a virtual device");
  }
  Status read_axis() {
    return expect(!plan_.meshes.empty() && parse_axis(reader_, plan_.meshes.back()),
                  "axis name size kind, of a virtual device");
  }
  Status read_split() {
    return expect(has_task_graph() && parse_axes(reader_, plan_, plan_.task_graphs.back().split),
                  "axes, of a task graph");
  }
  Status read_experts() {
    return expect(has_task_graph() && parse_axes(reader_, plan_, plan_.task_graphs.back().experts),
                  "axes, of a task graph");
  }
  Status read_batch() {
    return expect(has_task_graph() && parse_batch(reader_, plan_.mesh(), plan_.task_graphs.back().batch),
                  "how a task graph cuts the batch");
  }
  Status read_pin() {
    DimPin pin;
    EPL_TRY(expect(has_task_graph() && reader_.name(pin.value) && reader_.integer(pin.dim),
                   "a name and a dimension, of a task graph"));
    plan_.task_graphs.back().pins.push_back(std::move(pin));
    return {};
  }
  Status read_run() {
    plan_.calls.resize(plan_.meshes.size());
    return expect(!plan_.calls.empty() && parse_call(reader_, plan_.calls.back().emplace_back()),
                  "run block index, of a virtual device");
  }
  Status read_why() {
    std::string why;
    EPL_TRY(expect(node_ > 0 && reader_.name(why), "a reason, of a node"));
    plan_.explain(NodeId{node_ - 1}, why);
    return {};
  }

  bool read_task_graph_index(int64_t& index) {
    return reader_.integer(index) && index >= 0 && index < std::ssize(plan_.task_graphs);
  }

  Status read_value() {
    if (value_ >= plan_.graph->value_count()) return fail("more values than the graph has");
    const Value v{value_++};
    const ValueInfo& info = plan_.graph->value(v);
    std::string name, representative;
    TensorType type;
    EPL_TRY(expect(reader_.name(name) && name == info.name && reader_.type(type) && type == info.type,
                   cat("value ", info.name, " ", info.type.text())));
    Sharding sharding;
    EPL_TRY(expect(reader_.take("@") && parse_sharding(reader_, plan_, sharding), "a sharding"));
    EPL_TRY(expect(parse_rank_local(reader_, plan_.mesh(), sharding.rank_local, representative) &&
                       representatives_.add_value(plan_, representative),
                   "which ranks have it, and what stands for it"));
    plan_.shardings.push_back(std::move(sharding));
    if (reader_.take("memory")) {
      const auto kind =
          std::ranges::find_if(memory_kinds, [&](MemoryKind one) { return reader_.take(memory_kind_name(one)); });
      EPL_TRY(expect(kind != std::end(memory_kinds), "a kind of memory"));
      plan_.value_memory.resize(plan_.graph->value_count());
      plan_.value_memory[v] = *kind;
    }
    if (reader_.take("reduced")) {
      plan_.sum_forms.resize(plan_.graph->value_count());
      EPL_TRY(expect(parse_sum_form(reader_, plan_.sum_forms[v]), "how its sum is added up"));
    }
    if (!reader_.take("taskgraph")) return {};
    int64_t at = 0;
    EPL_TRY(expect(read_task_graph_index(at), "one of the task graphs"));
    elsewhere_.emplace_back(v, static_cast<int>(at));
    return {};
  }

  Status read_node() {
    if (node_ >= plan_.graph->node_count()) return fail("more nodes than the graph has");
    const Node& known = plan_.graph->node(NodeId{node_++});
    std::string name, op, block, representative;
    EPL_TRY(expect(reader_.name(name) && name == known.name && reader_.name(op) && op == known.op->name,
                   cat("node ", known.name, " ", known.op->name)));
    EPL_TRY(expect(reader_.take("in") && reader_.name(block) && block_named(block), "a block"));
    plan_.node_block.push_back(*block_named(block));
    NodeSharding& sharding = plan_.node_shardings.emplace_back();
    if (reader_.take("cut")) {
      EPL_TRY(expect(!plan_.meshes.empty() && parse_cuts(reader_, plan_.mesh(), sharding.factors),
                     "the axes that cut its factors"));
    }
    if (reader_.take("segments"))
      EPL_TRY(expect(parse_segments(reader_, sharding.segments), "a number of segments, of factor N"));
    if (reader_.take("flowing"))
      EPL_TRY(expect(parse_axes(reader_, plan_, sharding.flowing), "the axes of sums that it passes on"));
    EPL_TRY(expect(parse_rank_local(reader_, plan_.mesh(), sharding.rank_local, representative) &&
                       representatives_.add_node(plan_, representative),
                   "which ranks run it, and what stands for it"));
    plan_.node_cloned.push_back(reader_.take("cloned"));
    if (reader_.take("recomputed")) {
      plan_.node_recomputed.resize(plan_.graph->node_count());
      plan_.node_recomputed[NodeId{node_ - 1}] = true;
    }
    EPL_TRY(expect(reader_.take("taskgraph"), "a task graph"));
    int64_t task_graph = every_task_graph;
    if (!reader_.take("every")) EPL_TRY(expect(read_task_graph_index(task_graph), "one of the task graphs"));
    plan_.node_task_graph.push_back(static_cast<int>(task_graph));
    return {};
  }

  TextReader reader_;
  Plan plan_;
  Representatives representatives_;
  int value_ = 0, node_ = 0;                      // that come next
  std::vector<std::pair<Value, int>> elsewhere_;  // values whose TaskGraph does not follow from their uses
};

}  // namespace

std::string print_plan(const Plan& plan) { return print(plan, false); }
std::string print_plan_with_reasons(const Plan& plan) { return print(plan, true); }

Result<Plan> parse_plan(std::string_view text, std::shared_ptr<const Graph> graph) {
  return PlanReader(text, std::move(graph)).run();
}

}  // namespace epl
