#include "core/rewrite/rewrite.h"

#include <algorithm>

#include "core/base/check.h"

namespace epl {
namespace {

// Rows shrink what they match, so a few rounds are enough. More rounds would mean that two rows undo each other.
constexpr int max_rounds = 40;

std::vector<int> count_uses(const Graph& graph) {
  std::vector<int> uses(graph.value_count(), 0);
  for (const Node& node : graph.nodes()) {
    for (Value input : node.inputs) {
      if (input) ++uses[input.index];
    }
  }
  for (const Graph::Output& output : graph.outputs) ++uses[output.value.index];
  for (const Graph::Update& update : graph.updates) ++uses[update.next.index];
  return uses;
}

// The replacement goes by the name of what it replaces.
void take_over(const Graph& source, Value old, Graph& target, Value made, GraphRewriter& now) {
  EPL_CHECK(target.type(made) == source.type(old), "a rewrite of ", source.value(old).name, " changes its type from ",
            source.type(old).text(), " to ", target.type(made).text());
  const std::string& name = source.value(old).name;
  const bool is_new = target.value(made).kind == ValueKind::result && !target.find(name);
  if (is_new) target.rename(made, name);
  now.set(old, made);
}

// One pass of one row over the graph; 0 matches leave `graph` as it was.
Result<int> apply_row(const RewriteRow& row, Graph& graph) {
  const auto is_root = [&](const Node& node) { return node.op->name == row.root_op; };
  if (std::ranges::none_of(graph.nodes(), is_root)) return 0;
  const std::vector<int> uses = count_uses(graph);
  Graph target;
  GraphRewriter now(graph, target);
  Builder builder(target);
  int count = 0;
  for (int n = 0; n < graph.node_count(); ++n) {
    const Node& node = graph.node(NodeId{n});
    std::vector<Var> made;
    if (is_root(node)) {
      builder.set_phase(node.phase);
      builder.set_scope(node.name);
      builder.set_source(node.source);
      made = row.apply(Match(graph, uses, NodeId{n}), builder, now);
      if (!builder.status().ok()) return builder.status().with_context(cat("rewrite ", row.name));
    }
    if (made.empty()) {
      now.copy(NodeId{n});
      continue;
    }
    ++count;
    EPL_CHECK(made.size() <= node.outputs.size(), "rewrite ", row.name, " returns too many values");
    for (size_t i = 0; i < made.size(); ++i) {
      if (node.outputs[i] && made[i]) take_over(graph, node.outputs[i], target, made[i].value(), now);
    }
  }
  if (count == 0) return 0;
  now.finish();
  graph = without_dead_nodes(target);
  return count;
}

}  // namespace

const Node* Match::producer(Value value, std::string_view op) const {
  if (!value) return nullptr;
  const ValueInfo& info = graph_.value(value);
  if (!info.producer || info.output != 0) return nullptr;
  const Node& node = graph_.node(info.producer);
  return op.empty() || node.op->name == op ? &node : nullptr;
}

bool Match::constant(Value value, double* out) const {
  if (!value) return false;
  const Tensor& data = graph_.value(value).data;
  if (graph_.value(value).kind != ValueKind::constant || data.empty() || data.elements() == 0) return false;
  *out = data.get(0);
  for (int64_t i = 1; i < data.elements(); ++i) {
    if (data.get(i) != *out) return false;
  }
  return true;
}

const std::vector<const RewriteRow*>& rewrites_in_order() {
  static const std::vector<const RewriteRow*> rows = [] {
    const RewriteTable& table = rewrite_table();
    std::vector<const RewriteRow*> ordered;
    const auto is_ordered = [&](const std::string& name) {
      EPL_CHECK(table.find(name) != nullptr, "a rewrite comes after ", name, ", which is not one");
      return std::ranges::any_of(ordered, [&](const RewriteRow* row) { return row->name == name; });
    };
    const auto is_next = [&](const RewriteRow& row) {
      return !is_ordered(row.name) && std::ranges::all_of(row.after, is_ordered);
    };
    while (ordered.size() < table.rows.size()) {
      const auto next = std::ranges::find_if(table.rows, is_next);
      EPL_CHECK(next != table.rows.end(), "rewrites come after each other in a circle");
      ordered.push_back(&*next);
    }
    return ordered;
  }();
  return rows;
}

Result<Graph> rewrite_graph(const Graph& graph, std::vector<RewriteCount>* counts) {
  const std::vector<const RewriteRow*>& rows = rewrites_in_order();
  std::vector<int> matched(rows.size(), 0);
  Graph now = without_dead_nodes(graph);
  bool changed = true;
  for (int round = 0; changed; ++round) {
    EPL_CHECK(round < max_rounds, "the rewrites of graph ", graph.name, " do not come to rest");
    changed = false;
    for (size_t i = 0; i < rows.size(); ++i) {
      EPL_ASSIGN(const int count, apply_row(*rows[i], now));
      matched[i] += count;
      changed = changed || count > 0;
    }
  }
  if (counts) {
    counts->clear();
    for (size_t i = 0; i < rows.size(); ++i) counts->push_back({rows[i]->name, matched[i]});
  }
  return now;
}

}  // namespace epl
