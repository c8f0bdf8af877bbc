#include "core/program/live_bytes.h"

#include <algorithm>
#include <vector>

#include "core/ir/op.h"
#include "core/program/transfer.h"

namespace epl {
namespace {

class LiveBytes {
 public:
  explicit LiveBytes(const Graph& graph)
      : graph_(graph),
        last_(graph.value_count()),
        counts_(graph.value_count(), false),
        change_(static_cast<size_t>(graph.node_count()) + 1, 0) {}

  ByNode<int64_t> run() {
    find_uses();
    for (const Value v : graph_.value_ids()) {
      if (counts_[v]) add(graph_.type(v).bytes(), graph_.value(v).producer, last_[v]);
    }
    for (const NodeId n : graph_.node_ids()) write_over(n);
    ByNode<int64_t> live(graph_.node_count(), 0);
    int64_t now = 0;
    for (const NodeId n : graph_.node_ids()) live[n] = now += change_[n.index];
    return live;
  }

 private:
  Value root(Value v) const {
    while (v && graph_.value(v).producer && graph_.node(graph_.value(v).producer).op->view)
      v = graph_.node(graph_.value(v).producer).inputs[0];
    return v;
  }

  void find_uses() {
    for (const NodeId n : graph_.node_ids()) {
      const Node& node = graph_.node(n);
      for (const Value v : node.inputs) {
        if (v) last_[root(v)] = n;
      }
      const TransferRow* transfer = transfer_of(node.op->name);
      if (node.op->view || (transfer && transfer->evicts)) continue;
      for (const Value v : node.outputs) {
        if (!v) continue;
        counts_[v] = true;
        last_[v] = n;
      }
    }
    for (const Graph::Output& output : graph_.outputs) last_[root(output.value)] = NodeId{graph_.node_count() - 1};
    for (const Graph::Update& update : graph_.updates) {
      const NodeId made = graph_.value(update.next).producer;
      if (made && graph_.node(made).phase == Phase::update) counts_[update.next] = false;
    }
  }

  // Both included.
  void add(int64_t bytes, NodeId first, NodeId last) {
    change_[first.index] += bytes;
    change_[last.index + 1] -= bytes;
  }

  void write_over(NodeId n) {
    const Node& node = graph_.node(n);
    std::vector<bool> taken(node.inputs.size(), false);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const Value out = node.outputs[o];
      if (!out || !counts_[out]) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const bool may = node.op->elementwise() || (o == 0 && static_cast<int>(i) == node.op->written_over);
        const Value from = node.inputs[i] ? root(node.inputs[i]) : Value();
        if (!may || taken[i] || !from || !counts_[from] || last_[from] != n) continue;
        if (graph_.type(from).bytes() != graph_.type(out).bytes()) continue;
        if (std::ranges::count(node.inputs, node.inputs[i]) != 1) continue;
        taken[i] = true;
        add(-graph_.type(out).bytes(), n, n);
        break;
      }
    }
  }

  const Graph& graph_;
  ByValue<NodeId> last_;  // of a root: who takes it last
  ByValue<bool> counts_;  // it is in memory by itself
  std::vector<int64_t> change_;
};

}  // namespace

ByNode<int64_t> live_bytes(const Graph& graph) { return LiveBytes(graph).run(); }

}  // namespace epl
