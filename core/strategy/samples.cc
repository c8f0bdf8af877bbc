#include "core/strategy/samples.h"

#include <algorithm>
#include <functional>

namespace epl {
namespace {

std::string sizes_text(const Graph& graph, const std::vector<Value>& inputs) {
  std::vector<std::string> parts;
  for (Value v : inputs)
    parts.push_back(cat(graph.value(v).name, " has ", graph.type(v).dim(graph.value(v).batch_dim)));
  return join(parts, ", ");
}

// Where each value counts samples. A node that mixes them gives results that do not, unless `mixes` has an error.
Result<ByValue<CutPosition>> follow_samples(
    const Graph& graph, const std::function<Status(const Node& node, const std::string& why)>& mixes) {
  ByValue<CutPosition> positions(graph.value_count());
  int64_t batch = 1;
  for (Value v : graph.leaves(ValueKind::input)) {
    const ValueInfo& info = graph.value(v);
    if (info.batch_dim < 0 || graph.type(v).dim(info.batch_dim) <= 1) continue;
    positions[v] = {.dim = info.batch_dim};
    batch = graph.type(v).dim(info.batch_dim);
  }
  for (const Node& node : graph.nodes()) {
    EPL_ASSIGN(ShardingRule rule, node_rule(graph, node));
    std::vector<CutPosition> cuts;
    for (Value v : node.inputs) cuts.push_back(v ? positions[v] : CutPosition());
    const BatchCut cut = follow_batch(rule, cuts, batch);  // as many units as samples
    if (cut.couples) EPL_TRY(mixes(node, cut.why));
    if (!cut.factor) continue;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (node.outputs[o]) positions[node.outputs[o]] = cut.outputs[o];
    }
  }
  return positions;
}

}  // namespace

std::vector<std::string> agree_on_samples(Graph& graph, const std::set<std::string>& named) {
  std::vector<Value> known, assumed;
  for (Value v : graph.leaves(ValueKind::input)) {
    if (graph.value(v).batch_dim >= 0) (named.contains(graph.value(v).name) ? known : assumed).push_back(v);
  }
  const auto size = [&](Value v) { return graph.type(v).dim(graph.value(v).batch_dim); };
  std::vector<std::string> notes;
  if (known.empty()) {
    if (assumed.empty() || std::ranges::all_of(assumed, [&](Value v) { return size(v) == size(assumed[0]); }))
      return notes;
    notes.push_back(cat("the inputs disagree about the number of samples in their first dimension (",
                        sizes_text(graph, assumed),
                        "), so none counts samples and the batch cannot be cut; name the dimension for those that do "
                        "(batch dimension NAME=D, -1 for none)"));
    for (Value v : assumed) graph.value(v).batch_dim = -1;
    return notes;
  }
  for (Value v : assumed) {
    if (size(v) == size(known[0])) continue;
    notes.push_back(cat("input ", graph.value(v).name, " has ", size(v), " in its first dimension where ",
                        graph.value(known[0]).name, " has ", size(known[0]), " samples, so it is taken to count none"));
    graph.value(v).batch_dim = -1;
  }
  return notes;
}

Status require_independent_samples(const Graph& graph) {
  return follow_samples(graph,
                        [](const Node& node, const std::string& why) {
                          return Status(Code::unsupported,
                                        cat("the batch cannot be freed: node ", node.name, " (", node.op->name,
                                            ") mixes samples: ", why),
                                        node.name);
                        })
      .status();
}

Result<SamplePositions> sample_positions(const Graph& graph) {
  EPL_ASSIGN(const ByValue<CutPosition> positions,
             follow_samples(graph, [](const Node&, const std::string&) { return Status(); }));
  SamplePositions found;
  for (const Graph::Output& output : graph.outputs) {
    const CutPosition& position = positions[output.value];
    if (position) found.emplace(output.name, position);
  }
  return found;
}

}  // namespace epl
