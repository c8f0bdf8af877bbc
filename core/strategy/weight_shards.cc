#include "core/strategy/weight_shards.h"

#include <algorithm>
#include <optional>

namespace epl {

bool shards_gradients(const Strategy& strategy) {
  const std::string& level = strategy.text("zero.level");
  return level == "v1" || level == "v2";
}

int64_t runs_of(const Mesh& mesh, const AxisCut& cut) {
  int64_t count = cut.outer * std::max<int64_t>(cut.of, 1);
  for (int axis : cut.of > 0 ? std::vector<int>() : cut.axes) count *= mesh.axes[axis].size;
  return count;
}

std::vector<CutPosition> shard_positions(const Mesh& mesh, const TensorType& type, const Sharding& now,
                                         const std::vector<int>& axes) {
  std::vector<CutPosition> found;
  const int64_t shards = mesh.shards(axes);
  if (type.elements() == 0 || shards < 2) return found;
  CutPosition uneven;
  double smallest = 1;  // part of the value that a rank would have
  for (int d = 0; d < type.ndim(); ++d) {
    int64_t before = 1;
    bool any_uneven = false;
    for (const AxisCut& cut : now.dims[d]) {
      before = runs_of(mesh, cut);
      any_uneven = any_uneven || cut.of > 0;
    }
    const int64_t run = type.shape[d] / before;
    if (run % shards == 0) {
      found.push_back({d, before});
      continue;
    }
    const double part = static_cast<double>((run + shards - 1) / shards) / static_cast<double>(run);
    if (any_uneven || part >= smallest) continue;  // two paddings in one dimension are not worth it
    uneven = {d, before, run};
    smallest = part;
  }
  if (uneven) found.push_back(uneven);
  return found;
}

Sharding with_shards(Sharding sharding, const CutPosition& position, const std::vector<int>& axes) {
  Cuts& cuts = sharding.dims[position.dim];
  cuts.insert(std::ranges::upper_bound(cuts, position.outer, {}, &AxisCut::outer), {axes, position.outer, position.of});
  return sharding;
}

std::optional<Sharding> sharding_in(const Plan& first, const std::string& state) {
  const Value known = first.graph->find(state);
  if (!known || !is_state(first.graph->value(known).kind)) return std::nullopt;
  return first.shardings[known];
}

namespace {

class WeightShards {
 public:
  WeightShards(Plan& plan, const Plan* first) : plan_(plan), first_(first), graph_(*plan.graph) {}

  void run() {
    ByValue<Value> next(graph_.value_count());
    for (const Graph::Update& update : graph_.updates) next[update.state] = update.next;
    for (const Value v : graph_.leaves(ValueKind::parameter)) {
      plan_.shardings[v] = sharding_of(v, next[v]);
      if (next[v]) plan_.shardings[next[v]] = plan_.shardings[v];
    }
  }

 private:
  Sharding sharding_of(Value v, Value next) const {
    if (first_) {
      if (const std::optional<Sharding> there = sharding_in(*first_, graph_.value(v).name)) return *there;
    }
    // As its update gives it, so that nothing moves there.
    if (const NodeId n = next ? graph_.value(next).producer : NodeId())
      return operand_shardings(plan_, n).outputs[graph_.value(next).output];
    const int at = plan_.value_task_graph[v];
    const std::vector<int> axes = plan_.batch_of(at).rank_axes(plan_.mesh(at));
    const Sharding& now = plan_.shardings[v];
    const std::vector<CutPosition> positions = shard_positions(plan_.mesh(at), graph_.type(v), now, axes);
    return positions.empty() ? now : with_shards(now, positions.front(), axes);
  }

  Plan& plan_;
  const Plan* const first_;
  const Graph& graph_;
};

}  // namespace

void shard_weights(Plan& plan, const Plan* first) { WeightShards(plan, first).run(); }

}  // namespace epl
