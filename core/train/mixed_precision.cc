#include "core/train/mixed_precision.h"

#include <algorithm>

#include "core/base/narrow.h"
#include "core/ir/op.h"
#include "core/ir/rewriter.h"

namespace epl {
namespace {

bool only_moves(const Node& node) { return node.op->moves != Moves::none && node.op->moves != Moves::converted; }

// By value: whether it only moves on its way to outputs of the graph.
ByValue<bool> leaving_values(const Graph& graph) {
  ByValue<bool> leaves(graph.value_count()), stays(graph.value_count());
  for (const Graph::Output& output : graph.outputs) leaves[output.value] = true;
  for (const Graph::Update& update : graph.updates) leaves[update.next] = true;
  for (int n = graph.node_count(); n-- > 0;) {
    const Node& node = graph.node(NodeId{n});
    const bool moves_on =
        only_moves(node) && std::ranges::all_of(node.outputs, [&](Value v) { return !v || (leaves[v] && !stays[v]); });
    for (const Value v : node.inputs) {
      if (v) (moves_on ? leaves : stays)[v] = true;
    }
  }
  for (const Value v : graph.value_ids()) leaves[v] = leaves[v] && !stays[v];
  return leaves;
}

class Narrower {
 public:
  Narrower(const Graph& graph, DType type)
      : graph_(graph), type_(type), now_(graph, out_), builder_(out_), leaving_(leaving_values(graph)) {}

  Result<Graph> run() {
    for (const NodeId n : graph_.node_ids()) {
      begin(graph_.node(n));
      if (is_product(n)) {
        product(n);
      } else if (moves_narrow(n)) {
        move(n);
      } else {
        copy(n, {});
      }
    }
    EPL_TRY(builder_.status());
    return finished();
  }

 private:
  // What is made for a node goes where the node goes.
  void begin(const Node& node) {
    builder_.set_phase(node.phase);
    builder_.set_source(node.source);
    builder_.set_origin(node.origin_name());
    builder_.set_scope(cat(node.name, ".", dtype_name(type_)));
  }

  Value cast(Value now, DType type) { return builder_.cast(builder_.var(now), type).value(); }

  bool is_product(NodeId n) const {
    const Node& node = graph_.node(n);
    const auto& narrow = node.op->narrow_inputs;
    return !narrow.empty() && graph_.type(node.outputs[0]).dtype == DType::f32 &&
           std::ranges::all_of(
               narrow, [&](int i) { return graph_.type(node.inputs[static_cast<size_t>(i)]).dtype == DType::f32; });
  }

  // All its real numbers have 16 bits now that had 32.
  bool moves_narrow(NodeId n) const {
    const Node& node = graph_.node(n);
    bool any = false;
    for (const Value v : node.inputs) {
      if (!v || graph_.type(v).dtype != DType::f32) continue;
      if (out_.type(now_[v]).dtype != type_) return false;
      any = true;
    }
    return any && only_moves(node);
  }

  // Operands have the types that they had, but for those of `narrow`.
  NodeId copy(NodeId n, const std::vector<int>& narrow) {
    const std::vector<Value>& inputs = graph_.node(n).inputs;
    std::vector<Value> operands;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool is_narrow = std::ranges::find(narrow, static_cast<int>(i)) != narrow.end();
      operands.push_back(inputs[i] ? cast(now_[inputs[i]], is_narrow ? type_ : graph_.type(inputs[i]).dtype) : Value{});
    }
    const NodeId made = now_.copy(n);
    out_.node(made).inputs = std::move(operands);
    return made;
  }

  void product(NodeId n) {
    const NodeId made = copy(n, graph_.node(n).op->narrow_inputs);
    out_.node(made).attributes.set("wide", true);
    const Value old = graph_.node(n).outputs[0], sum = out_.node(made).outputs[0];
    if (!leaving_[old]) now_.set(old, cast(sum, type_));
  }

  void move(NodeId n) {
    const NodeId made = now_.copy(n);
    for (const Value v : out_.node(made).outputs) {
      if (v && out_.type(v).dtype == DType::f32) out_.value(v).type.dtype = type_;
    }
  }

  // What leaves the graph has the type that it had.
  Result<Graph> finished() {
    builder_.set_source("");
    builder_.set_origin("");
    const auto leave = [&](Value old) {
      builder_.set_scope(cat(graph_.value(old).name, ".f32"));
      return cast(now_[old], graph_.type(old).dtype);
    };
    for (const Graph::Output& output : graph_.outputs) out_.outputs.push_back({output.name, leave(output.value)});
    for (const Graph::Update& update : graph_.updates) out_.updates.push_back({now_[update.state], leave(update.next)});
    EPL_TRY(builder_.status());
    return std::move(out_);
  }

  const Graph& graph_;
  const DType type_;
  Graph out_;
  GraphRewriter now_;
  Builder builder_;
  const ByValue<bool> leaving_;
};

// A cast to or from 16 bits of what is kept anyway.
bool is_cheap_cast(const Graph& graph, const Node& node) {
  if (node.op->moves != Moves::converted) return false;
  const ValueInfo& from = graph.value(node.inputs[0]);
  const DType to = graph.type(node.outputs[0]).dtype;
  if (!is_float(from.type.dtype) || !is_float(to)) return false;
  return has_16_bits(from.type.dtype) || (has_16_bits(to) && from.kind != ValueKind::result);
}

}  // namespace

Result<Graph> with_mixed_precision(const Graph& graph, DType type) { return Narrower(graph, type).run(); }

Graph with_casts_on_use(const Graph& graph) {
  Graph out;
  GraphRewriter now(graph, out);
  Builder builder(out);
  for (const NodeId n : graph.node_ids()) {
    const Node& node = graph.node(n);
    std::vector<Value> operands;
    for (const Value v : node.inputs) {
      operands.push_back(now[v]);
      if (!v || node.phase != Phase::backward || graph.value(v).kind != ValueKind::result) continue;
      const Node& made_by = graph.node(graph.value(v).producer);
      if (made_by.phase != Phase::forward || !is_cheap_cast(graph, made_by)) continue;
      builder.set_phase(node.phase);
      builder.set_source(node.source);
      builder.set_origin(node.origin_name());
      builder.set_scope(cat(graph.value(v).name, ".again"));
      operands.back() = builder.cast(builder.var(now[made_by.inputs[0]]), graph.type(v).dtype).value();
    }
    out.node(now.copy(n)).inputs = std::move(operands);
  }
  now.finish();
  return out;
}

}  // namespace epl
