// See function_call.h.
#include "frontends/onnx/function_call.h"

#include <algorithm>
#include <unordered_set>

#include "core/base/shown.h"
#include "core/base/suggestion.h"
#include "frontends/onnx/operators.h"

namespace epl::onnx {
namespace {

using NameSet = std::unordered_set<std::string_view>;

std::string label(const Node& node) {
  return std::string(!node.name.empty() ? node.name : !node.outputs.empty() ? node.outputs[0] : node.op_type);
}

// What a graph reads of the values around it.
void add_outer_reads(const Graph& graph, NameSet defined, NameSet& out) {
  for (const Tensor& tensor : graph.initializers) defined.insert(tensor.name);
  for (const ValueInfo& input : graph.inputs) defined.insert(input.name);
  for (const Node& node : graph.nodes) {
    for (std::string_view name : node.inputs) {
      if (!name.empty() && !defined.contains(name)) out.insert(name);
    }
    for (const Attribute& a : node.attributes) {
      if (a.g) add_outer_reads(*a.g, defined, out);
    }
    defined.insert(node.outputs.begin(), node.outputs.end());
  }
  for (const ValueInfo& output : graph.outputs) {
    if (!defined.contains(output.name)) out.insert(output.name);
  }
}

class Body {
 public:
  Body(const OnnxModel& model, const Function& function, const Node& call)
      : model_(model), function_(function), call_(call) {
    for (size_t i = 0; i < function.inputs.size(); ++i) {
      if (i >= call.inputs.size() || call.inputs[i].empty()) absent_.insert(function.inputs[i]);
    }
  }

  Status resolve(std::vector<Node>& nodes) const {
    for (Node& node : nodes) {
      for (std::string_view& input : node.inputs) {
        if (absent_.contains(input)) input = "";
      }
      if (Status status = resolve_attributes(node); !status.ok())
        return status.with_context(node.op_type).at(label(node));
    }
    return {};
  }

 private:
  Status resolve_attributes(Node& node) const {
    const bool refers = std::ranges::any_of(node.attributes, [](const Attribute& a) { return !a.ref.empty(); });
    std::vector<Attribute> resolved;
    for (Attribute& attribute : node.attributes) {
      if (attribute.ref.empty()) {
        if (attribute.g) {
          EPL_ASSIGN(attribute.g, resolved_graph(*attribute.g));
        }
        resolved.push_back(std::move(attribute));
      } else if (const Attribute* meant = find(attribute.ref)) {
        EPL_TRY(check_graph(*meant));
        resolved.push_back(*meant);
        resolved.back().name = attribute.name;
      }
    }
    node.attributes = std::move(resolved);
    if (!refers || model_.function(node.domain, node.op_type, node.overload)) return {};  // checked in the file
    return check_node(node, model_.opset(node.domain));
  }

  // The file's own graph stays as it is: each call has another one.
  Result<std::shared_ptr<Graph>> resolved_graph(const Graph& graph) const {
    auto made = std::make_shared<Graph>(graph);
    EPL_TRY(resolve(made->nodes));
    return made;
  }

  const Attribute* find(std::string_view name) const {
    for (const auto* attributes : {&call_.attributes, &function_.attribute_defaults}) {
      const auto found = std::ranges::find(*attributes, name, &Attribute::name);
      if (found != attributes->end()) return &*found;
    }
    return nullptr;
  }

  // Names inside a graph that a call hands over are those of the caller, and the function has others.
  Status check_graph(const Attribute& given) const {
    if (!given.g) return {};
    NameSet reads;
    add_outer_reads(*given.g, {}, reads);
    if (reads.empty()) return {};
    return unsupported("the graph that attribute ", given.name, " of a call of function ", function_.name,
                       " holds reads ", shown(*reads.begin(), 200),
                       " of the nodes around the call; give that to the function as an input");
  }

  const OnnxModel& model_;
  const Function& function_;
  const Node& call_;
  NameSet absent_;
};

}  // namespace

Result<std::vector<Node>> body_of(const OnnxModel& model, const Function& function, const Node& call) {
  std::vector<Node> nodes = function.nodes;
  EPL_TRY(Body(model, function, call).resolve(nodes));
  return nodes;
}

Status check_references(const std::vector<Node>& nodes, const Function* function) {
  std::vector<std::string> known;
  if (function != nullptr) {
    known.assign(function->attributes.begin(), function->attributes.end());
    for (const Attribute& standard : function->attribute_defaults) known.emplace_back(standard.name);
  }
  for (const Node& node : nodes) {
    for (const Attribute& a : node.attributes) {
      if (a.g) EPL_TRY(check_references(a.g->nodes, function));
      if (a.ref.empty() || std::ranges::find(known, a.ref) != known.end()) continue;
      const std::string what = cat("attribute ", a.name, " of node ", label(node), " (", node.op_type,
                                   ") refers to attribute ", a.ref, " of a function");
      if (function == nullptr)
        return error(Code::invalid_model, what, ", and no function is around it").at(label(node));
      return error(Code::invalid_model, what, ", which ", function->name, " does not have",
                   known.empty() ? "" : choices(a.ref, known))
          .at(label(node));
    }
  }
  return {};
}

}  // namespace epl::onnx
