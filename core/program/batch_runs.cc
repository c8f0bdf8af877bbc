#include "core/program/batch_runs.h"

#include <algorithm>

namespace epl {
namespace {

// Runs, times what stands in front of the batch in the dimension.
int64_t runs_with_before(const Mesh& mesh, const Cuts& cuts, int64_t inside) {
  return mesh.local_outer(find_cut(cuts, mesh.find(unit_axis))->outer, cuts) * inside;
}

// A local value as [before, runs, behind].
struct InRuns {
  int64_t before = 1, runs = 1, behind = 1;
  InRuns(const Mesh& mesh, const TensorType& all, const Cuts& cuts, int dim, int64_t count, int64_t inside)
      : runs(count) {
    before = runs_with_before(mesh, cuts, inside) / runs;
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
                           int64_t run, int64_t inside) {
  const InRuns in(mesh, local, cuts, dim, runs, inside);
  const TensorType apart{local.dtype, {in.before, in.runs, in.behind}};
  const Move cut{.op = "slice",
                 .suffix = ".run",
                 .attributes = {{"axes", Ints{1}}, {"starts", Ints{run}}, {"ends", Ints{run + 1}}, {"steps", Ints{}}},
                 .type = with_dim(apart, 1, 1)};
  const TensorType one = with_dim(local, dim, local.shape[dim] / in.runs);
  return {view(apart, ".runs"), cut, view(one, ".run")};
}

bool has_runs(const Mesh& mesh, const Cuts& cuts, int64_t runs, int64_t inside) {
  return runs_with_before(mesh, cuts, inside) % runs == 0;
}

RunJoin join_runs(const Mesh& mesh, const TensorType& run, const Cuts& cuts, int dim, int64_t runs, int64_t inside) {
  const TensorType all = with_dim(run, dim, run.shape[dim] * runs);
  const InRuns in(mesh, all, cuts, dim, runs, inside);
  const TensorType joined{run.dtype, {in.before, in.runs, in.behind}};
  return {.each = view(with_dim(joined, 1, 1), ".run"),
          .joined = {.op = "concat", .suffix = ".runs", .attributes = {{"axis", int64_t{1}}}, .type = joined},
          .all = view(all, ".joined")};
}

}  // namespace epl
