// The .plan text form: the decisions of a plan, beside the values and nodes of its graph, by name.
#include <algorithm>

#include "core/ir/op.h"
#include "core/ir/text.h"
#include "core/strategy/plan.h"

namespace epl {
namespace {

std::string axes_text(const Plan& plan, const std::vector<int>& axes) {
  std::vector<std::string> names;
  for (int axis : axes) names.push_back(plan.mesh.axes[static_cast<size_t>(axis)].name);
  return join(names, ".");
}

// "[data.micro_batch.unit, -]": per dimension, or factor, the axes that cut it.
std::string cuts_text(const Plan& plan, const std::vector<AxisCut>& cuts) {
  std::vector<std::string> texts;
  for (const AxisCut& cut : cuts)
    texts.push_back(!cut ? "-" : cat(axes_text(plan, cut.axes), cut.outer == 1 ? "" : cat(" outer ", cut.outer)));
  return cat("[", join(texts, ", "), "]");
}

constexpr std::string_view reductions[] = {"sum", "max", "min"};

// "partial sum data.micro_batch": the axes of each kind of reduction that is due.
std::string partial_text(const Plan& plan, const std::vector<Partial>& partial) {
  std::string out;
  for (const auto kind : {ShardingRule::Reduce::sum, ShardingRule::Reduce::max, ShardingRule::Reduce::min}) {
    std::vector<int> axes;
    for (const Partial& p : partial) {
      if (p.kind == kind) axes.push_back(p.axis);
    }
    if (!axes.empty()) out += cat(" partial ", reductions[static_cast<size_t>(kind)], " ", axes_text(plan, axes));
  }
  return out;
}

bool parse_axes(TextReader& reader, const Plan& plan, std::vector<int>& out) {
  std::string name;
  if (!reader.name(name)) return false;
  std::string_view rest = name;
  while (!rest.empty()) {
    size_t dot = rest.find('.');
    int axis = plan.mesh.find(rest.substr(0, dot));
    if (axis < 0) return false;
    out.push_back(axis);
    rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
  }
  return true;
}

bool parse_cuts(TextReader& reader, const Plan& plan, std::vector<AxisCut>& out) {
  if (!reader.take("[")) return false;
  for (bool first = true; !reader.take("]"); first = false) {
    if (!first && !reader.take(",")) return false;
    AxisCut& cut = out.emplace_back();
    if (reader.take("-")) continue;
    if (!parse_axes(reader, plan, cut.axes)) return false;
    if (reader.take("outer") && (!reader.integer(cut.outer) || cut.outer < 1)) return false;
  }
  return true;
}

bool parse_sharding(TextReader& reader, const Plan& plan, Sharding& out) {
  if (!parse_cuts(reader, plan, out.dims)) return false;
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

std::optional<BlockKind> parse_block(std::string_view name) {
  for (BlockKind kind : all_blocks) {
    if (block_name(kind) == name) return kind;
  }
  return std::nullopt;
}

Status parse_header(TextReader& reader, Plan& plan) {
  if (!reader.next_line() || !reader.take("plan batch") || !reader.integer(plan.batch))
    return reader.fail("expected plan batch N");
  std::string name, kind;
  while (reader.next_line() && reader.take("axis")) {
    MeshAxis axis;
    if (!reader.name(axis.name) || !reader.integer(axis.size) || !reader.name(kind))
      return reader.fail("expected axis name size kind");
    axis.kind = kind == "rank" ? MeshAxis::Kind::rank : kind == "time" ? MeshAxis::Kind::time : MeshAxis::Kind::unit;
    plan.mesh.axes.push_back(axis);
  }
  return {};
}

}  // namespace

std::string print_plan(const Plan& plan) {
  static constexpr std::string_view axis_kinds[] = {"rank", "time", "unit"};
  std::string out = cat("plan batch ", plan.batch, "\n");
  for (const MeshAxis& axis : plan.mesh.axes)
    out += cat("axis ", axis.name, " ", axis.size, " ", axis_kinds[static_cast<int>(axis.kind)], "\n");
  out += cat("strategy ", quoted(print_strategy(plan.strategy)), "\n", "passes ", quoted(plan.passes), "\n");
  for (const std::string& note : plan.notes) out += cat("note ", quoted(note), "\n");
  for (const TaskGraph& t : plan.task_graphs) {
    out += cat("taskgraph ", name_text(t.scope), " ranks ", t.device.first_rank, " ", t.device.ranks, " nodes ",
               t.nodes, "\n");
  }
  for (const Action& action : plan.schedule)
    out += cat("run ", block_name(action.block), " ", action.micro_batch, "\n");
  const Graph& graph = *plan.graph;
  for (size_t i = 0; i < plan.shardings.size(); ++i) {
    const ValueInfo& info = graph.value(Value{static_cast<int>(i)});
    out += cat("value ", name_text(info.name), " ", info.type.text(), " @ ", cuts_text(plan, plan.shardings[i].dims),
               partial_text(plan, plan.shardings[i].partial), "\n");
  }
  for (size_t n = 0; n < plan.node_block.size(); ++n) {
    const Node& node = graph.node(NodeId{static_cast<int>(n)});
    out += cat("node ", name_text(node.name), " ", node.op->name, " in ", block_name(plan.node_block[n]));
    if (plan.node_shardings[n].cut()) out += cat(" cut ", cuts_text(plan, plan.node_shardings[n].factors));
    if (plan.node_cloned[n]) out += " cloned";
    out += cat(" taskgraph ", plan.node_task_graph[n], "\n");
  }
  return out;
}

Result<Plan> parse_plan(std::string_view text, std::shared_ptr<const Graph> graph) {
  TextReader reader(text);
  Plan plan;
  plan.graph = std::move(graph);
  EPL_TRY(parse_header(reader, plan));
  size_t value = 0, node = 0;
  do {
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
      TaskGraph t;
      int64_t nodes = 0;
      if (!reader.name(t.scope) || !reader.take("ranks") || !reader.integer(t.device.first_rank) ||
          !reader.integer(t.device.ranks) || !reader.take("nodes") || !reader.integer(nodes)) {
        return reader.fail("expected a task graph");
      }
      t.nodes = static_cast<int>(nodes);
      plan.task_graphs.push_back(t);
    } else if (reader.take("run")) {
      Action action{};
      if (!reader.name(word) || !parse_block(word) || !reader.integer(action.micro_batch))
        return reader.fail("expected run block index");
      action.block = *parse_block(word);
      plan.schedule.push_back(action);
    } else if (reader.take("value")) {
      TensorType type;
      Sharding sharding;
      if (static_cast<int>(value) >= plan.graph->value_count()) return reader.fail("more values than the graph has");
      const ValueInfo& info = plan.graph->value(Value{static_cast<int>(value++)});
      if (!reader.name(name) || name != info.name || !reader.type(type) || type != info.type) {
        return reader.fail(cat("expected value ", info.name, " ", info.type.text()));
      }
      if (!reader.take("@") || !parse_sharding(reader, plan, sharding)) return reader.fail("expected a sharding");
      plan.shardings.push_back(std::move(sharding));
    } else if (reader.take("node")) {
      std::string op;
      if (static_cast<int>(node) >= plan.graph->node_count()) return reader.fail("more nodes than the graph has");
      const Node& known = plan.graph->node(NodeId{static_cast<int>(node++)});
      if (!reader.name(name) || name != known.name || !reader.name(op) || op != known.op->name) {
        return reader.fail(cat("expected node ", known.name, " ", known.op->name));
      }
      int64_t task_graph = 0;
      if (!reader.take("in") || !reader.name(word) || !parse_block(word)) return reader.fail("expected a block");
      plan.node_block.push_back(*parse_block(word));
      NodeSharding& sharding = plan.node_shardings.emplace_back();
      if (reader.take("cut") && !parse_cuts(reader, plan, sharding.factors))
        return reader.fail("expected the axes that cut its factors");
      plan.node_cloned.push_back(reader.take("cloned"));
      if (!reader.take("taskgraph") || !reader.integer(task_graph)) return reader.fail("expected a task graph");
      plan.node_task_graph.push_back(static_cast<int>(task_graph));
    } else {
      return reader.fail("unknown line");
    }
    if (!reader.at_end()) return reader.fail("text after a line");
  } while (reader.next_line());
  EPL_TRY(verify_plan(plan));
  for (int n = 0; n < static_cast<int>(node); ++n) EPL_TRY(operand_shardings(plan, NodeId{n}).status());
  return plan;
}

}  // namespace epl
