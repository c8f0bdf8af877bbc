#include "core/program/lanes.h"

#include <algorithm>

namespace epl {
namespace {

// A local value as [before, lanes, behind].
struct InLanes {
  int64_t before = 1, lanes = 1, behind = 1;
  InLanes(const Mesh& mesh, const TensorType& all, const Cuts& cuts, int dim, int64_t count) : lanes(count) {
    const AxisCut& last = *find_cut(cuts, mesh.find(unit_axis));
    before = mesh.local_outer(last.outer, cuts) / lanes;
    for (int d = 0; d < dim; ++d) before *= all.shape[d];
    behind = all.elements() / std::max<int64_t>(before * lanes, 1);
  }
};

Move view(const TensorType& type, std::string suffix) {
  return {.op = "reshape", .suffix = std::move(suffix), .attributes = {{"shape", type.shape}}, .type = type};
}

TensorType with_dim(TensorType type, int dim, int64_t size) {
  type.shape[dim] = size;
  return type;
}

}  // namespace

std::vector<Move> take_lane(const Mesh& mesh, const TensorType& local, const Cuts& cuts, int dim, int64_t lanes,
                            int64_t lane) {
  const InLanes in(mesh, local, cuts, dim, lanes);
  const TensorType apart{local.dtype, {in.before, in.lanes, in.behind}};
  const Move cut{.op = "slice",
                 .suffix = ".lane",
                 .attributes = {{"axes", Ints{1}}, {"starts", Ints{lane}}, {"ends", Ints{lane + 1}}, {"steps", Ints{}}},
                 .type = with_dim(apart, 1, 1)};
  const TensorType one = with_dim(local, dim, local.shape[dim] / in.lanes);
  return {view(apart, ".lanes"), cut, view(one, ".lane")};
}

LaneJoin join_lanes(const Mesh& mesh, const TensorType& lane, const Cuts& cuts, int dim, int64_t lanes) {
  const TensorType all = with_dim(lane, dim, lane.shape[dim] * lanes);
  const InLanes in(mesh, all, cuts, dim, lanes);
  const TensorType joined{lane.dtype, {in.before, in.lanes, in.behind}};
  return {.part = view(with_dim(joined, 1, 1), ".lane"),
          .joined = {.op = "concat", .suffix = ".lanes", .attributes = {{"axis", int64_t{1}}}, .type = joined},
          .all = view(all, ".joined")};
}

}  // namespace epl
