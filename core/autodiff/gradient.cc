#include "core/autodiff/gradient.h"

#include <algorithm>
#include <optional>

#include "core/base/check.h"
#include "core/base/narrow.h"

namespace epl {
namespace {

// Why no gradient flows from the node's results to operand i on purpose; empty where one does.
std::string cut_reason(const Graph& graph, const Node& node, int i) {
  const auto& never = node.op->no_gradient_inputs;
  if (!node.op->no_gradient.empty()) return node.op->no_gradient;
  if (std::ranges::find(never, i) != never.end()) return cat("operand ", i, " never has a gradient");
  for (Value out : node.outputs) {
    if (out && is_float(graph.type(out).dtype)) return {};
  }
  return "its results are not floating-point";
}

// Why a wanted value has no gradient, among the first `end` nodes: the nodes that let none through, or `no_way`.
std::string no_path_reason(const Graph& graph, Value wanted, int end, const char* no_way) {
  std::vector<bool> reached(graph.value_count(), false);
  reached[wanted.index] = true;
  std::vector<std::string> cuts;
  for (int n = 0; n < end; ++n) {
    const Node& node = graph.node(NodeId{n});
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Value v = node.inputs[i];
      if (!v || !reached[v.index]) continue;
      if (std::string cut = cut_reason(graph, node, static_cast<int>(i)); !cut.empty()) {
        cuts.push_back(cat("node ", node.name, " (", node.op->name, "): ", cut));
        continue;
      }
      for (Value out : node.outputs) {
        if (out) reached[out.index] = is_float(graph.type(out).dtype);
      }
    }
  }
  return cuts.empty() ? no_way : cat("no gradient passes ", join(cuts, "; "));
}

// The sum of the parts of a gradient, if they come from nodes of one op that can compute it without adding; else Var{}.
Var joined(Builder& builder, const std::vector<Var>& parts) {
  const Graph& graph = builder.graph();
  const OpDef* op = nullptr;
  for (const Var& part : parts) {
    const ValueInfo& info = graph.value(part.value());
    const OpDef* made_by = info.kind == ValueKind::result ? graph.node(info.producer).op : nullptr;
    if (!made_by || !made_by->joined || (op && made_by != op)) return {};
    op = made_by;
  }
  return parts.size() > 1 ? op->joined(builder, parts) : Var();
}

bool has_gradient(const OpDef& op) { return op.gradient || op.body; }

// So many nodes are more than a layer has between two uses of one value.
constexpr int far_behind = 64;

// One reverse pass. A composite without a gradient of its own is differentiated through its body, which is computed
// again in the backward phase: computing a body again is cheaper than keeping its results.
class Differentiator {
 public:
  Differentiator(Graph& graph, const std::vector<Value>& wanted)
      : graph_(graph), builder_(graph, Phase::backward), forward_nodes_(graph.node_count()) {
    grow();
    for (Value v : wanted) depends_[v.index] = true;
    for (int n = 0; n < graph_.node_count(); ++n) mark(n);
  }

  Result<Gradients> run(Value loss, const std::vector<Value>& wanted, Value scale) {
    int end = graph_.node_count();
    builder_.set_scope(cat(graph_.value(loss).name, ".gradient"));
    const TensorType type = graph_.type(loss);
    Tensor one(type);
    one.set(0, 1.0);
    add(loss, scale ? builder_.reshape(builder_.cast(builder_.var(scale), type.dtype), Shape(type.shape))
                    : builder_.constant(std::move(one)));
    EPL_TRY(pass(0, end));
    if (!missing_.empty())
      return unsupported("no gradient on a path from the loss to a parameter: ", join(missing_, "; "))
          .at(first_missing_);
    Gradients gradients;
    for (Value v : wanted) {
      Var g = total(v);
      set_scope_of(v);
      if (g) g = builder_.cast(g, graph_.type(v).dtype);
      gradients.values.push_back(g.value());
      gradients.reasons.push_back(g ? "" : no_path_reason(graph_, v, end, "no path leads to the loss"));
    }
    EPL_TRY(builder_.status());
    return gradients;
  }

 private:
  void grow() {
    depends_.resize(graph_.value_count(), false);
    parts_.resize(graph_.value_count());
    totals_.resize(graph_.value_count());
    last_use_.resize(graph_.value_count());
  }

  // Results depend on a wanted value where a gradient can flow back to it: never through integers and truth values, nor
  // through an op or an operand that cuts gradients on purpose.
  void mark(int n) {
    const Node& node = graph_.node(NodeId{n});
    bool any = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) any = any || wants_gradient(node, static_cast<int>(i));
    for (Value v : node.outputs) {
      if (v) depends_[v.index] = any && is_float(graph_.type(v).dtype);
    }
  }

  // Parts arrive from the last use to the first, and are summed in the order of the uses. Parts of uses that are far
  // behind the others are summed before these arrive: of a value that every layer uses there is one sum then, and not a
  // part for each layer. Parts that may be joined wait, and so do those of 16 bits, which are added as float32 where
  // one is.
  void add(Value v, Var part) {
    grow();
    const auto waits = [&](const Var& one) { return has_16_bits(one.dtype()) || may_be_joined(one); };
    std::vector<Var>& parts = parts_[v.index];
    if (parts.size() > 1 && last_use_[v.index] - at_ > far_behind && std::ranges::none_of(parts, waits)) {
      set_scope_of(v);
      const Var sum = summed(parts);
      grow();
      parts_[v.index] = {sum};
    }
    parts_[v.index].push_back(part);
    last_use_[v.index] = at_;
  }

  bool may_be_joined(const Var& part) const {
    const ValueInfo& info = graph_.value(part.value());
    return info.kind == ValueKind::result && graph_.node(info.producer).op->joined;
  }

  static Var summed(const std::vector<Var>& parts) {
    Var sum = parts.back();
    for (size_t i = parts.size() - 1; i-- > 0;) sum = sum + parts[i];
    return sum;
  }

  void set_scope_of(Value v) {
    builder_.set_scope(cat(graph_.value(v).name, ".gradient"));
    const NodeId producer = graph_.value(v).producer;
    builder_.set_origin(producer ? graph_.node(producer).origin_name() : "");
  }

  Var total(Value v) {
    if (static_cast<size_t>(v.index) >= parts_.size()) return {};
    if (!totals_[v.index] && !parts_[v.index].empty()) {
      set_scope_of(v);
      std::vector<Var> parts = parts_[v.index];
      // Beside one of float32, those of 16 bits are added as such.
      const auto wide = [](const Var& part) { return part.dtype() == DType::f32; };
      if (std::ranges::any_of(parts, wide)) {
        for (Var& part : parts) part = has_16_bits(part.dtype()) ? builder_.cast(part, DType::f32) : part;
      }
      Var sum = joined(builder_, parts);
      if (!sum) sum = summed(parts);
      grow();
      totals_[v.index] = sum;
    }
    return totals_[v.index];
  }

  Status pass(int begin, int end) {
    for (int n = end; n-- > begin;) EPL_TRY(step(n));
    return {};
  }

  Status step(int n) {
    const Node node = graph_.node(NodeId{n});  // a copy: the graph grows below
    if (n < forward_nodes_) at_ = n;           // nodes of bodies come behind
    std::vector<bool> needed;
    for (size_t i = 0; i < node.inputs.size(); ++i) needed.push_back(wants_gradient(node, static_cast<int>(i)));
    if (std::ranges::find(needed, true) == needed.end()) return {};
    std::vector<Var> upstream;
    bool any = false;
    for (Value v : node.outputs) {
      upstream.push_back(v ? total(v) : Var());
      any = any || upstream.back();
    }
    if (!any) return {};
    if (node.op->gradient) return own_gradient(node, needed, upstream);
    if (node.op->body) return body_gradient(node, needed, upstream);
    miss(node, "the op has no gradient");
    return {};
  }

  // Notes a node that blocks; the pass goes on, so that one error names them all.
  void miss(const Node& node, std::string_view reason) {
    if (missing_.empty()) first_missing_ = node.name;
    missing_.push_back(cat("node ", node.name, " (", node.op->name, "): ", reason));
  }

  bool wants_gradient(const Node& node, int i) const {
    Value v = node.inputs[i];
    const auto& never = node.op->no_gradient_inputs;
    return v && depends_[v.index] && is_float(graph_.type(v).dtype) && node.op->no_gradient.empty() &&
           std::ranges::find(never, i) == never.end();
  }

  Status own_gradient(const Node& node, const std::vector<bool>& needed, const std::vector<Var>& upstream) {
    // Its own builder: a gradient that refuses must not end the pass.
    Builder own(graph_, Phase::backward);
    own.set_scope(cat(node.name, ".gradient"));
    own.set_origin(node.origin_name());
    const auto in_own = [&](Value v) { return v ? own.var(v) : Var(); };
    std::vector<Var> inputs, outputs, dy;
    for (Value v : node.inputs) inputs.push_back(in_own(v));
    for (Value v : node.outputs) outputs.push_back(in_own(v));
    for (size_t o = 0; o < upstream.size(); ++o) {
      dy.push_back(in_own(upstream[o].value()));
      // What only moves elements takes a gradient as it is.
      if (dy.back() && node.op->moves == Moves::none)
        dy.back() = own.cast(dy.back(), graph_.type(node.outputs[o]).dtype);
    }
    // Optional results that the node does not have are empty.
    const size_t results = std::max<size_t>(outputs.size(), node.op->output_count());
    outputs.resize(results);
    dy.resize(results);
    Grad grad(own, node, inputs, outputs, dy, needed);
    node.op->gradient(grad);
    if (!own.status().ok()) {
      miss(node, own.status().message());
      return {};
    }
    // From the last operand to the first, so that repeated operands sum in order.
    for (size_t i = node.inputs.size(); i-- > 0;) {
      const Var g = grad.gradients()[i];
      if (needed[i] && g) add(node.inputs[i], builder_.var(g.value()));
    }
    return {};
  }

  Status body_gradient(const Node& node, const std::vector<bool>& needed, const std::vector<Var>& upstream) {
    builder_.set_scope(cat(node.name, ".body"));
    builder_.set_origin(node.origin_name());
    int begin = graph_.node_count();
    // Copies of the operands stand between the body and the graph, so that parts of other uses do not mix in.
    std::vector<Var> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      inputs.push_back(!node.inputs[i] ? Var()
                       : needed[i]     ? builder_.identity(builder_.var(node.inputs[i]))
                                       : builder_.var(node.inputs[i]));
    }
    int body_begin = graph_.node_count();
    std::vector<Var> outputs = expand_body(builder_, *node.op, node.attributes, inputs);
    EPL_TRY(builder_.status());
    int end = graph_.node_count();
    grow();
    for (int n = begin; n < end; ++n) mark(n);
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (o < upstream.size() && upstream[o] && outputs[o]) add(outputs[o].value(), upstream[o]);
    }
    EPL_TRY(pass(body_begin, end));
    for (size_t i = node.inputs.size(); i-- > 0;) {
      if (!needed[i]) continue;
      if (Var g = total(inputs[i].value())) add(node.inputs[i], g);
    }
    return {};
  }

  Graph& graph_;
  Builder builder_;
  std::vector<bool> depends_;
  std::vector<std::vector<Var>> parts_;
  std::vector<Var> totals_;
  std::vector<int> last_use_;  // the node that the last part has come from
  const int forward_nodes_;
  int at_ = 0;  // the node whose operands get their parts
  std::vector<std::string> missing_;
  std::string first_missing_;
};

}  // namespace

Differentiability differentiability(const Graph& graph, const std::vector<Value>& wanted) {
  Differentiability found;
  // What only feeds running statistics is not an obstacle.
  std::vector<bool> leads(graph.value_count(), false), depends(graph.value_count(), false),
      trains(graph.value_count(), false);
  for (const Graph::Output& output : graph.outputs) leads[output.value.index] = true;
  for (int n = graph.node_count(); n-- > 0;) {
    const Node& node = graph.node(NodeId{n});
    if (!std::ranges::any_of(node.outputs, [&](Value v) { return v && leads[v.index]; })) continue;
    for (Value v : node.inputs) {
      if (v) leads[v.index] = true;
    }
  }
  for (Value v : wanted) depends[v.index] = true;
  for (const Node& node : graph.nodes()) {
    if (!std::ranges::any_of(node.outputs, [&](Value v) { return v && leads[v.index]; })) continue;
    bool flows = false;
    std::string cut;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!node.inputs[i] || !depends[node.inputs[i].index]) continue;
      const std::string reason = cut_reason(graph, node, static_cast<int>(i));
      flows = flows || reason.empty();
      if (cut.empty()) cut = reason;
    }
    for (Value v : node.outputs) {
      if (v) depends[v.index] = flows && is_float(graph.type(v).dtype);
    }
    const bool blocks = flows && !has_gradient(*node.op);
    if (blocks) found.obstacles.push_back({node.name, node.op->name, "the op has no gradient", true});
    // Tests and comparisons are not reported: everybody knows that they have no derivative.
    const bool tells =
        std::ranges::any_of(node.outputs, [&](Value v) { return v && graph.type(v).dtype != DType::boolean; });
    if (!cut.empty() && tells) found.obstacles.push_back({node.name, node.op->name, cut, false});
  }
  for (const Graph::Output& output : graph.outputs)
    trains[output.value.index] = is_float(graph.type(output.value).dtype);
  for (int n = graph.node_count(); n-- > 0;) {
    const Node& node = graph.node(NodeId{n});
    const bool any = std::ranges::any_of(node.outputs, [&](Value v) { return v && trains[v.index]; });
    for (size_t i = 0; any && i < node.inputs.size(); ++i) {
      const Value v = node.inputs[i];
      if (v && is_float(graph.type(v).dtype) && cut_reason(graph, node, static_cast<int>(i)).empty())
        trains[v.index] = true;
    }
  }
  for (Value v : wanted) {
    found.reasons.push_back(
        trains[v.index] ? "" : no_path_reason(graph, v, graph.node_count(), "no path leads to an output"));
  }
  return found;
}

Result<Gradients> add_gradients(Graph& graph, Value loss, const std::vector<Value>& wanted, Value scale) {
  if (!is_float(graph.type(loss).dtype) || graph.type(loss).elements() != 1) {
    return invalid("the loss ", graph.value(loss).name, " is ", graph.type(loss).text(), ", not one floating number")
        .at(graph.value(loss).name);
  }
  return Differentiator(graph, wanted).run(loss, wanted, scale);
}

}  // namespace epl
