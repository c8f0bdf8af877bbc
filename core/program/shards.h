// Which bytes of a tensor belong to one rank of a mesh.
#pragma once

#include <vector>

#include "core/base/function_ref.h"
#include "core/base/tensor_box.h"
#include "core/base/tensor_type.h"
#include "core/strategy/sharding.h"

namespace epl {

// Calls f(global, local, bytes) for each run of bytes of a shard: where it lies in the full tensor and in the shard,
// ascending in both. Padding (AxisCut::of) is in no run, and what is local to other ranks (RankLocal) has none.
void for_each_run(const TensorType& type, const Sharding& sharding, const Mesh& mesh,
                  const MeshCoordinates& coordinates,
                  FunctionRef<void(int64_t global, int64_t local, int64_t bytes)> f);

// A shard as boxes that lie together in every dimension: where each begins in the full tensor, and where in the shard.
struct ShardBox {
  Shape offset, local_offset, shape;
};
std::vector<ShardBox> boxes_of(const TensorType& type, const Sharding& sharding, const Mesh& mesh,
                               const MeshCoordinates& coordinates);
// Reads these boxes of a tensor, which lies in shards of its own, into a shard of the type `local`. Padding becomes
// zeros.
Status read_shard(const std::vector<PositionedBox>& from, const std::vector<ShardBox>& boxes, const TensorType& local,
                  void* target);

// Where an element of a shard stands in the full tensor.
int64_t global_element(const TensorType& type, const Sharding& sharding, const Mesh& mesh,
                       const MeshCoordinates& coordinates, int64_t element);

}  // namespace epl
