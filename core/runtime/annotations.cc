#include "core/runtime/annotations.h"

#include <algorithm>
#include <map>

#include "core/strategy/pins.h"

namespace epl {
namespace {

// The ranks that hold each shard of a weight, shards in row-major order.
Result<ShardAnnotation> shards_of(const Plan& plan, const Mesh& mesh, Value weight) {
  const ValueInfo& info = plan.graph->value(weight);
  const Sharding& sharding = plan.shardings[static_cast<size_t>(weight.index)];
  ShardAnnotation out{.tensor = info.name, .shards = std::vector<int64_t>(sharding.dims.size(), 1), .ranks = {}};
  int64_t count = 1;
  for (size_t d = 0; d < sharding.dims.size(); ++d) {
    const Cuts& cuts = sharding.dims[d];
    out.shards[d] = mesh.pieces(cuts);
    count *= out.shards[d];
    const bool inside = cuts.size() > 1 || (cuts.size() == 1 && cuts[0].of > 0 && cuts[0].of != info.type.shape[d]);
    if (out.shards[d] > 1 && (inside || cuts[0].outer > 1))
      return unsupported("dimension ", d, " of ", info.name, " is cut inside merged dimensions").at(info.name);
  }
  out.ranks.resize(static_cast<size_t>(count));
  for (const int rank : mesh.device.ranks) {
    const Place place = mesh.place(rank);
    int64_t at = 0;
    for (size_t d = 0; d < sharding.dims.size(); ++d)
      at = at * out.shards[d] + (out.shards[d] > 1 ? mesh.piece(place, sharding.dims[d][0].axes) : 0);
    out.ranks[static_cast<size_t>(at)].push_back(rank);
  }
  return out;
}

// Shards of weights are taken as pins again. Those of results, as other tools write them, may be cuts of the batch.
Status check_expressible(const Plan& plan) {
  EPL_ASSIGN(const std::vector<int> dims, pinned_dims(plan, false));
  for (Value v{0}; v.index < plan.graph->value_count(); ++v.index) {
    const ValueInfo& info = plan.graph->value(v);
    if (info.kind != ValueKind::result || dims[static_cast<size_t>(v.index)] < 0) continue;
    return unsupported("dims names dimension ", dims[static_cast<size_t>(v.index)], " of ", info.name,
                       ", the result of a node, which an annotation cannot say")
        .at(info.name);
  }
  return {};
}

}  // namespace

Result<DeviceAnnotations> device_annotations(const Plan& plan) {
  DeviceAnnotations out{.devices = plan.ranks(), .nodes = {}, .strategy = {}};
  Strategy options;
  options.config = plan.strategy.config;
  EPL_TRY(check_expressible(plan));
  out.strategy = print_strategy(options);
  const Graph& graph = *plan.graph;
  for (int n = 0; n < graph.node_count(); ++n) {
    const Node& node = graph.node(NodeId{n});
    const int at = plan.node_task_graph[static_cast<size_t>(n)];
    if (node.phase != Phase::forward || node.source.empty() || at == every_task_graph) continue;
    const TaskGraph& task_graph = plan.task_graphs[static_cast<size_t>(at)];
    const auto [found, is_new] = out.nodes.try_emplace(node.source, NodeAnnotation{.stage = task_graph.stage});
    if (found->second.stage != task_graph.stage) {
      return unsupported("node ", node.source, " is computed by stages ", found->second.stage, " and ",
                         task_graph.stage, ", which an annotation cannot say")
          .at(node.source);
    }
    for (Value v : node.inputs) {
      if (!v || graph.value(v).kind != ValueKind::parameter) continue;
      EPL_ASSIGN(ShardAnnotation shards, shards_of(plan, plan.mesh(at), v));
      auto& all = found->second.tensors;
      if (std::ranges::find(all, shards.tensor, &ShardAnnotation::tensor) == all.end()) all.push_back(shards);
    }
  }
  return out;
}

}  // namespace epl
