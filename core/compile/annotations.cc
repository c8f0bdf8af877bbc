#include "core/compile/annotations.h"

#include <algorithm>
#include <map>

#include "core/strategy/pins.h"

namespace epl {
namespace {

// What a dimension of `size` elements is merged of, as a cut of it has it.
std::vector<ShardedPart> parts_of(const AxisCut& cut, int64_t shards, int64_t size) {
  const int64_t run = size / cut.outer, parts = cut.of > 0 ? cut.of : run;
  std::vector<ShardedPart> out;
  if (cut.outer > 1) out.push_back({cut.outer, 1});
  out.push_back({parts, shards});
  if (parts != run) out.push_back({run / parts, 1});
  return out;
}

// Whether each dimension of a weight is cut in one way at most, which is all that shards can say.
bool has_shards(const Mesh& mesh, const Sharding& sharding) {
  return std::ranges::all_of(sharding.dims,
                             [&](const Cuts& cuts) { return cuts.size() <= 1 || mesh.shards(cuts) == 1; });
}

// The ranks that hold each shard of a weight, shards in row-major order.
ShardAnnotation shards_of(const Mesh& mesh, const Sharding& sharding, const std::vector<int64_t>& shape) {
  ShardAnnotation out{.dims = std::vector<std::vector<ShardedPart>>(shape.size()), .ranks = {}};
  int64_t count = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t shards = mesh.shards(sharding.dims[d]);
    if (shards > 1) out.dims[d] = parts_of(sharding.dims[d][0], shards, shape[d]);
    count *= shards;
  }
  out.ranks.resize(static_cast<size_t>(count));
  for (const int rank : mesh.device.ranks) {
    const MeshCoordinates coordinates = mesh.coordinates(rank);
    int64_t at = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (!out.dims[d].empty())
        at = at * mesh.shards(sharding.dims[d]) + mesh.shard(coordinates, sharding.dims[d][0].axes);
    }
    out.ranks[static_cast<size_t>(at)].push_back(rank);
  }
  return out;
}

class Annotating {
 public:
  explicit Annotating(const Plan& plan) : plan_(plan), graph_(*plan.graph) {}

  Result<DeviceAnnotations> run() {
    out_.devices = plan_.ranks();
    for (int n = 0; n < graph_.node_count(); ++n) add(NodeId{n});
    EPL_ASSIGN(const bool pins_said, says_pins());
    Strategy rest;
    rest.config = plan_.strategy.config;
    if (rest.integer("pipeline.num_stages") > 1) rest.config.set("pipeline.num_stages", int64_t{1});  // found now
    out_.rest = print_strategy(rest);
    out_.strategy = print_strategy(plan_.strategy);
    out_.complete = complete_ && pins_said && says_scopes();
    return std::move(out_);
  }

 private:
  void add(NodeId n) {
    const Node& node = graph_.node(n);
    const int at = plan_.node_task_graph[n];
    if (node.phase != Phase::forward || node.source.empty() || at == every_task_graph) return;
    const int stage = plan_.task_graphs[static_cast<size_t>(at)].stage;
    if (out_.stages.try_emplace(node.source, stage).first->second != stage) complete_ = false;
    for (Value v : node.inputs) {
      if (!v || graph_.value(v).kind != ValueKind::parameter) continue;
      const ValueInfo& info = graph_.value(v);
      const Sharding& sharding = plan_.shardings[v];
      if (!has_shards(plan_.mesh(at), sharding)) {
        complete_ = false;
        continue;
      }
      const ShardAnnotation shards = shards_of(plan_.mesh(at), sharding, info.type.shape);
      most_shards_[stage] = std::max(most_shards_[stage], shards.ranks.size());
      out_.weights[info.name].try_emplace(stage, shards);
    }
  }

  // Shards of weights are taken as pins again. Those of results, as other tools write them, may be cuts of the batch.
  Result<bool> says_pins() const {
    EPL_ASSIGN(const ByValue<int> dims, pinned_dims(plan_, false));
    for (const Value v : graph_.value_ids()) {
      if (graph_.value(v).kind == ValueKind::result && dims[v] >= 0) return false;
    }
    return true;
  }

  // A stage is a virtual device whose ranks share out all its nodes in one way, as its weights tell.
  bool says_scopes() const {
    std::map<int, int> stages;
    for (const TaskGraph& t : plan_.task_graphs) {
      const auto shards = plan_.meshes[static_cast<size_t>(t.virtual_device)].shards(t.split);
      const auto most = most_shards_.find(t.stage);
      if (!t.experts.empty() || ++stages[t.stage] > 1) return false;
      if (shards != (most == most_shards_.end() ? 1 : static_cast<int64_t>(most->second))) return false;
    }
    return stages.size() == plan_.meshes.size();
  }

  const Plan& plan_;
  const Graph& graph_;
  DeviceAnnotations out_;
  std::map<int, size_t> most_shards_;  // of a weight, by stage
  bool complete_ = true;
};

}  // namespace

Result<DeviceAnnotations> device_annotations(const Plan& plan) { return Annotating(plan).run(); }

}  // namespace epl
