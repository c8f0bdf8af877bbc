// Weights that a file keeps as integers, with the nodes that make real numbers of them: DequantizeLinear, or a cast and
// a product with a scale. Such a weight counts as an initialiser under the name of the real numbers, so that it is
// trained like any other. A file with new values has these instead of the integers and the nodes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "frontends/onnx/proto.h"

namespace epl::onnx {

class OnnxModel;
class ParameterRule;

// What is removed from a graph when some of its integer weights become real numbers.
struct DequantizedEdits {
  std::unordered_set<size_t> nodes;               // by the byte at which a node's message begins
  std::unordered_set<std::string_view> leaves;    // initialisers (or inputs of their names)
  std::map<std::string_view, epl::Tensor> added;  // initialisers that are new
};

class QuantizedWeights {
 public:
  QuantizedWeights() = default;
  // Looks through the nodes of the graph itself. Both must outlive this.
  QuantizedWeights(const Graph& graph, const ParameterRule& rule);

  bool contains(std::string_view name) const { return weights_.contains(name); }
  const TensorType* find(std::string_view name) const { return contains(name) ? &known_.at(name).type : nullptr; }
  const std::vector<std::pair<std::string_view, TensorType>>& all() const { return all_; }
  // An initialiser, or a node, that is there for such weights alone.
  bool only_serves(std::string_view initializer) const { return serving_.leaves.contains(initializer); }
  bool only_serves(const Node& node) const { return serving_.nodes.contains(node.at); }
  // The real numbers, computed when they are read.
  epl::Tensor value(std::string_view name, std::shared_ptr<const OnnxModel> model) const;
  // `values`: by the names of weights that are here.
  DequantizedEdits edits(const std::map<std::string_view, epl::Tensor>& values) const;

 private:
  // A value that rests on initialisers alone.
  struct Known {
    TensorType type;
    const Tensor* stored = nullptr;  // else `node` makes it
    const Node* node = nullptr;
    bool integers = false;  // comes from stored integers
    bool scaled = false;    // and has met a scale: positions and lengths are cast too
  };
  friend class QuantizedSource;
  const Known* known(std::string_view name) const;
  bool follow(const Node& node, Known& out) const;
  Result<epl::Tensor> compute(std::string_view name, const std::shared_ptr<const ModelBytes>& bytes) const;

  const Graph* graph_ = nullptr;
  std::unordered_map<std::string_view, Known> known_;
  std::unordered_set<std::string_view> weights_;
  std::vector<std::pair<std::string_view, TensorType>> all_;
  DequantizedEdits serving_;
};

}  // namespace epl::onnx
