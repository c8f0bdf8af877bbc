// Writing ONNX models from nothing: nodes, initialisers, inputs and outputs, opset 23. The templates use it.
//
// Values of initialisers are made when the file is written, one at a time, so that a model may be larger than memory;
// models beyond 2 GB keep them in a file beside the model.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/attributes.h"
#include "core/ir/model.h"

namespace epl::onnx {

class ModelWriter {
 public:
  explicit ModelWriter(std::string name) : name_(std::move(name)) {}

  // Names returned are those of values, for use as inputs of further nodes.
  std::string input(ModelPort port);
  void output(ModelPort port);
  std::string initializer(std::string name, TensorType type, std::function<epl::Tensor()> make);
  std::string constant(std::string name, epl::Tensor value);
  // A node with as many outputs as named; it is called after its first output.
  std::string node(std::string op, std::vector<std::string> inputs, std::vector<std::string> outputs, Attributes attributes = {});

  // Writes the file whole or not at all. Initialisers that make no tensor of their type are our own mistake.
  Status save(const std::string& path) const;

 private:
  struct Initializer {
    std::string name;
    TensorType type;
    std::function<epl::Tensor()> make;
  };
  struct Node {
    std::string op;
    std::vector<std::string> inputs, outputs;
    Attributes attributes;
  };
  std::string frame() const;   // everything of the graph but the initialisers
  Status write(class TensorSink& sink) const;

  std::string name_;
  std::vector<ModelPort> inputs_, outputs_;
  std::vector<Initializer> initializers_;
  std::vector<Node> nodes_;
};

// Draws of a weight as PyTorch's modules draw theirs, keyed by a seed and the weight's name: the same on every machine.
epl::Tensor normal_weight(const Shape& shape, double deviation, uint64_t seed, const std::string& name);
epl::Tensor uniform_weight(const Shape& shape, double bound, uint64_t seed, const std::string& name);
epl::Tensor filled_weight(const Shape& shape, float value);

}  // namespace epl::onnx
