// How ONNX operators become ops of the graph: one row an operator, by domain and range of opsets, in
// frontends/onnx/ops.
//
//   EPL_ONNX_OP(Relu) {
//     return {.run = [](Import& i) { i.set(0, i.b.unary("relu", i.in(0))); }};
//   }
//   EPL_ONNX_OP(Softmax, 13) { ... }       // what Softmax means since opset 13; until then the row without a number
//   holds
//
// Nodes are checked against the standard before a row sees them (operators.h). A row may rely on the number of
// operands, and on attributes that are known, present if required, and of the right type. It checks by itself what the
// standard does not list: texts (Import::choice) and axes (Import::axis).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/ir/builder.h"
#include "frontends/onnx/proto.h"

namespace epl::onnx {

class Importer;

struct Sequence;

// A value of the model under import: a node's result, a constant that is known now, or a sequence of such values.
struct Slot {
  Var var;               // empty for a constant that nothing has needed as a value yet
  epl::Tensor constant;  // empty when not known at import
  TensorType type;
  std::shared_ptr<const Sequence> sequence;
  int64_t held_bytes = 0;                  // of a constant that counts against what may be held
  bool not_computed = false;               // the row gave no such result; an error where something uses it
  std::shared_ptr<const std::string> why;  // ... and the reason, if there is more to say
  Var through_rounding;                    // of quantised numbers: the same as real ones, with a gradient
  std::optional<Shape> in_file;            // its shape at the file's own sizes, where the batch is freed (free_batch.h)
  int64_t outer = 1;                       // how many runs of samples lie in the dimension that differs from the file's
};

// Sequences exist at import alone: an item is a value, or a slice of one, cut when it is taken out.
struct Sequence {
  struct Item {
    Slot value;
    int64_t axis = -1, begin = 0, end = 0;  // the slice; axis -1: all of the value
    bool squeeze = false;                   // without the axis that was cut
  };
  std::vector<Item> items;
};

// One node under import, as a row sees it.
class Import {
 public:
  Import(Importer& importer, Builder& builder, const Node& node, std::vector<Slot*> inputs, std::vector<Slot> outputs)
      : b(builder), importer_(importer), node_(node), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}

  Builder& b;
  const Node& node() const { return node_; }
  int inputs() const { return static_cast<int>(inputs_.size()); }
  bool has(int i) const { return i < inputs() && inputs_[i] != nullptr; }
  Var in(int i);  // fails, naming the node, when input i is absent
  const TensorType& type(int i);
  const epl::Tensor* constant(int i) const;  // the value when it is known at import
  Ints ints(int i);                          // a list that must be known at import
  // A list that newer opsets take from an input and older ones from an attribute.
  Ints list(int i, std::string_view attribute, Ints fallback = {}) {
    return has(i) ? ints(i) : ints(attribute, std::move(fallback));
  }
  int outputs() const { return static_cast<int>(outputs_.size()); }
  bool wants(int i) const { return i < outputs() && !node_.outputs[i].empty(); }
  void set(int i, const Var& v);
  void set_constant(int i, epl::Tensor value);
  // Of a quantised result; and of input 0, empty where it was not quantised here.
  void set_through_rounding(const Var& v) { outputs_[0].through_rounding = v; }
  Var through_rounding() const { return has(0) ? inputs_[0]->through_rounding : Var(); }
  Slot slot(int i) const { return has(i) ? *inputs_[i] : Slot(); }
  const Sequence* sequence(int i);  // fails, naming the node, when input i is not a sequence
  void set_sequence(int i, Sequence sequence);
  Var take(const Sequence::Item& item);
  const std::vector<Slot>& results() const { return outputs_; }

  int64_t opset() const;  // of the node's domain
  const Importer& importer() const { return importer_; }
  bool training() const;               // the graph is made for training
  void note(const std::string& text);  // what the owner of the model should know about this node
  bool has_attribute(std::string_view name) const;
  // An attribute's value, or `fallback` where the node does not have it. One that has no value of this type fails: no
  // zero, empty text or empty list stands for it.
  int64_t integer(std::string_view name, int64_t fallback) const;
  double number(std::string_view name, double fallback) const;
  std::string text(std::string_view name, std::string_view fallback) const;
  Ints ints(std::string_view name, Ints fallback) const;
  // A text that is one of `known`, the first of which is the default.
  std::string choice(std::string_view name, std::initializer_list<std::string_view> known);
  // Dimension `given` of `ndim`, counted from the front. One that is not there is an error, and dimension 0.
  int64_t axis(int64_t given, int ndim);
  int64_t axis(std::string_view name, int64_t fallback, int ndim) { return axis(integer(name, fallback), ndim); }
  Ints axes(Ints given, int ndim);  // each once
  std::vector<std::string> strings(std::string_view name) const;
  Doubles numbers(std::string_view name, Doubles fallback) const;
  epl::Tensor tensor(std::string_view name);
  // A running statistic (an initialiser at input i) as the nodes before this one leave it, and what it becomes when a
  // training step commits.
  Var statistic(int i);
  void update_statistic(int i, const Var& next);
  void hold(int64_t bytes);  // of constants that a row makes; fails where they are too many
  void fail(std::string message);
  void fail(const Status& status);

 private:
  const Attribute* find(std::string_view name, int32_t type) const;
  Importer& importer_;
  const Node& node_;
  std::vector<Slot*> inputs_;
  std::vector<Slot> outputs_;
};

// Integers that stand for real numbers: an operator that rounds to them, or one that takes them back.
enum class Quantizes : uint8_t { no, gives, takes };

struct OnnxOpRow {
  std::string name;             // filled in from the row's name
  std::string domain;           // empty: the standard operators
  int since = 1;                // the row's second argument; it holds until the next row of its operator
  int until = 1 << 30;          // the last opset that has the operator
  std::vector<int> statistics;  // inputs that are running statistics
  // Whether a node learns them, of the statistics of its batch; absent: no node does.
  bool (*learns)(const Node& node, int64_t opset) = nullptr;
  std::vector<int> structural;  // inputs that are settings though they may be real numbers: shapes, places, roundings
  std::vector<int> weights;     // inputs in which a constant tensor is a weight as a rule
  Quantizes quantizes = Quantizes::no;
  bool product = false;  // what is added to its result is a bias
  void (*run)(Import&) = nullptr;
};

class OnnxOpTable {
 public:
  void add(std::string_view name, int since, OnnxOpRow row);
  const OnnxOpRow* find(std::string_view domain, std::string_view name, int64_t opset) const;
  const std::vector<OnnxOpRow>& rows() const { return rows_; }

 private:
  std::vector<OnnxOpRow> rows_;
  std::unordered_map<std::string, std::vector<size_t>> by_name_;
};
const OnnxOpTable& onnx_op_table();  // generated

#define EPL_ONNX_OP_1(op_name) EPL_ONNX_OP_ROW(op_name, op_name, 1)
#define EPL_ONNX_OP_2(op_name, since) EPL_ONNX_OP_ROW(op_name, op_name##_##since, since)
#define EPL_ONNX_OP_PICK(a, b, which, ...) which
#define EPL_ONNX_OP(...) EPL_ONNX_OP_PICK(__VA_ARGS__, EPL_ONNX_OP_2, EPL_ONNX_OP_1, )(__VA_ARGS__)
#define EPL_ONNX_OP_ROW(op_name, row_name, since)                                         \
  EPL_ROW_AS(EPL_ONNX_OP, row_name, ::epl::onnx::OnnxOpTable, ::epl::onnx::OnnxOpRow, (), \
             table.add(#op_name, since, EPL_ONNX_OP_make_##row_name()))

}  // namespace epl::onnx
