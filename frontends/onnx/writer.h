// Builds a new ONNX model and writes it: opset 20, IR version 10, floats and integers, symbolic dimensions.
//
// Values are named as they are made. Initialisers are filled only while the file is written, one after the other, so
// that a model larger than memory can be written; beyond 2 GiB, the limit of protobuf, their data goes to
// `<path>.data`.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/attributes.h"
#include "core/base/file.h"

namespace epl::onnx {

// A dimension of an input or output: a size, or a symbol.
struct WriterDim {
  WriterDim(int64_t size) : size(size) {}                       // NOLINT: implicit on purpose
  WriterDim(const char* symbol) : symbol(symbol) {}             // NOLINT: implicit on purpose
  WriterDim(std::string symbol) : symbol(std::move(symbol)) {}  // NOLINT: implicit on purpose
  int64_t size = -1;
  std::string symbol;
};

class ModelWriter {
 public:
  using Fill = std::function<void(epl::Tensor&)>;

  explicit ModelWriter(std::string graph_name) : graph_name_(std::move(graph_name)) {}

  std::string input(const std::string& name, DType dtype, std::vector<WriterDim> dims);
  // `value` is the name of an input, an initialiser or a node's output; the graph's output keeps that name.
  void output(const std::string& value, DType dtype, std::vector<WriterDim> dims);
  // `fill` is called once per `write`, with zeros of that type.
  std::string initializer(const std::string& name, TensorType type, Fill fill);
  // i64[n]; equal ones are written once.
  std::string ints(const Ints& values);
  // A scalar f32.
  std::string number(double value);
  // A node named `name` whose outputs are `name`, or `name.0`, `name.1`, ... where there are several. Attributes may be
  // integers, numbers, texts, lists of integers and tensors' types.
  std::vector<std::string> node(const std::string& name, const std::string& op, std::vector<std::string> inputs,
                                Attributes attributes, int outputs);
  std::string node(const std::string& name, const std::string& op, std::vector<std::string> inputs,
                   Attributes attributes = {}) {
    return node(name, op, std::move(inputs), std::move(attributes), 1)[0];
  }
  void metadata(const std::string& key, const std::string& value) { metadata_[key] = value; }

  // Replaces the file at `path` when it is complete. Fails if an output or a node reads a value that does not exist, or
  // where `hook` refuses an operation; it is asked before each initialiser is filled as well, as for a "write".
  Status write(const std::string& path, const FileHook& hook = nullptr) const;

 private:
  struct Port {
    std::string name;
    DType dtype;
    std::vector<WriterDim> dims;
  };
  struct Initializer {
    std::string name;
    TensorType type;
    Fill fill;
  };
  struct Node {
    std::string name, op;
    std::vector<std::string> inputs, outputs;
    Attributes attributes;
  };
  friend class ModelSerializer;

  Status check() const;

  std::string graph_name_;
  std::vector<Port> inputs_, outputs_;
  std::vector<Initializer> initializers_;
  std::vector<Node> nodes_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, std::string> constants_;  // text of the value -> name
};

}  // namespace epl::onnx
