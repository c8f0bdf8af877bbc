// Writing graphs as expressions. Var is a value with its builder, so that `dy * (x > 0)` emits nodes; composites and
// gradients are written with Body and Grad.
//
// The first error (operands that do not fit) is kept: later calls return an empty Var, and `status()` says what was
// wrong and where. Names: nodes take the current scope's name, made unique.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/ir/graph.h"

namespace epl {

class Builder;

class Var {
 public:
  Var() = default;
  Var(Builder* builder, Value value) : builder_(builder), value_(value) {}
  explicit operator bool() const { return static_cast<bool>(value_); }
  Value value() const { return value_; }
  Builder& builder() const { return *builder_; }
  const TensorType& type() const;  // f32[] after an error
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int ndim() const { return type().ndim(); }
  int64_t dim(int i) const;  // negative counts from the end; 1 where there is none

 private:
  Builder* builder_ = nullptr;
  Value value_;
};

class Builder {
 public:
  explicit Builder(Graph& graph, Phase phase = Phase::forward) : graph_(graph), phase_(phase) {}
  Graph& graph() { return graph_; }
  const Status& status() const { return status_; }
  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  void set_phase(Phase phase) { phase_ = phase; }
  Phase phase() const { return phase_; }
  void set_scope(std::string name) { scope_ = std::move(name); }  // names of the nodes that follow
  const std::string& scope() const { return scope_; }
  void set_source(std::string name) { source_ = std::move(name); }  // Node::source of the nodes that follow
  void set_origin(std::string name) { origin_ = std::move(name); }  // Node::origin of the nodes that follow

  Var var(Value value) { return Var(this, value); }
  // Any op by name; the general form of everything below.
  std::vector<Var> emit_all(std::string_view op, const std::vector<Var>& inputs, Attributes attributes = {});
  Var emit(std::string_view op, const std::vector<Var>& inputs, Attributes attributes = {});

  Var constant(Tensor data);
  Var scalar(DType dtype, double value);  // a rank-0 constant
  Var like(const Var& x, double value) { return scalar(x.dtype(), value); }

  // Sugar for the ops that bodies, gradients and importers write most. Elementwise ops broadcast as NumPy does.
  Var unary(std::string_view op, const Var& x) { return emit(op, {x}); }
  // The number of the first operand in which something is not finite, -1 where all is.
  // Behind `all` a count, where there is one: its attribute is in `attributes`.
  Var first_not_finite(const std::vector<Var>& all, Attributes attributes = {}) {
    return emit("first_not_finite", all, std::move(attributes));
  }
  Var exp(const Var& x) { return emit("exp", {x}); }
  Var log(const Var& x) { return emit("log", {x}); }
  Var sqrt(const Var& x) { return emit("sqrt", {x}); }
  Var tanh(const Var& x) { return emit("tanh", {x}); }
  Var erf(const Var& x) { return emit("erf", {x}); }
  Var sigmoid(const Var& x) { return emit("sigmoid", {x}); }
  Var reciprocal(const Var& x) { return emit("reciprocal", {x}); }
  Var maximum(const Var& a, const Var& b) { return emit("max", {a, b}); }
  Var minimum(const Var& a, const Var& b) { return emit("min", {a, b}); }
  Var pow(const Var& a, const Var& b) { return emit("pow", {a, b}); }
  Var select(const Var& condition, const Var& yes, const Var& no) { return emit("where", {condition, yes, no}); }
  Var equal(const Var& a, const Var& b) { return emit("equal", {a, b}); }
  Var identity(const Var& x) { return emit("identity", {x}); }
  Var dropout(const Var& x, double ratio) { return emit_all("dropout", {x}, {{"ratio", ratio}})[0]; }
  Var cast(const Var& x, DType type);             // itself if it has the type, or what a cast widened to it
  Var reshape(const Var& x, Shape shape);         // itself if it has the shape; no -1
  Var transpose(const Var& x, Ints permutation);  // itself if the identity
  Var broadcast_to(const Var& x, Shape shape);    // itself if it has the shape
  Var slice(const Var& x, Ints axes, Ints starts, Ints ends, Ints steps = {});
  Var concat(const std::vector<Var>& parts, int64_t axis);
  // Sums keep reduced dimensions of size one if `keep`. Empty axes: x itself.
  Var sum(const Var& x, Ints axes, bool keep = true);
  Var mean(const Var& x, Ints axes, bool keep = true);  // sum times 1/n: n is the global count
  Var max_along(const Var& x, Ints axes, bool keep = true);
  Var matmul(const Var& a, const Var& b, bool transpose_a = false, bool transpose_b = false);
  // Sums x down to a shape that broadcasts to x's: the adjoint of broadcasting.
  Var sum_to(const Var& x, const Shape& shape);

 private:
  friend class Var;
  Graph& graph_;
  Phase phase_;
  Status status_;
  std::string scope_, source_, origin_;
};

Var operator+(const Var& a, const Var& b);
Var operator-(const Var& a, const Var& b);
Var operator*(const Var& a, const Var& b);
Var operator/(const Var& a, const Var& b);
Var operator-(const Var& a);
Var operator>(const Var& a, const Var& b);
Var operator<(const Var& a, const Var& b);
Var operator>=(const Var& a, const Var& b);
Var operator<=(const Var& a, const Var& b);
// With a number, which takes the element type of the Var.
Var operator+(const Var& a, double b);
Var operator-(const Var& a, double b);
Var operator*(const Var& a, double b);
Var operator/(const Var& a, double b);
Var operator+(double a, const Var& b);
Var operator-(double a, const Var& b);
Var operator*(double a, const Var& b);
Var operator/(double a, const Var& b);
Var operator>(const Var& a, double b);
Var operator<(const Var& a, double b);
Var operator>=(const Var& a, double b);
Var operator<=(const Var& a, double b);

// A composite's body: in(i) are the operands, set(i, v) names the outputs.
class Body {
 public:
  Body(Builder& builder, const Attributes& attributes, std::vector<Var> inputs, int outputs)
      : b(builder), attributes_(attributes), inputs_(std::move(inputs)), outputs_(outputs) {}
  Builder& b;
  const Attributes& attributes() const { return attributes_; }
  bool has(int i) const { return i < static_cast<int>(inputs_.size()) && inputs_[i]; }
  Var in(int i) const { return i < static_cast<int>(inputs_.size()) ? inputs_[i] : Var(); }
  // Grows where the last result of a signature stands for several.
  void set(int i, Var v) {
    if (static_cast<size_t>(i) >= outputs_.size()) outputs_.resize(static_cast<size_t>(i) + 1);
    outputs_[i] = v;
  }
  int axis(std::string_view name, int ndim) const;
  const std::vector<Var>& outputs() const { return outputs_; }

 private:
  const Attributes& attributes_;
  std::vector<Var> inputs_, outputs_;
};

// A gradient: from the node's operands, results and upstream gradients to the gradients of its inputs.
class Grad {
 public:
  Grad(Builder& builder, const Node& node, std::vector<Var> inputs, std::vector<Var> outputs, std::vector<Var> upstream,
       std::vector<bool> needed)
      : b(builder),
        node_(node),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        upstream_(std::move(upstream)),
        needed_(std::move(needed)),
        gradients_(inputs_.size()) {}
  Builder& b;
  const Attributes& attributes() const { return node_.attributes; }
  const Node& node() const { return node_; }
  int inputs() const { return static_cast<int>(inputs_.size()); }
  bool has(int i) const { return i < inputs() && inputs_[i]; }
  Var in(int i) const { return i < inputs() ? inputs_[i] : Var(); }
  Var out(int i) const { return outputs_[i]; }
  Var upstream(int i) const { return upstream_[i]; }  // empty when nothing flows back through output i
  bool needs(int i) const { return i < inputs() && needed_[i]; }
  // Sets a gradient; it is summed down to the input's shape if broadcasting had enlarged it. That of an operand of 16
  // bits may be float32, as sums are.
  void set(int i, const Var& gradient);
  int axis(std::string_view name, int ndim) const;
  const std::vector<Var>& gradients() const { return gradients_; }

 private:
  const Node& node_;
  std::vector<Var> inputs_, outputs_, upstream_;
  std::vector<bool> needed_;
  std::vector<Var> gradients_;
};

}  // namespace epl
