#include "core/strategy/sharding.h"

#include <algorithm>
#include <iterator>

#include "core/base/check.h"

namespace epl {

int Mesh::find(std::string_view name) const {
  const auto found = std::ranges::find(axes, name, &MeshAxis::name);
  return found == axes.end() ? -1 : static_cast<int>(found - axes.begin());
}

int64_t Mesh::size(std::string_view name) const {
  const int axis = find(name);
  return axis < 0 ? 1 : axes[axis].size;
}

int64_t Mesh::ranks() const {
  int64_t ranks = 1;
  for (const MeshAxis& axis : axes) ranks *= axis.kind == MeshAxis::Kind::rank ? axis.size : 1;
  return ranks;
}

int64_t Mesh::shards(const std::vector<int>& of) const {
  int64_t shards = 1;
  for (int axis : of) shards *= axes[axis].kind == MeshAxis::Kind::unit ? 1 : axes[axis].size;
  return shards;
}

int64_t Mesh::shards(const Cuts& cuts) const {
  int64_t shards = 1;
  for (const AxisCut& cut : cuts) shards *= this->shards(cut.axes);
  return shards;
}

int64_t Mesh::local_size(int64_t size, const Cuts& cuts) const {
  for (const AxisCut& cut : cuts) size = cut.of > 0 ? size / cut.of * granules_of_shard(cut) : size / shards(cut.axes);
  return size;
}

int64_t Mesh::local_outer(int64_t outer, const Cuts& cuts) const {
  Cuts before;
  std::ranges::copy_if(cuts, std::back_inserter(before), [&](const AxisCut& cut) { return cut.outer < outer; });
  return local_size(outer, before);
}

int64_t Mesh::shard(const MeshCoordinates& coordinates, const std::vector<int>& of) const {
  int64_t shard = 0;
  for (int i : of) {
    const MeshAxis& axis = axes[i];
    shard = shard * (axis.kind == MeshAxis::Kind::unit ? 1 : axis.size) + coordinates.at[i];
  }
  return shard;
}

MeshCoordinates Mesh::coordinates(int rank, int64_t micro_batch) const {
  // Mostly they are neighbours in their order.
  const auto guess = static_cast<size_t>(rank - device.ranks.front());
  const auto found = guess < device.ranks.size() && device.ranks[guess] == rank
                         ? device.ranks.begin() + static_cast<std::ptrdiff_t>(guess)
                         : std::ranges::find(device.ranks, rank);
  EPL_CHECK(found != device.ranks.end(), "rank ", rank, " is not in the mesh");
  MeshCoordinates coordinates{std::vector<int64_t>(axes.size(), 0)};
  int64_t index = found - device.ranks.begin();
  for (size_t i = axes.size(); i-- > 0;) {
    if (axes[i].kind == MeshAxis::Kind::time) coordinates.at[i] = micro_batch;
    if (axes[i].kind != MeshAxis::Kind::rank) continue;
    coordinates.at[i] = index % axes[i].size;
    index /= axes[i].size;
  }
  return coordinates;
}

int Mesh::rank_at(const MeshCoordinates& coordinates) const {
  int64_t index = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].kind == MeshAxis::Kind::rank) index = index * axes[i].size + coordinates.at[i];
  }
  return device.ranks[index];
}

std::vector<int> Mesh::ranks_along(std::string_view axis, int rank) const {
  const int along = find(axis);
  if (along < 0) return {rank};
  MeshCoordinates coordinates = this->coordinates(rank);
  std::vector<int> found;
  for (int64_t i = 0; i < axes[along].size; ++i) {
    coordinates.at[along] = i;
    found.push_back(rank_at(coordinates));
  }
  return found;
}

namespace {

bool is_rank(const MeshAxis& axis) { return axis.kind == MeshAxis::Kind::rank; }

// How many coordinates of `to` one of `from` serves at most, along an axis.
int64_t served(const MeshAxis& from, const MeshAxis& to) {
  return !is_rank(from) || from.size == to.size ? 1 : (to.size + from.size - 1) / from.size;
}

}  // namespace

int64_t max_crossing_targets(const Mesh& from, const Mesh& to) {
  int64_t count = 1;
  for (size_t a = 0; a < from.axes.size(); ++a) count *= served(from.axes[a], to.axes[a]);
  return count;
}

std::vector<int> crossing_targets(const Mesh& from, const MeshCoordinates& coordinates, const Mesh& to) {
  std::vector<MeshCoordinates> targets = {{std::vector<int64_t>(to.axes.size(), 0)}};
  for (size_t a = 0; a < from.axes.size(); ++a) {
    if (!is_rank(from.axes[a])) continue;
    const int64_t step = from.axes[a].size, size = to.axes[a].size;
    std::vector<MeshCoordinates> further;
    for (MeshCoordinates& at : targets) {
      for (at.at[a] = coordinates.at[a]; at.at[a] < size; at.at[a] += step) further.push_back(at);
    }
    targets = std::move(further);
  }
  std::vector<int> ranks;
  for (const MeshCoordinates& at : targets) ranks.push_back(to.rank_at(at));
  return ranks;
}

int crossing_source(const Mesh& from, const MeshCoordinates& coordinates) {
  MeshCoordinates source{std::vector<int64_t>(from.axes.size(), 0)};
  for (size_t a = 0; a < from.axes.size(); ++a) {
    if (is_rank(from.axes[a])) source.at[a] = coordinates.at[a] % from.axes[a].size;
  }
  return from.rank_at(source);
}

const AxisCut* find_cut(const Cuts& cuts, int axis) {
  const auto found = std::ranges::find_if(
      cuts, [&](const AxisCut& cut) { return std::ranges::find(cut.axes, axis) != cut.axes.end(); });
  return found == cuts.end() ? nullptr : &*found;
}

int Sharding::cut_dim(int axis) const {
  const auto found = std::ranges::find_if(dims, [&](const Cuts& cuts) { return find_cut(cuts, axis) != nullptr; });
  return found == dims.end() ? -1 : static_cast<int>(found - dims.begin());
}

int64_t Sharding::outer(int axis) const {
  const int dim = cut_dim(axis);
  return dim < 0 ? 1 : find_cut(dims[dim], axis)->outer;
}

int64_t Sharding::of(int axis) const {
  const int dim = cut_dim(axis);
  return dim < 0 ? 0 : find_cut(dims[dim], axis)->of;
}

namespace {

bool any_uneven(const std::vector<Cuts>& all) {
  return std::ranges::any_of(
      all, [](const Cuts& cuts) { return std::ranges::any_of(cuts, [](const AxisCut& cut) { return cut.of > 0; }); });
}

}  // namespace

bool Sharding::uneven() const { return any_uneven(dims); }
bool NodeSharding::uneven() const { return any_uneven(factors); }

bool NodeSharding::cut() const {
  return std::ranges::any_of(factors, [](const Cuts& cuts) { return !cuts.empty(); });
}

bool NodeSharding::cut_by(int axis) const {
  return std::ranges::any_of(factors, [&](const Cuts& cuts) { return find_cut(cuts, axis) != nullptr; });
}

bool stands_in(const ShardingRule::Operand& operand, int factor) {
  return std::ranges::any_of(operand,
                             [&](const ShardingRule::Dim& dim) { return std::ranges::find(dim, factor) != dim.end(); });
}

namespace {

Sharding of_operand(const ShardingRule& rule, const ShardingRule::Operand& operand, const NodeSharding& node) {
  Sharding sharding;
  for (const ShardingRule::Dim& dim : operand) {
    Cuts& cuts = sharding.dims.emplace_back();
    int64_t before = 1;  // product of the factors before the current one
    for (int factor : dim) {
      if (node.factors.empty()) continue;
      for (const AxisCut& cut : node.factors[factor]) {
        cuts.push_back({.axes = cut.axes, .outer = before * cut.outer, .of = cut.of});
      }
      before *= rule.factors[factor].size;
    }
  }
  return sharding;
}

// How often runs of a factor come round in what an output sums over: the sizes of the summed factors that stand before
// it in an operand. Factors that may not be cut are not summed over.
int64_t rounds(const ShardingRule& rule, const ShardingRule::Operand& output, int factor, int64_t outer) {
  for (const auto& operand : rule.inputs) {
    if (!stands_in(operand, factor)) continue;
    for (const ShardingRule::Dim& dim : operand) {
      for (int before : dim) {
        if (before == factor) return outer;
        const ShardingRule::Factor& known = rule.factors[before];
        if (!known.unshardable && !stands_in(output, before)) outer *= known.size;
      }
    }
  }
  return outer;
}

}  // namespace

OperandShardings operand_shardings(const ShardingRule& rule, const NodeSharding& node) {
  OperandShardings result;
  for (size_t f = 0; f < node.factors.size(); ++f) {
    if (!node.factors[f].empty() && rule.factors[f].added >= 0) result.added_later = rule.factors[f].added;
  }
  result.sum_outers.assign(rule.outputs.size(), 1);
  for (const auto& operand : rule.inputs) result.inputs.push_back(of_operand(rule, operand, node));
  for (size_t o = 0; o < rule.outputs.size(); ++o) {
    const auto& operand = rule.outputs[o];
    Sharding& output = result.outputs.emplace_back(of_operand(rule, operand, node));
    for (size_t f = 0; f < node.factors.size(); ++f) {
      if (stands_in(operand, static_cast<int>(f))) continue;
      for (const AxisCut& cut : node.factors[f]) {
        std::vector<Partial> pending;
        for (int axis : cut.axes) pending.push_back({axis, rule.factors[f].reduce});
        // Over the batch first, minor axes before major ones.
        std::ranges::reverse(pending);
        const bool of_batch = find_cut({cut}, batch_axis) != nullptr;
        output.partial.insert(of_batch ? output.partial.begin() : output.partial.end(), pending.begin(), pending.end());
        if (of_batch) result.sum_outers[o] = rounds(rule, operand, static_cast<int>(f), cut.outer);
      }
    }
    const SumSegments& segments = node.segments;
    if (segments && !stands_in(operand, segments.factor))
      result.segment_outer = rounds(rule, operand, segments.factor, segments.outer);
  }
  for (int axis : node.flowing) {
    for (Sharding& input : result.inputs) input.partial.push_back({axis, ShardingRule::Reduce::sum});
    for (Sharding& output : result.outputs) output.partial.push_back({axis, ShardingRule::Reduce::sum});
  }
  return result;
}

}  // namespace epl
