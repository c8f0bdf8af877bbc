#include "core/program/uploads.h"

#include <map>

#include "core/ir/op.h"
#include "core/ir/rewriter.h"
#include "core/program/transfer.h"

namespace epl {
namespace {

class Uploads {
 public:
  Uploads(const Graph& graph, int leaving) : graph_(graph), leaving_(leaving), now_(graph, out_) {}

  Graph run() {
    for (const NodeId n : graph_.node_ids()) {
      const Node& node = graph_.node(n);
      const TransferRow* transfer = transfer_of(node.op->name);
      const bool itself = transfer != nullptr && transfer->from_caller;
      for (Value v : node.inputs) {
        if (is_input(v)) now_.set(v, itself ? leaf(v) : uploaded(v, node.region));
      }
      now_.copy(n);
    }
    for (const Graph::Output& output : graph_.outputs) at_the_end(output.value);
    for (const Graph::Update& update : graph_.updates) at_the_end(update.next);
    now_.finish();
    return std::move(out_);
  }

 private:
  bool is_input(Value v) const { return v && graph_.value(v).kind == ValueKind::input; }
  Value leaf(Value v) const { return out_.find(graph_.value(v).name); }

  Value uploaded(Value v, int32_t region) {
    auto [it, inserted] = uploaded_.try_emplace({v.index, region});
    if (!inserted) return it->second;
    Node node{.name = out_.unique_name(cat(graph_.value(v).name, ".uploaded")), .op = &op_named("upload")};
    node.inputs = {leaf(v)};
    node.phase = Phase::forward;
    node.region = region;
    it->second = out_.node(out_.add_node(std::move(node), {graph_.type(v)})).outputs[0];
    return it->second;
  }

  void at_the_end(Value v) {
    if (is_input(v)) now_.set(v, uploaded(v, leaving_));
  }

  const Graph& graph_;
  const int leaving_;
  Graph out_;
  GraphRewriter now_;
  std::map<std::pair<int, int32_t>, Value> uploaded_;  // by input and block
};

}  // namespace

Graph with_uploads(const Graph& graph, int leaving) { return Uploads(graph, leaving).run(); }

}  // namespace epl
