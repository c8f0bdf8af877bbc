#include "core/program/pieces.h"

#include <algorithm>
#include <cstring>

namespace epl {
namespace {

// Walks through a piece in order. Allocates nothing: it runs in steps.
class Walk {
 public:
  using Visit = FunctionRef<void(int64_t global, int64_t local, int64_t bytes)>;
  Walk(const TensorType& type, const Sharding& sharding, const Mesh& mesh, const Place& place, Visit visit)
      : type_(type), sharding_(sharding), mesh_(mesh), place_(place), visit_(visit), last_(type.shape.size()) {
    // The dimensions behind the last cut one lie together.
    while (last_ > 0 && mesh.pieces(sharding.dims[last_ - 1]) == 1) --last_;
    bytes_ = static_cast<int64_t>(dtype_bytes(type.dtype));
    for (size_t d = last_; d < type.shape.size(); ++d) bytes_ *= type.shape[d];
  }

  void dim(size_t d, int64_t global) {
    if (d == last_) return give(global, 1);
    const int64_t size = type_.shape[d];
    const Cuts& cuts = sharding_.dims[d];
    // Indices belong to a place in runs of this length, or of several of it.
    const int64_t step = cuts.empty() ? size : size / cuts.back().outer / mesh_.pieces(cuts.back().axes);
    for (int64_t first = 0; first < size; first += step) {
      if (!is_here(cuts, size, first)) continue;
      if (d + 1 == last_) {
        give(global * size + first, step);
        continue;
      }
      for (int64_t i = first; i < first + step; ++i) dim(d + 1, global * size + i);
    }
  }

 private:
  bool is_here(const Cuts& cuts, int64_t size, int64_t index) const {
    return std::ranges::all_of(cuts, [&](const AxisCut& cut) {
      const int64_t pieces = mesh_.pieces(cut.axes), run = size / cut.outer / pieces;
      return index / run % pieces == mesh_.piece(place_, cut.axes);
    });
  }

  void give(int64_t first, int64_t count) {
    visit_(first * bytes_, local_, count * bytes_);
    local_ += count * bytes_;
  }

  const TensorType& type_;
  const Sharding& sharding_;
  const Mesh& mesh_;
  const Place& place_;
  Visit visit_;
  size_t last_;
  int64_t bytes_ = 0, local_ = 0;
};

struct Run {
  int64_t first = 0, count = 0;
};

// The indices of a dimension that belong to the place, as runs.
std::vector<Run> runs_of(int64_t size, const Cuts& cuts, const Mesh& mesh, const Place& place) {
  std::vector<Run> runs;
  for (int64_t i = 0; i < size; ++i) {
    bool here = true;
    for (const AxisCut& cut : cuts) {
      const int64_t pieces = mesh.pieces(cut.axes), run = size / cut.outer / pieces;
      here = here && i / run % pieces == mesh.piece(place, cut.axes);
    }
    if (!here) continue;
    if (!runs.empty() && runs.back().first + runs.back().count == i) {
      ++runs.back().count;
    } else {
      runs.push_back({i, 1});
    }
  }
  return runs;
}

}  // namespace

void for_each_run(const TensorType& type, const Sharding& sharding, const Mesh& mesh, const Place& place,
                  FunctionRef<void(int64_t global, int64_t local, int64_t bytes)> f) {
  Walk(type, sharding, mesh, place, f).dim(0, 0);
}

std::vector<PieceBox> boxes_of(const TensorType& type, const Sharding& sharding, const Mesh& mesh, const Place& place) {
  std::vector<PieceBox> boxes(1);
  for (size_t d = 0; d < type.shape.size(); ++d) {
    std::vector<PieceBox> longer;
    for (const PieceBox& box : boxes) {
      int64_t local = 0;
      for (const Run& run : runs_of(type.shape[d], sharding.dims[d], mesh, place)) {
        PieceBox& next = longer.emplace_back(box);
        next.offset.push_back(run.first);
        next.local_offset.push_back(local);
        next.shape.push_back(run.count);
        local += run.count;
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

Tensor cut_box(const Tensor& piece, const PieceBox& box) {
  Tensor out(TensorType{piece.dtype(), box.shape});
  const Shape& all = piece.shape();
  const auto size = static_cast<int64_t>(dtype_bytes(piece.dtype()));
  const int64_t row = box.shape.empty() ? 1 : box.shape.back();
  for (int64_t r = 0; row > 0 && r < out.elements() / row; ++r) {
    int64_t at = box.shape.empty() ? 0 : box.local_offset.back(), rest = r, stride = all.empty() ? 1 : all.back();
    for (size_t d = all.size(); d-- > 1;) {
      at += (rest % box.shape[d - 1] + box.local_offset[d - 1]) * stride;
      rest /= box.shape[d - 1];
      stride *= all[d - 1];
    }
    std::memcpy(static_cast<std::byte*>(out.data()) + r * row * size,
                static_cast<const std::byte*>(piece.data()) + at * size, static_cast<size_t>(row * size));
  }
  return out;
}

int64_t global_element(const TensorType& type, const Sharding& sharding, const Mesh& mesh, const Place& place,
                       int64_t element) {
  const auto size = static_cast<int64_t>(dtype_bytes(type.dtype));
  const int64_t wanted = element * size;
  int64_t found = -1;
  for_each_run(type, sharding, mesh, place, [&](int64_t global, int64_t local, int64_t bytes) {
    if (local <= wanted && wanted < local + bytes) found = (global + wanted - local) / size;
  });
  return found;
}

}  // namespace epl
