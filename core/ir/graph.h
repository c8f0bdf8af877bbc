// The graph: a train step, or a forward pass, as nodes over values, with every shape known.
//
// A Value is the symbolic result of a node, or a leaf: an input of a call, a parameter, a buffer (running statistics),
// optimizer state, a scalar that the host computes before each step (a learning rate), or a constant. Nodes are kept in
// an order in which they can run. Values and nodes are indices into their graph and stay valid while it lives; nothing
// is removed in place: rewrites build a new graph (see GraphRewriter).
//
// Thread safety: const access may be shared. Invariants (checked by `verify`): every node input is a leaf or defined by
// an earlier node; types are what the op infers; phases never go back (forward, backward, update); no two nodes have
// one name. The graph itself makes names unique: of values, and of nodes.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/attributes.h"
#include "core/base/units.h"
#include "core/ir/by.h"

namespace epl {

struct OpDef;

enum class Phase : uint8_t { forward, backward, update };
std::string_view phase_name(Phase phase);

enum class ValueKind : uint8_t { result, input, parameter, buffer, state, scalar, constant };
std::string_view value_kind_name(ValueKind kind);

struct ValueInfo {
  std::string name;
  TensorType type;
  ValueKind kind = ValueKind::result;
  NodeId producer;  // of a result
  int output = 0;   // which output of the producer
  Tensor data;      // of a constant; in memory; the initial value of the others, which may be in a file or empty: zeros
  int batch_dim = -1;  // of an input: the dimension that counts samples, -1 for none
};

struct Node {
  std::string name;  // stable: the ONNX name, or a path of producers
  const OpDef* op = nullptr;
  Attributes attributes;
  std::vector<Value> inputs;   // an absent optional input is Value{}
  std::vector<Value> outputs;  // an unused optional output is Value{}
  Phase phase = Phase::forward;
  // This node's sums over the batch run over these units, then by the binary tree. Set by `partition` only; see
  // core/program/local_graph.h.
  Units units;
  // Nodes of different regions run at different times (the blocks of a local graph) and are never merged into one.
  int32_t region = 0;
  std::string source;  // the model's node that it was made for, by its name in the file; empty: none
  // The node of the forward pass that it belongs to, by its name there: a node of the backward pass belongs to the node
  // whose gradient it computes, a part of a composite to the composite. Empty: to itself.
  std::string origin;
  // What its random numbers follow from, besides the seed and the step: the name of the node that it repeats. What is
  // computed twice draws the same numbers twice. Empty: its own name.
  std::string key;

  const std::string& key_name() const { return key.empty() ? name : key; }
  const std::string& origin_name() const { return origin.empty() ? name : origin; }
};

class Graph {
 public:
  std::string name = "graph";

  // Leaves.
  Value add_input(std::string name, TensorType type, int batch_dim = -1);
  Value add_leaf(ValueKind kind, std::string name, TensorType type, Tensor data = {});
  Value add_constant(std::string name, Tensor data);
  // Appends a node whose outputs have these types. Its name and those of its outputs are made unique.
  NodeId add_node(Node node, std::vector<TensorType> output_types, std::vector<std::string> output_names = {});

  int value_count() const { return values_.size(); }
  int node_count() const { return nodes_.size(); }
  IdRange<Value> value_ids() const { return values_.ids(); }
  IdRange<NodeId> node_ids() const { return nodes_.ids(); }
  const ValueInfo& value(Value v) const { return values_[v]; }
  ValueInfo& value(Value v) { return values_[v]; }
  const Node& node(NodeId n) const { return nodes_[n]; }
  Node& node(NodeId n) { return nodes_[n]; }
  const ByNode<Node>& nodes() const { return nodes_; }
  const TensorType& type(Value v) const { return values_[v].type; }
  // All values of one kind, in order of creation.
  std::vector<Value> leaves(ValueKind kind) const;
  Value find(std::string_view name) const;          // Value{} if there is none
  NodeId find_node(const std::string& name) const;  // NodeId{} if there is none
  std::string unique_name(std::string_view wish) const;
  void rename(Value v, std::string name);  // to a name that nothing has

  // Named results of a call. The same value may appear under several names.
  struct Output {
    std::string name;
    Value value;
  };
  std::vector<Output> outputs;
  // state becomes next when the step commits; state is a parameter, buffer or state leaf.
  struct Update {
    Value state, next;
  };
  std::vector<Update> updates;

  // The nodes that use each value, in order (with repetition for repeated inputs).
  ByValue<std::vector<NodeId>> users() const;

 private:
  ByValue<ValueInfo> values_;
  ByNode<Node> nodes_;
  std::unordered_map<std::string, Value> by_name_;
  std::unordered_map<std::string, NodeId> node_names_;
};

// Checks the invariants of the class; the error names the node.
Status verify(const Graph& graph);

// Text form (.graph): prints with nothing lost but the data of large constants and initial values, which print as a
// hash; parse reads what print wrote (such data come back empty).
std::string print_graph(const Graph& graph);
Result<Graph> parse_graph(std::string_view text);

}  // namespace epl
