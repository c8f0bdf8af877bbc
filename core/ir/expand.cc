#include "core/ir/expand.h"

#include "core/ir/op.h"
#include "core/ir/rewriter.h"

namespace epl {
namespace {

// A composite stays one node where a kernel takes its type.
bool to_expand(const Graph& graph, const Node& node, HasKernel has_kernel) {
  if (!node.op->body || node.op->elementwise()) return false;
  const Value first = !node.inputs.empty() && node.inputs[0] ? node.inputs[0] : node.outputs[0];
  return !has_kernel(node.op->name, graph.type(first).dtype);
}

Result<Graph> expand_once(const Graph& graph, HasKernel has_kernel) {
  Graph out;
  GraphRewriter now(graph, out);
  Builder builder(out);
  for (const NodeId n : graph.node_ids()) {
    const Node& node = graph.node(n);
    if (!to_expand(graph, node, has_kernel)) {
      now.copy(n);
      continue;
    }
    builder.set_phase(node.phase);
    builder.set_scope(node.name);
    builder.set_source(node.source);
    builder.set_origin(node.origin_name());
    std::vector<Var> inputs;
    for (Value v : node.inputs) inputs.push_back(v ? builder.var(now[v]) : Var());
    const NodeId last{out.node_count() - 1};
    std::vector<Var> results = expand_body(builder, *node.op, node.attributes, inputs);
    if (!builder.status().ok()) return builder.status().with_context(cat("body of ", node.op->name)).at(node.name);
    for (const NodeId made : out.node_ids().after(last)) out.node(made).region = node.region;
    for (size_t o = 0; o < node.outputs.size(); ++o) now.set(node.outputs[o], results[o].value());
  }
  now.finish();
  return out;
}

}  // namespace

Result<Graph> expand_composites(const Graph& graph, HasKernel has_kernel) {
  Graph current = graph;
  for (;;) {
    bool any = false;
    for (const Node& node : current.nodes()) any = any || to_expand(current, node, has_kernel);
    if (!any) return current;
    EPL_ASSIGN(current, expand_once(current, has_kernel));
  }
}

}  // namespace epl
