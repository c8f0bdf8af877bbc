// Turns an ONNX file into a graph, for one binding of its symbolic dimensions.
//
// Every shape is known here, so everything that depends only on shapes and constants is computed now. A node whose
// operands are all constants is evaluated when it is imported, and no shape arithmetic stays in the graph. Parameters
// are never folded: they keep their names.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "frontends/onnx/free_batch.h"
#include "frontends/onnx/model.h"
#include "frontends/onnx/onnx_op.h"
#include "frontends/onnx/parameter_rule.h"

namespace epl::onnx {

inline constexpr int64_t max_folded_elements = int64_t{1} << 22;  // larger results are computed at run time
// Of one value: sizes and offsets stay far from overflow.
Status check_size(const TensorType& type);

class Importer {
 public:
  Importer(const OnnxModel& model, const Binding& binding);
  Result<epl::Graph> run();
  // Notes the shapes of results in `shapes`; or, with a batch that is freed, follows them.
  void note_shapes(ShapesInFile& shapes) { noted_ = &shapes; }
  void free_batch(const ShapesInFile& shapes, FreedBatch batch) {
    in_file_ = &shapes;
    batch_ = batch;
  }

  // For Import.
  const OnnxModel& model() const { return model_; }
  const std::string& source() const { return source_; }  // of the current nodes: Node::source
  bool training() const { return binding_.mode == Binding::Mode::train; }
  bool runs() const { return noted_ == nullptr; }  // else this import only finds the shapes in the file
  void note(std::string text) const {
    if (binding_.notes && runs()) binding_.notes->push_back(std::move(text));
  }
  int64_t opset(std::string_view domain) const;
  Var materialize(Slot& slot);
  Var take(const Sequence::Item& item);  // an item of a sequence, cut out of its value
  Status hold(int64_t bytes);            // counts constants that are computed; an error where they are too many
  // The value of a buffer after the nodes so far, and how to change it: a layer used twice updates its statistics
  // twice.
  Value updated(Value state) const;
  void update(Value state, Value next);

 private:
  friend class ControlFlow;

  // The values of a graph, or of one call of a function.
  struct Scope {
    std::unordered_map<std::string_view, Slot> values;
    Scope* outer = nullptr;         // whose names it sees
    const Scope* within = nullptr;  // where its nodes are: that one, or the call of the function
    const Function* function = nullptr;
    std::string prefix;  // of node names
    int depth = 0;
    Var taken;  // data says whether its results count: what it takes from `outer` is guarded (control_flow.h)
  };

  Result<Shape> shape_without_rank(const ModelPort& port, const epl::Tensor* value) const;
  Status bind_inputs();
  Status add_initializers();
  // A tensor of the file as a parameter, a running statistic or a constant. `name` is that of the value in its graph,
  // `known_as` that of the initialiser; `in_node`: a node or a branch holds it.
  Result<Slot> stored(std::string_view name, const std::string& known_as, const Tensor& tensor, bool in_node);
  // The same of a tensor that a node or a graph of the scope holds; a loop's iterations share it.
  Result<Slot> held_tensor(const Tensor& tensor, std::string_view name, const Scope& scope);
  Status run_nodes(const std::vector<Node>& nodes, Scope& scope, const std::vector<std::string_view>& wanted);
  std::vector<std::string_view> wanted() const;  // values that are needed when every node is imported
  bool leave_out(const Node& node, Scope& scope, const Status& status);
  bool may_fold(const epl::Node& node);
  Status run_node(const Node& node, Scope& scope);
  Status run_row(const OnnxOpRow& row, const Node& node, Scope& scope);
  Status call_function(const Function& function, const Node& node, Scope& scope);
  Status fold(int first_node, std::vector<Slot>& results);
  void follow_shapes(const Node& node, int64_t index, const std::vector<Slot>& operands, std::vector<Slot>& results);
  Status finish_outputs();
  Status add_inner_output(const std::string& name);
  Slot* find(std::string_view name, Scope& scope);
  std::string node_name(const Node& node, const Scope& scope) const;

  const OnnxModel& model_;
  const Binding& binding_;
  ParameterRule rule_;
  epl::Graph graph_;
  Builder builder_;
  std::string source_;
  Scope top_;
  std::map<std::string_view, Status, std::less<>> left_out_;  // results that are not computed, with the reason
  std::unordered_map<size_t, Slot> held_tensors_;             // by their place in the file
  int64_t held_bytes_ = 0;                                    // of constants that were computed and are still needed
  double folding_work_ = 0;                                   // operations so far
  int64_t imported_ = 0;                                      // nodes so far, those of functions once a call
  ShapesInFile* noted_ = nullptr;
  const ShapesInFile* in_file_ = nullptr;
  FreedBatch batch_;
};

// Imports a model whose inputs are bound to another number of samples than the file fixes.
Result<epl::Graph> import_with_free_batch(const OnnxModel& model, const Binding& binding);

}  // namespace epl::onnx
