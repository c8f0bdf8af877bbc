#include "core/program/batch_runs.h"

#include <algorithm>

namespace epl {
namespace {

// A local value as [before, runs, behind].
struct InRuns {
  int64_t before = 1, runs = 1, behind = 1;
  InRuns(const Mesh& mesh, const TensorType& all, const Cuts& cuts, int dim, int64_t count) : runs(count) {
    const AxisCut& last = *find_cut(cuts, mesh.find(unit_axis));
    before = mesh.local_outer(last.outer, cuts) / runs;
    for (int d = 0; d < dim; ++d) before *= all.shape[d];
    behind = all.elements() / std::max<int64_t>(before * runs, 1);
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

std::vector<Move> take_run(const Mesh& mesh, const TensorType& local, const Cuts& cuts, int dim, int64_t runs,
                           int64_t run) {
  const InRuns in(mesh, local, cuts, dim, runs);
  const TensorType apart{local.dtype, {in.before, in.runs, in.behind}};
  const Move cut{.op = "slice",
                 .suffix = ".run",
                 .attributes = {{"axes", Ints{1}}, {"starts", Ints{run}}, {"ends", Ints{run + 1}}, {"steps", Ints{}}},
                 .type = with_dim(apart, 1, 1)};
  const TensorType one = with_dim(local, dim, local.shape[dim] / in.runs);
  return {view(apart, ".runs"), cut, view(one, ".run")};
}

RunJoin join_runs(const Mesh& mesh, const TensorType& run, const Cuts& cuts, int dim, int64_t runs) {
  const TensorType all = with_dim(run, dim, run.shape[dim] * runs);
  const InRuns in(mesh, all, cuts, dim, runs);
  const TensorType joined{run.dtype, {in.before, in.runs, in.behind}};
  return {.each = view(with_dim(joined, 1, 1), ".run"),
          .joined = {.op = "concat", .suffix = ".runs", .attributes = {{"axis", int64_t{1}}}, .type = joined},
          .all = view(all, ".joined")};
}

}  // namespace epl
