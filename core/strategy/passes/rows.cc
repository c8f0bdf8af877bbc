// rows: what experts answer to tokens stays with the expert.
//
// Where rows gather their weights (PartitionRule::indices) and ranks share these out, as experts are given to ranks, a
// row of the result is known to one rank. It would go back to the rank of its token, and come again for the next
// product of the same expert. A node that works on each row by itself may as well work where the row is: a value stays
// there if all its users are such nodes, or gather their weights by the same indices. Each rank has room for all rows,
// as all tokens may be routed to one expert.
#include <algorithm>
#include <optional>

#include "core/strategy/batch_cut.h"
#include "core/strategy/pass.h"
#include "core/strategy/split_nodes.h"

namespace epl {
namespace {

class Rows {
 public:
  Rows(Plan& plan, int task_graph, const SplitNodes& nodes)
      : plan_(plan),
        graph_(*plan.graph),
        here_(task_graph),
        axes_(plan.task_graphs[task_graph].experts),
        nodes_(nodes),
        at_(graph_.value_count()),
        passes_(graph_.node_count(), false) {}

  void run() {
    for (const NodeId n : graph_.node_ids()) {
      if (plan_.node_task_graph[n] == here_) visit(n);
    }
    for (bool fewer = true; fewer;) fewer = drop();
    write();
  }

 private:
  // Which dimensions of a value are the rows, in the order of the indices' dimensions.
  struct At {
    Value indices;
    int64_t of = 0;  // so many elements are indexed: the same integers may be indices of experts and of slots
    std::vector<int> dims;
    friend bool operator==(const At&, const At&) = default;
  };
  using Factors = std::vector<int>;
  const std::optional<At>& at(Value v) const {
    static const std::optional<At> none;
    return v ? at_[v] : none;
  }

  // The operand by which a node gathers what experts have; none: it does not.
  Value indices_of(NodeId n) const {
    const ExtendedRule& rule = nodes_.rule(n);
    const auto& factors = plan_.node_shardings[n].factors;
    if (!rule.row || rule.row->indices < 0) return {};
    for (size_t f = rule.added; f < factors.size(); ++f) {
      if (!factors[f].empty() && factors[f].front().axes == axes_) return graph_.node(n).inputs[rule.row->indices];
    }
    return {};
  }
  int64_t indexed_size(NodeId n) const {
    const ExtendedRule& rule = nodes_.rule(n);
    return rule.rule.factors[rule.added].size;
  }
  Factors rows_of_indices(NodeId n) const {
    const ExtendedRule& rule = nodes_.rule(n);
    Factors rows;
    for (const ShardingRule::Dim& dim : rule.rule.inputs[rule.row->indices])
      rows.push_back(dim.size() == 1 ? dim[0] : -1);
    return rows;
  }
  // The dimensions that are these factors, each alone; none where one is not there.
  static std::optional<std::vector<int>> dims_of(const ShardingRule::Operand& operand, const Factors& rows) {
    std::vector<int> dims;
    for (const int factor : rows) {
      const auto found = std::ranges::find(operand, ShardingRule::Dim{factor});
      if (factor < 0 || found == operand.end()) return std::nullopt;
      dims.push_back(static_cast<int>(found - operand.begin()));
    }
    return dims;
  }
  // And back.
  static Factors factors_of(const ShardingRule::Operand& operand, const std::vector<int>& dims) {
    Factors rows;
    for (const int d : dims) {
      const ShardingRule::Dim& dim = operand[d];
      rows.push_back(dim.size() == 1 ? dim[0] : -1);
    }
    return rows;
  }

  void visit(NodeId n) {
    const Node& node = graph_.node(n);
    const ShardingRule& rule = nodes_.rule(n).rule;
    const auto give = [&](size_t o, Value indices, int64_t of, const Factors& rows) {
      const auto dims = dims_of(rule.outputs[o], rows);
      if (dims) at_[node.outputs[o]] = At{indices, of, *dims};
      return dims.has_value();
    };
    if (const Value indices = indices_of(n)) {
      const size_t added = nodes_.rule(n).added;
      for (size_t o = 0; o < node.outputs.size(); ++o) {
        const bool lacks = std::ranges::none_of(rule.outputs[o], [&](const ShardingRule::Dim& dim) {
          return std::ranges::any_of(dim, [&](int f) { return static_cast<size_t>(f) >= added; });
        });
        if (lacks) give(o, indices, indexed_size(n), rows_of_indices(n));
      }
      return;
    }
    if (node.op->takes_any_operands) return;
    std::optional<At> brought;
    Factors rows;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!at(node.inputs[i])) continue;
      const Factors here = factors_of(rule.inputs[i], at(node.inputs[i])->dims);
      const At& other = *at(node.inputs[i]);
      if (brought && (brought->indices != other.indices || brought->of != other.of || here != rows)) return;
      brought = at(node.inputs[i]);
      rows = here;
    }
    const auto each_by_itself = [&](int f) { return f >= 0 && !rule.factors[f].unshardable; };
    if (!brought || !std::ranges::all_of(rows, each_by_itself)) return;
    passes_[n] = true;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (!give(o, brought->indices, brought->of, rows)) return reject(n);
    }
  }

  void reject(NodeId n) {
    passes_[n] = false;
    for (Value v : graph_.node(n).outputs) at_[v].reset();
  }

  // A node that gathers by the same indices has the value where it is.
  bool takes(NodeId n, Value v) const {
    if (passes_[n]) return true;
    const Node& node = graph_.node(n);
    if (plan_.node_task_graph[n] != here_ || indices_of(n) != at(v)->indices) return false;
    if (indexed_size(n) != at(v)->of) return false;
    const Factors rows = rows_of_indices(n);
    const ShardingRule& rule = nodes_.rule(n).rule;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == v && factors_of(rule.inputs[i], at(v)->dims) != rows) return false;
    }
    return true;
  }
  bool stays(Value v) const {
    const auto is = [&](Value other) { return other == v; };
    return at(v) && std::ranges::none_of(graph_.outputs, is, &Graph::Output::value) &&
           std::ranges::none_of(graph_.updates, is, &Graph::Update::next) && !nodes_.users(v).empty() &&
           std::ranges::all_of(nodes_.users(v), [&](NodeId n) { return takes(n, v); });
  }

  // One round: nodes that give a value to others, or get none where it is.
  bool drop() {
    bool any = false;
    for (const NodeId n : graph_.node_ids()) {
      if (!passes_[n]) continue;
      const Node& node = graph_.node(n);
      const auto stays_here = [&](Value v) { return stays(v); };
      const auto may_stay = [&](Value v) { return !at(v) || stays(v); };
      if (std::ranges::all_of(node.outputs, stays_here) && std::ranges::all_of(node.inputs, may_stay)) continue;
      reject(n);
      any = true;
    }
    return any;
  }

  void write() {
    for (const NodeId n : graph_.node_ids()) {
      const Node& node = graph_.node(n);
      for (Value v : node.outputs) {
        if (!stays(v)) continue;
        for (const int axis : axes_) plan_.shardings[v].partial.push_back({axis, ShardingRule::Reduce::owner});
        plan_.explain(n, "what experts answer stays with them");
      }
    }
  }

  Plan& plan_;
  const Graph& graph_;
  const int here_;
  const std::vector<int> axes_;
  const SplitNodes& nodes_;
  ByValue<std::optional<At>> at_;  // where the answers of experts are
  ByNode<bool> passes_;            // it works on each row by itself
};

}  // namespace

EPL_PASS(rows) {
  return {.doc = "keeps what experts answer with them until tokens need it", .run = [](PassContext& c) -> Status {
            if (c.plan.shardings.size() != c.plan.graph->value_count())
              return invalid("it needs place and propagate before it");
            std::optional<SplitNodes> nodes;
            for (int t = 0; t < std::ssize(c.plan.task_graphs); ++t) {
              if (c.plan.task_graphs[t].experts.empty()) continue;
              if (!nodes) nodes.emplace(c.plan, c.cost, false);
              Rows(c.plan, t, *nodes).run();
            }
            return {};
          }};
}

}  // namespace epl
