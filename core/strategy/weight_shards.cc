#include "core/strategy/weight_shards.h"

#include <algorithm>
#include <optional>

namespace epl {

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

namespace {

// Axes of ranks of `here`, major first, that number the ranks as `axes` of `there` do; none where there are none.
// Entries have other meshes where their batch has another size.
std::optional<std::vector<int>> same_axes(const Mesh& there, const std::vector<int>& axes, const Mesh& here) {
  std::vector<int> candidates;
  for (int a = 0; a < std::ssize(here.axes); ++a) {
    if (here.axes[a].kind == MeshAxis::Kind::rank && here.axes[a].size > 1) candidates.push_back(a);
  }
  const auto same = [&](const std::vector<int>& chosen) {
    return here.shards(chosen) == there.shards(axes) && here.device.ranks.size() == there.device.ranks.size() &&
           std::ranges::all_of(here.device.ranks, [&](int rank) {
             return std::ranges::find(there.device.ranks, rank) != there.device.ranks.end() &&
                    here.shard(here.coordinates(rank), chosen) == there.shard(there.coordinates(rank), axes);
           });
  };
  if (there.axes.size() == here.axes.size() && same(axes)) return axes;
  for (size_t subset = 1; subset < size_t{1} << candidates.size(); ++subset) {
    std::vector<int> chosen;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (subset >> i & 1) chosen.push_back(candidates[i]);
    }
    if (same(chosen)) return chosen;
  }
  return std::nullopt;
}

class WeightShards {
 public:
  WeightShards(Plan& plan, const Plan* first) : plan_(plan), first_(first), graph_(*plan.graph) {}

  Status run() {
    for (const Value v : graph_.leaves(ValueKind::parameter)) {
      EPL_ASSIGN(const Sharding wanted, sharding_of(v));
      plan_.shardings[v] = wanted;
      for (const Graph::Update& update : graph_.updates) {
        if (update.state == v) plan_.shardings[update.next] = wanted;
      }
    }
    return {};
  }

 private:
  Result<Sharding> sharding_of(Value v) const {
    const Value known = first_ ? first_->graph->find(graph_.value(v).name) : Value();
    if (known && first_->graph->value(known).kind == ValueKind::parameter) return as_in_first(v, known);
    // As its update gives it, so that nothing moves there.
    for (const Graph::Update& update : graph_.updates) {
      const NodeId n = graph_.value(update.next).producer;
      if (update.state == v && n) return operand_shardings(plan_, n).outputs[graph_.value(update.next).output];
    }
    const int at = plan_.value_task_graph[v];
    const std::vector<int> axes = plan_.batch_of(at).rank_axes(plan_.mesh(at));
    const Sharding& now = plan_.shardings[v];
    const std::vector<CutPosition> positions = shard_positions(plan_.mesh(at), graph_.type(v), now, axes);
    return positions.empty() ? now : with_shards(now, positions.front(), axes);
  }

  Result<Sharding> as_in_first(Value v, Value known) const {
    const Mesh &there = first_->mesh(first_->value_task_graph[known]), &here = plan_.mesh(plan_.value_task_graph[v]);
    Sharding wanted = first_->shardings[known];
    for (Cuts& cuts : wanted.dims) {
      for (AxisCut& cut : cuts) {
        const std::optional<std::vector<int>> axes = same_axes(there, cut.axes, here);
        if (!axes)
          return unsupported("parameter ", graph_.value(v).name,
                             " is stored in shards that the ranks of another entry number in another way; use a batch "
                             "for it that as many copies divide");
        cut.axes = *axes;
      }
    }
    return wanted;
  }

  Plan& plan_;
  const Plan* const first_;
  const Graph& graph_;
};

}  // namespace

Status shard_weights(Plan& plan, const Plan* first) { return WeightShards(plan, first).run(); }

}  // namespace epl
