// The runs of units that one call of a rank has of the batch (BatchLayout::runs). A value that carries the
// batch holds them side by side; a sum over the batch is made of each run by itself.
#pragma once

#include <vector>

#include "core/program/reshard.h"

namespace epl {

// One run, of so many, of a local value of this type, whose dimension `dim` has these cuts. Units may be runs of their
// own: then `inside` is the size of their axis, else 1.
std::vector<Move> take_run(const Mesh& mesh, const TensorType& local, const Cuts& cuts, int dim, int64_t runs,
                           int64_t run, int64_t inside = 1);
// Whether a dimension with these cuts is made of so many runs.
bool has_runs(const Mesh& mesh, const Cuts& cuts, int64_t runs, int64_t inside);

// The runs of a value together again: `each` is made of one, `joined` of all of these, `all` of that. `run` is the type
// of one.
struct RunJoin {
  Move each, joined, all;
};
RunJoin join_runs(const Mesh& mesh, const TensorType& run, const Cuts& cuts, int dim, int64_t runs, int64_t inside = 1);

}  // namespace epl
