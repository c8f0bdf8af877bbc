// Lanes: the runs of units that one call of a rank has of the batch (BatchLayout::lanes). A value that carries the
// batch holds them side by side; a sum over the batch is made of each lane by itself.
#pragma once

#include <vector>

#include "core/program/reshard.h"

namespace epl {

// One lane, of so many, of a local value of this type, whose dimension `dim` has these cuts.
std::vector<Move> take_lane(const Mesh& mesh, const TensorType& local, const Cuts& cuts, int dim, int64_t lanes,
                            int64_t lane);

// The lanes of a value together again: `part` is made of each, `joined` of all parts, `all` of that. `lane` is the type
// of one.
struct LaneJoin {
  Move part, joined, all;
};
LaneJoin join_lanes(const Mesh& mesh, const TensorType& lane, const Cuts& cuts, int dim, int64_t lanes);

}  // namespace epl
