// How often the nodes of one graph, or of one function's body, use each value: nodes that nothing needs are not
// imported, and a value is dropped after its last use.
#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "frontends/onnx/proto.h"

namespace epl::onnx {

class Uses {
 public:
  // `wanted`: values that are needed when all nodes are done.
  Uses(const std::vector<Node>& nodes, const std::vector<std::string_view>& wanted);
  bool needs(size_t node) const { return live_[node]; }
  // The node has run: calls f with each value that nothing needs any more.
  template <class F> void done(const Node& node, F&& f) {
    for_each_name(node, [&](std::string_view name) {
      auto it = counts_.find(name);
      if (it != counts_.end() && --it->second == 0) f(name);
    });
    for (std::string_view name : node.outputs) {
      auto it = counts_.find(name);
      if (it == counts_.end() || it->second == 0) f(name);
    }
  }

 private:
  // What a node reads, graphs within it included: of the names that those read, the ones that are defined outside.
  template <class F> static void for_each_name(const Node& node, F&& f) {
    for (std::string_view name : node.inputs) f(name);
    for (const Attribute& a : node.attributes) {
      if (!a.g) continue;
      for (const Node& inner : a.g->nodes) for_each_name(inner, f);
      for (const ValueInfo& output : a.g->outputs) f(output.name);
    }
  }

  std::unordered_map<std::string_view, int64_t> counts_;
  std::vector<bool> live_;
};

inline Uses::Uses(const std::vector<Node>& nodes, const std::vector<std::string_view>& wanted) : live_(nodes.size()) {
  for (std::string_view name : wanted) ++counts_[name];
  for (size_t n = nodes.size(); n-- > 0;) {
    for (std::string_view name : nodes[n].outputs) live_[n] = live_[n] || (!name.empty() && counts_.contains(name));
    if (!live_[n]) continue;
    for_each_name(nodes[n], [&](std::string_view name) { ++counts_[name]; });
  }
}

}  // namespace epl::onnx
