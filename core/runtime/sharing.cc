#include "core/runtime/sharing.h"

#include <algorithm>
#include <cstring>

#include "core/program/shards.h"

namespace epl {

Status share_output(World& world, const Mesh& mesh, const ProgramPort& port, std::byte* full,
                    std::vector<std::byte>& room) {
  // Over ranks: those of micro-batches cut a rank's shard, or, where they come first, ranks cut each of theirs.
  Sharding by_ranks = port.sharding;
  const auto size_of = [&](int axis) { return mesh.axes[static_cast<size_t>(axis)].size; };
  const auto is_time = [&](int axis) { return mesh.axes[static_cast<size_t>(axis)].kind == MeshAxis::Kind::time; };
  std::vector<int> axes;
  for (Cuts& cuts : by_ranks.dims) {
    for (AxisCut& cut : cuts) {
      for (size_t a = 0; a < cut.axes.size() && is_time(cut.axes[a]); ++a) cut.outer *= size_of(cut.axes[a]);
      std::erase_if(cut.axes,
                    [&](int axis) { return mesh.axes[static_cast<size_t>(axis)].kind != MeshAxis::Kind::rank; });
      axes.insert(axes.end(), cut.axes.begin(), cut.axes.end());
    }
    std::erase_if(cuts, [](const AxisCut& cut) { return cut.axes.empty(); });
  }
  const int64_t shards = mesh.shards(axes);
  const auto has = [&](int rank, int shard) {
    const bool of_mesh = std::ranges::find(mesh.device.ranks, rank) != mesh.device.ranks.end();
    return of_mesh && mesh.shard(mesh.coordinates(rank), axes) == shard;
  };
  if (world.processes().each_has_all(has, static_cast<int>(shards))) return {};
  const int64_t bytes = port.global_type.bytes() / shards;
  room.resize(std::max(room.size(), static_cast<size_t>(bytes)));
  for (int64_t shard = 0; shard < shards; ++shard) {
    int giver = 0;
    while (!has(giver, static_cast<int>(shard))) ++giver;
    const auto each_run = [&](FunctionRef<void(std::byte*, std::byte*, size_t)> f) {
      for_each_run(port.global_type, by_ranks, mesh, mesh.coordinates(giver),
                   [&](int64_t global, int64_t at, int64_t size) {
                     f(full + global, room.data() + at, static_cast<size_t>(size));
                   });
    };
    if (world.is_local(giver))
      each_run([](std::byte* there, std::byte* part, size_t size) { std::memcpy(part, there, size); });
    EPL_TRY(world.among_processes({.kind = Collective::Kind::broadcast,
                                   .count = bytes,
                                   .source = room.data(),
                                   .target = room.data(),
                                   .peer = static_cast<int>(world.processes().of(giver))}));
    if (world.is_local(giver)) continue;
    each_run([](std::byte* there, std::byte* part, size_t size) { std::memcpy(there, part, size); });
  }
  return {};
}

}  // namespace epl
