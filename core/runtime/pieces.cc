#include "core/runtime/pieces.h"

#include <vector>

namespace epl {
namespace {

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
  // The dimensions behind the last cut one lie together.
  size_t last = type.shape.size();
  while (last > 0 && mesh.pieces(sharding.dims[last - 1]) == 1) --last;
  auto bytes = static_cast<int64_t>(dtype_bytes(type.dtype));
  for (size_t d = last; d < type.shape.size(); ++d) bytes *= type.shape[d];
  std::vector<std::vector<Run>> runs;
  for (size_t d = 0; d < last; ++d) runs.push_back(runs_of(type.shape[d], sharding.dims[d], mesh, place));
  int64_t local = 0;
  const auto visit = [&](const auto& self, size_t d, int64_t global) -> void {
    if (d == last) {
      f(global * bytes, local, bytes);
      local += bytes;
      return;
    }
    for (const Run& run : runs[d]) {
      if (d + 1 == last) {
        f((global * type.shape[d] + run.first) * bytes, local, run.count * bytes);
        local += run.count * bytes;
        continue;
      }
      for (int64_t i = run.first; i < run.first + run.count; ++i) self(self, d + 1, global * type.shape[d] + i);
    }
  };
  visit(visit, 0, 0);
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
