#include "core/program/prefetch.h"

#include <vector>

#include "core/ir/op.h"
#include "core/ir/rewriter.h"
#include "core/program/transfer.h"

namespace epl {
namespace {

class Prefetch {
 public:
  explicit Prefetch(const Graph& graph) : graph_(graph), now_(graph, out_), done_(graph.node_count(), false) {}

  Graph run() {
    for (const NodeId n : graph_.node_ids()) {
      if (gathers_weight(n)) gathers_.push_back(n);
    }
    size_t next = 0;  // of gathers_: the first that has not been reached
    for (const NodeId n : graph_.node_ids()) {
      copy(n);
      if (next == gathers_.size() || gathers_[next] != n) continue;
      ++next;
      if (next < gathers_.size() && graph_.node(gathers_[next]).region == graph_.node(n).region) bring(gathers_[next]);
    }
    now_.finish();
    return std::move(out_);
  }

 private:
  bool gathers_weight(NodeId n) const {
    const TransferRow* transfer = transfer_of(graph_.node(n).op->name);
    if (!transfer || !transfer->gathers) return false;
    for (Value v : graph_.node(n).inputs) {
      if (!is_weight(v, graph_.node(n).region)) return false;
    }
    return true;
  }

  // A parameter, or a view of one that the same block makes.
  bool is_weight(Value v, int32_t region) const {
    const NodeId producer = graph_.value(v).producer;
    if (!producer) return graph_.value(v).kind == ValueKind::parameter;
    const Node& node = graph_.node(producer);
    return node.region == region && node.op->view && node.inputs.size() == 1 && is_weight(node.inputs[0], region);
  }

  void bring(NodeId n) {
    for (Value v : graph_.node(n).inputs) {
      if (const NodeId producer = graph_.value(v).producer) bring(producer);
    }
    copy(n);
  }
  void copy(NodeId n) {
    if (!done_[n]) now_.copy(n);
    done_[n] = true;
  }

  const Graph& graph_;
  Graph out_;
  GraphRewriter now_;
  ByNode<bool> done_;
  std::vector<NodeId> gathers_;
};

}  // namespace

Graph with_prefetch(const Graph& graph) { return Prefetch(graph).run(); }

}  // namespace epl
