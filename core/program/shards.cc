#include "core/program/shards.h"

#include <algorithm>
#include <cstring>

namespace epl {
namespace {

// The runs of a dimension that belong to a rank: f(first in the dimension, first in the shard, count), ascending in
// both. Allocates nothing.
class DimRuns {
 public:
  using Visit = FunctionRef<void(int64_t global, int64_t local, int64_t count)>;
  DimRuns(const Cuts& cuts, const Mesh& mesh, const MeshCoordinates& coordinates, Visit visit)
      : cuts_(cuts), mesh_(mesh), coordinates_(coordinates), visit_(visit) {}

  void run(int64_t size) const { divide(0, 1, {0, size}, {0, mesh_.local_size(size, cuts_)}); }

 private:
  struct Span {
    int64_t first = 0, size = 0;
    Span at(int64_t i, int64_t of) const { return {first + i * (size / of), size / of}; }
  };

  // What the cuts from number `c` on make of a span of the dimension, and of the shard. The cuts before it divide the
  // full dimension in `before`.
  void divide(size_t c, int64_t before, Span global, Span local) const {
    if (c == cuts_.size()) {
      if (global.size > 0) visit_(global.first, local.first, global.size);
      return;
    }
    const AxisCut& cut = cuts_[c];
    const int64_t runs = cut.outer / before, shards = mesh_.shards(cut.axes),
                  shard = mesh_.shard(coordinates_, cut.axes);
    for (int64_t r = 0; r < runs; ++r) {
      const Span run = global.at(r, runs), here = local.at(r, runs);
      if (cut.of == 0) {
        divide(c + 1, cut.outer * shards, run.at(shard, shards), here);
        continue;
      }
      const int64_t room = mesh_.granules_of_shard(cut), first = shard * room;
      const int64_t granules = std::clamp<int64_t>(cut.of - first, 0, room);
      if (c + 1 == cuts_.size()) {
        if (granules > 0) visit_(run.at(first, cut.of).first, here.first, granules * (run.size / cut.of));
        continue;
      }
      for (int64_t p = 0; p < granules; ++p)
        divide(c + 1, cut.outer * cut.of, run.at(first + p, cut.of), here.at(p, room));
    }
  }

  const Cuts& cuts_;
  const Mesh& mesh_;
  const MeshCoordinates& coordinates_;
  Visit visit_;
};

// Walks through a shard in order. Allocates nothing: it runs in steps.
class Walk {
 public:
  using Visit = FunctionRef<void(int64_t global, int64_t local, int64_t bytes)>;
  Walk(const TensorType& type, const Sharding& sharding, const Mesh& mesh, const MeshCoordinates& coordinates,
       Visit visit)
      : type_(type),
        sharding_(sharding),
        mesh_(mesh),
        coordinates_(coordinates),
        visit_(visit),
        last_(type.shape.size()) {
    // The dimensions behind the last cut one lie together.
    while (last_ > 0 && mesh.shards(sharding.dims[last_ - 1]) == 1) --last_;
    bytes_ = static_cast<int64_t>(dtype_bytes(type.dtype));
    for (size_t d = last_; d < type.shape.size(); ++d) bytes_ *= type.shape[d];
  }

  void dim(size_t d, int64_t global, int64_t local) {
    if (d == last_) return give(global, local, 1);
    const int64_t size = type_.shape[d], here = mesh_.local_size(size, sharding_.dims[d]);
    const auto step = [&](int64_t first, int64_t at, int64_t count) {
      if (d + 1 == last_) return give(global * size + first, local * here + at, count);
      for (int64_t i = 0; i < count; ++i) dim(d + 1, global * size + first + i, local * here + at + i);
    };
    DimRuns(sharding_.dims[d], mesh_, coordinates_, step).run(size);
  }

 private:
  void give(int64_t first, int64_t at, int64_t count) { visit_(first * bytes_, at * bytes_, count * bytes_); }

  const TensorType& type_;
  const Sharding& sharding_;
  const Mesh& mesh_;
  const MeshCoordinates& coordinates_;
  Visit visit_;
  size_t last_;
  int64_t bytes_ = 0;
};

}  // namespace

void for_each_run(const TensorType& type, const Sharding& sharding, const Mesh& mesh,
                  const MeshCoordinates& coordinates,
                  FunctionRef<void(int64_t global, int64_t local, int64_t bytes)> f) {
  if (!sharding.rank_local.is_at(mesh, coordinates)) return;
  Walk(type, sharding, mesh, coordinates, f).dim(0, 0, 0);
}

std::vector<ShardBox> boxes_of(const TensorType& type, const Sharding& sharding, const Mesh& mesh,
                               const MeshCoordinates& coordinates) {
  std::vector<ShardBox> boxes(1);
  if (!sharding.rank_local.is_at(mesh, coordinates)) return {};
  for (size_t d = 0; d < type.shape.size(); ++d) {
    std::vector<ShardBox> longer;
    for (const ShardBox& box : boxes) {
      const size_t before = longer.size();
      const auto add = [&](int64_t global, int64_t local, int64_t count) {
        ShardBox* last = longer.size() > before ? &longer.back() : nullptr;
        if (last && last->offset.back() + last->shape.back() == global &&
            last->local_offset.back() + last->shape.back() == local) {
          last->shape.back() += count;
          return;
        }
        ShardBox& next = longer.emplace_back(box);
        next.offset.push_back(global);
        next.local_offset.push_back(local);
        next.shape.push_back(count);
      };
      DimRuns(sharding.dims[d], mesh, coordinates, add).run(type.shape[d]);
    }
    boxes = std::move(longer);
  }
  return boxes;
}

Status read_shard(const std::vector<PositionedBox>& from, const std::vector<ShardBox>& boxes, const TensorType& local,
                  void* target) {
  int64_t elements = 0;
  for (const ShardBox& box : boxes) elements += element_count(box.shape);
  if (elements < local.elements()) std::memset(target, 0, static_cast<size_t>(local.bytes()));
  for (const ShardBox& box : boxes)
    EPL_TRY(copy_box(from, {box.shape, box.offset, local.shape, box.local_offset}, target));
  return {};
}

int64_t global_element(const TensorType& type, const Sharding& sharding, const Mesh& mesh,
                       const MeshCoordinates& coordinates, int64_t element) {
  const auto size = static_cast<int64_t>(dtype_bytes(type.dtype));
  const int64_t wanted = element * size;
  int64_t found = -1;
  for_each_run(type, sharding, mesh, coordinates, [&](int64_t global, int64_t local, int64_t bytes) {
    if (local <= wanted && wanted < local + bytes) found = (global + wanted - local) / size;
  });
  return found;
}

}  // namespace epl
