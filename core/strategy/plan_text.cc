#include "core/strategy/plan_text.h"

// The .plan text form: the decisions of a plan, beside the values and nodes of its graph, by name.
#include <algorithm>
#include <unordered_map>

#include "core/ir/op.h"
#include "core/strategy/mesh_text.h"

namespace epl {
namespace {

constexpr std::string_view reductions[] = {"sum", "max", "min", "owner"};

// "partial sum data.micro_batch": the axes of each kind of reduction that is due.
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

// What stands for values and nodes that are dealt, by name. The tables are there once anything is.
class Leaders {
 public:
  explicit Leaders(const Graph& graph) : graph_(graph) {}
  // The next value and node, whose tables of shardings have those before them; false: there is no such leader.
  bool add_value(Plan& plan, const std::string& leader) {
    const Value v = leader.empty() ? Value() : graph_.find(leader);
    return (leader.empty() || v) && set(plan.value_leader, plan.shardings.size(), graph_.value_count(), v.index);
  }
  bool add_node(Plan& plan, const std::string& leader) {
    if (leader.empty()) return true;
    if (nodes_.empty()) {
      for (int n = 0; n < graph_.node_count(); ++n) nodes_.emplace(graph_.node(NodeId{n}).name, n);
    }
    const auto found = nodes_.find(leader);
    return found != nodes_.end() &&
           set(plan.node_leader, plan.node_shardings.size() - 1, graph_.node_count(), found->second);
  }

 private:
  static bool set(std::vector<int>& table, size_t at, int size, int leader) {
    if (leader < 0) return true;
    table.resize(static_cast<size_t>(size), -1);
    table[at] = leader;
    return true;
  }

  const Graph& graph_;
  std::unordered_map<std::string_view, int> nodes_;
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
      t.split.empty() ? "" : cat("split ", axis_names(plan.meshes[static_cast<size_t>(t.rank_class)], t.split), "\n");
  const std::string experts =
      t.experts.empty() ? ""
                        : cat("experts ", axis_names(plan.meshes[static_cast<size_t>(t.rank_class)], t.experts), "\n");
  std::string pins;
  for (const DimPin& pin : t.pins) pins += cat("pin ", quoted(pin.value), " ", pin.dim, "\n");
  return cat("taskgraph ", name_text(t.scope), " class ", t.rank_class, t.stage == 0 ? "" : cat(" stage ", t.stage),
             " nodes ", t.nodes, "\n", split, experts,
             batch_line(plan.meshes[static_cast<size_t>(t.rank_class)], t.batch), pins);
}

bool parse_class(TextReader& reader, Mesh& out) {
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
  int64_t rank_class = 0, stage = 0, nodes = 0;
  if (!reader.name(out.scope) || !reader.take("class") || !reader.integer(rank_class) || rank_class < 0 ||
      rank_class >= plan.classes() || (reader.take("stage") && !reader.integer(stage)) || stage < 0 ||
      stage > INT32_MAX || !reader.take("nodes") || !reader.integer(nodes))
    return false;
  out.rank_class = static_cast<int>(rank_class);
  out.stage = static_cast<int>(stage);
  out.nodes = static_cast<int>(nodes);
  return true;
}

// Where values are as find_value_task_graphs has it, which state of another entry need not be.
std::vector<int> found_by_use(const Plan& plan) {
  if (plan.node_task_graph.size() != static_cast<size_t>(plan.graph->node_count())) return plan.value_task_graph;
  Plan placed;
  placed.graph = plan.graph;
  placed.node_task_graph = plan.node_task_graph;
  find_value_task_graphs(placed);
  return placed.value_task_graph;
}

std::string print(const Plan& plan, bool reasons) {
  std::string out = cat("plan batch ", plan.batch, plan.apart ? " of micro-batches apart\n" : "\n");
  out += cat("strategy ", quoted(print_strategy(plan.strategy)), "\n", "passes ", quoted(plan.passes), "\n");
  for (const std::string& note : plan.notes) out += cat("note ", quoted(note), "\n");
  for (size_t c = 0; c < plan.meshes.size(); ++c) out += class_text(plan, c);
  for (const TaskGraph& t : plan.task_graphs) out += task_graph_text(plan, t);
  const Graph& graph = *plan.graph;
  const std::vector<int> found = found_by_use(plan);
  for (size_t i = 0; i < plan.shardings.size(); ++i) {
    const ValueInfo& info = graph.value(Value{static_cast<int>(i)});
    out += cat(
        "value ", name_text(info.name), " ", info.type.text(), " @ ", cuts_text(plan.mesh(), plan.shardings[i].dims),
        partial_text(plan, plan.shardings[i].partial),
        dealt_text(plan.mesh(), plan.shardings[i].dealt, graph.value(plan.leader_of(Value{static_cast<int>(i)})).name),
        found[i] == plan.value_task_graph[i] ? "" : cat(" taskgraph ", plan.value_task_graph[i]), "\n");
  }
  for (size_t n = 0; n < plan.node_block.size(); ++n) {
    const Node& node = graph.node(NodeId{static_cast<int>(n)});
    out += cat("node ", name_text(node.name), " ", node.op->name, " in ", block_name(plan.node_block[n]));
    if (plan.node_shardings[n].cut()) out += cat(" cut ", cuts_text(plan.mesh(), plan.node_shardings[n].factors));
    if (const SumSegments& s = plan.node_shardings[n].segments)
      out += cat(" segments ", s.count, " of factor ", s.factor, s.outer == 1 ? "" : cat(" outer ", s.outer));
    if (!plan.node_shardings[n].flowing.empty())
      out += cat(" flowing ", axis_names(plan.mesh(), plan.node_shardings[n].flowing));
    if (const Dealt& dealt = plan.node_shardings[n].dealt)
      out += dealt_text(plan.mesh(), dealt, graph.node(NodeId{plan.node_leader[n]}).name);
    if (plan.node_cloned[n]) out += " cloned";
    out += plan.node_task_graph[n] == every_task_graph ? " taskgraph every\n"
                                                       : cat(" taskgraph ", plan.node_task_graph[n], "\n");
    if (reasons && n < plan.why.size() && !plan.why[n].empty()) out += cat("why ", quoted(plan.why[n]), "\n");
  }
  return out;
}

}  // namespace

std::string print_plan(const Plan& plan) { return print(plan, false); }
std::string print_plan_with_reasons(const Plan& plan) { return print(plan, true); }

Result<Plan> parse_plan(std::string_view text, std::shared_ptr<const Graph> graph) {
  TextReader reader(text);
  Plan plan;
  plan.graph = std::move(graph);
  if (!reader.next_line() || !reader.take("plan batch") || !reader.integer(plan.batch)) {
    return reader.fail("expected plan batch N");
  }
  plan.apart = reader.take("of micro-batches apart");
  if (!reader.at_end()) return reader.fail("text after a line");
  size_t value = 0, node = 0;
  std::vector<std::pair<size_t, int>> elsewhere;  // by value: its task graph
  Leaders leaders(*plan.graph);
  while (reader.next_line()) {
    std::string name, word;
    if (reader.take("strategy")) {
      if (!reader.name(word)) return reader.fail("expected a strategy");
      EPL_ASSIGN(plan.strategy, parse_strategy(word));
    } else if (reader.take("passes")) {
      if (!reader.name(plan.passes)) return reader.fail("expected a pass list");
    } else if (reader.take("note")) {
      plan.notes.emplace_back();
      if (!reader.name(plan.notes.back())) return reader.fail("expected a text");
    } else if (reader.take("taskgraph")) {
      if (!parse_task_graph(reader, plan, plan.task_graphs.emplace_back()))
        return reader.fail("expected a task graph of one of the classes");
    } else if (reader.take("class")) {
      if (!parse_class(reader, plan.meshes.emplace_back())) return reader.fail("expected a class of ranks");
    } else if (reader.take("axis")) {
      if (plan.meshes.empty() || !parse_axis(reader, plan.meshes.back()))
        return reader.fail("expected axis name size kind, of a class of ranks");
    } else if (reader.take("split")) {
      if (plan.task_graphs.empty() || !parse_axes(reader, plan, plan.task_graphs.back().split))
        return reader.fail("expected axes, of a task graph");
    } else if (reader.take("experts")) {
      if (plan.task_graphs.empty() || !parse_axes(reader, plan, plan.task_graphs.back().experts))
        return reader.fail("expected axes, of a task graph");
    } else if (reader.take("batch")) {
      if (plan.task_graphs.empty() || !parse_batch(reader, plan.mesh(), plan.task_graphs.back().batch))
        return reader.fail("expected how a task graph cuts the batch");
    } else if (reader.take("pin")) {
      DimPin pin;
      if (plan.task_graphs.empty() || !reader.name(pin.value) || !reader.integer(pin.dim))
        return reader.fail("expected a name and a dimension, of a task graph");
      plan.task_graphs.back().pins.push_back(std::move(pin));
    } else if (reader.take("run")) {
      plan.calls.resize(plan.meshes.size());
      if (plan.calls.empty() || !parse_call(reader, plan.calls.back().emplace_back()))
        return reader.fail("expected run block index, of a class of ranks");
    } else if (reader.take("why")) {
      if (node == 0 || !reader.name(word)) return reader.fail("expected a reason, of a node");
      plan.explain(static_cast<int>(node) - 1, word);
    } else if (reader.take("value")) {
      TensorType type;
      Sharding sharding;
      if (static_cast<int>(value) >= plan.graph->value_count()) return reader.fail("more values than the graph has");
      const ValueInfo& info = plan.graph->value(Value{static_cast<int>(value++)});
      if (!reader.name(name) || name != info.name || !reader.type(type) || type != info.type) {
        return reader.fail(cat("expected value ", info.name, " ", info.type.text()));
      }
      if (!reader.take("@") || !parse_sharding(reader, plan, sharding)) return reader.fail("expected a sharding");
      if (!parse_dealt(reader, plan.mesh(), sharding.dealt, word) || !leaders.add_value(plan, word))
        return reader.fail("expected which ranks have it, and what stands for it");
      plan.shardings.push_back(std::move(sharding));
      if (int64_t at = 0; reader.take("taskgraph")) {
        if (!reader.integer(at) || at < 0 || at >= static_cast<int64_t>(plan.task_graphs.size()))
          return reader.fail("expected one of the task graphs");
        elsewhere.emplace_back(value - 1, static_cast<int>(at));
      }
    } else if (reader.take("node")) {
      std::string op, dealt_like;
      if (static_cast<int>(node) >= plan.graph->node_count()) return reader.fail("more nodes than the graph has");
      const Node& known = plan.graph->node(NodeId{static_cast<int>(node++)});
      if (!reader.name(name) || name != known.name || !reader.name(op) || op != known.op->name) {
        return reader.fail(cat("expected node ", known.name, " ", known.op->name));
      }
      int64_t task_graph = 0;
      if (!reader.take("in") || !reader.name(word) || !block_named(word)) return reader.fail("expected a block");
      plan.node_block.push_back(*block_named(word));
      NodeSharding& sharding = plan.node_shardings.emplace_back();
      if (reader.take("cut") && (plan.meshes.empty() || !parse_cuts(reader, plan.mesh(), sharding.factors)))
        return reader.fail("expected the axes that cut its factors");
      if (reader.take("segments") && !parse_segments(reader, sharding.segments))
        return reader.fail("expected a number of segments, of factor N");
      if (reader.take("flowing") && !parse_axes(reader, plan, sharding.flowing))
        return reader.fail("expected the axes of sums that it passes on");
      if (!parse_dealt(reader, plan.mesh(), sharding.dealt, dealt_like) || !leaders.add_node(plan, dealt_like))
        return reader.fail("expected which ranks run it, and what stands for it");
      plan.node_cloned.push_back(reader.take("cloned"));
      if (!reader.take("taskgraph")) return reader.fail("expected a task graph");
      if (reader.take("every")) {
        task_graph = every_task_graph;
      } else if (!reader.integer(task_graph) || task_graph < 0 ||
                 task_graph >= static_cast<int64_t>(plan.task_graphs.size())) {
        return reader.fail("expected one of the task graphs");
      }
      plan.node_task_graph.push_back(static_cast<int>(task_graph));
    } else {
      return reader.fail("unknown line");
    }
    if (!reader.at_end()) return reader.fail("text after a line");
  }
  if (static_cast<int>(node) == plan.graph->node_count()) {
    find_value_task_graphs(plan);
    for (const auto& [i, at] : elsewhere) plan.value_task_graph[i] = at;
  } else {
    plan.value_task_graph.assign(static_cast<size_t>(plan.graph->value_count()), 0);
  }
  EPL_TRY(verify_plan(plan));
  for (int n = 0; n < static_cast<int>(node); ++n) EPL_TRY(operand_shardings(plan, NodeId{n}).status());
  return plan;
}

}  // namespace epl
