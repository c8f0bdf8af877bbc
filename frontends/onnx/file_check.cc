// See file_check.h.
#include "frontends/onnx/file_check.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "core/base/shown.h"
#include "frontends/onnx/function_call.h"
#include "frontends/onnx/operators.h"

namespace epl::onnx {
namespace {

std::string name_of(const Node& node) {
  return std::string(!node.name.empty() ? node.name : !node.outputs.empty() ? node.outputs[0] : node.op_type);
}

// How many nodes the calls of functions unfold into and how deep they nest, known before any is unfolded. Forty
// functions that each call the next one twice are a short file. Each function is visited once, and calls are followed
// only as deep as is allowed, so that neither many nor deep calls cost anything.
class Unfolding {
 public:
  explicit Unfolding(const OnnxModel& model) : model_(model) {}

  // The error names the node of `nodes` whose calls have no end.
  Status check(const std::vector<Node>& nodes) {
    Extent total;
    for (const Node& node : nodes) {
      if (Status status = add(node, 0, total); !status.ok()) return status.at(name_of(node));
    }
    return {};
  }

 private:
  struct Extent {
    int64_t nodes = 0;
    int depth = 0;  // of calls
    bool counting = false;
  };

  Status add(const Node& node, int depth, Extent& total) {
    ++total.nodes;
    for (const Attribute& a : node.attributes) {
      if (!a.g) continue;
      for (const Node& inner : a.g->nodes) EPL_TRY(add(inner, depth, total));
    }
    if (const Function* function = model_.function(node.domain, node.op_type, node.overload)) {
      Extent inside;
      EPL_TRY(extent(*function, depth + 1, inside));
      total.nodes += inside.nodes;
      total.depth = std::max(total.depth, inside.depth + 1);
    }
    if (total.nodes > max_nodes)
      return error(Code::invalid_model, "its functions unfold into more than ", max_nodes, " nodes");
    return {};
  }

  Status extent(const Function& function, int depth, Extent& out) {
    auto [known, first] = known_.try_emplace(&function);
    if (!first && known->second.counting)
      return error(Code::invalid_model, "function ", function.name, " calls itself");
    if (depth + known->second.depth > max_call_depth)
      return error(Code::invalid_model, "calls of functions nest more than ", max_call_depth, " deep");
    if (first) {
      known->second.counting = true;
      Extent total;
      for (const Node& node : function.nodes) EPL_TRY(add(node, depth, total));
      known_[&function] = total;
    }
    out = known_[&function];
    return {};
  }

  const OnnxModel& model_;
  std::unordered_map<const Function*, Extent> known_;
};

// Nodes as the standard has them, those of graphs within nodes too. Names of values are known where they are defined.
class NodeCheck {
 public:
  explicit NodeCheck(const OnnxModel& model) : model_(model) {}

  Status check(const std::vector<Node>& nodes, const std::vector<std::string_view>& names) const {
    std::unordered_set<std::string_view> known(names.begin(), names.end());
    known.insert("");
    for (const Node& node : nodes) {
      EPL_TRY(standard(node));
      for (std::string_view input : node.inputs) {
        if (!known.contains(input))
          return wrong(
              node, cat("uses ", shown(input, 200), ", which nothing before it defines (a cycle, or a missing input)"));
      }
      for (std::string_view output : node.outputs) {
        if (!output.empty() && !known.insert(output).second)
          return wrong(node, cat("defines ", shown(output, 200), " a second time"));
      }
    }
    return {};
  }

 private:
  static Status wrong(const Node& node, const std::string& what) {
    const std::string where = node.name.empty() ? cat("byte ", node.at) : std::string(node.name);
    return Status(Code::invalid_model, cat("node ", where, " (", node.op_type, ") ", what), where);
  }

  Status standard(const Node& node) const {
    if (model_.function(node.domain, node.op_type, node.overload)) return {};
    if (Status status = check_node(node, model_.opset(node.domain)); !status.ok())
      return wrong(node, cat("is not as the standard has it: ", status.message()));
    for (const Attribute& a : node.attributes) {
      if (!a.g) continue;
      for (const Node& inner : a.g->nodes) EPL_TRY(standard(inner));
    }
    return {};
  }

  const OnnxModel& model_;
};

}  // namespace

Status check_file(const OnnxModel& model) {
  const File& file = model.file();
  EPL_TRY(Unfolding(model).check(file.graph.nodes));
  const NodeCheck nodes(model);
  std::vector<std::string_view> known;
  for (const ValueInfo& info : file.graph.inputs) known.push_back(info.name);
  for (const Tensor& tensor : file.graph.initializers) known.push_back(tensor.name);
  EPL_TRY(nodes.check(file.graph.nodes, known));
  EPL_TRY(check_references(file.graph.nodes, nullptr));
  for (const Function& function : file.functions) {
    Status status = nodes.check(function.nodes, function.inputs);
    if (status.ok()) status = check_references(function.nodes, &function);
    if (!status.ok()) return status.with_context(cat("function ", function.domain, ".", function.name));
  }
  return {};
}

}  // namespace epl::onnx
