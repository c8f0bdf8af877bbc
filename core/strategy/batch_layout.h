// How a TaskGraph cuts the batch, a dimension of U units: the axes of a mesh that cut it, major first. What an axis
// cuts is each TaskGraph's own: one may cut the batch over axes over which another one cuts weights.
//
// The order of the axes is a value: ranks before micro-batches, or micro-batches before ranks. Both have the same bits,
// because what an axis cuts is an aligned run of units, and such a run is a subtree of the binary tree. Sums over the
// batch are completed in this order, the last axis first.
#pragma once

#include <vector>

#include "core/strategy/sharding.h"
#include "core/strategy/strategy.h"

namespace epl {

// What cuts the batch first.
enum class BatchOrder : uint8_t { ranks, micro_batches };
// As `batch.order` says. Gradients that stay in shards (shards_gradients) are added to by all ranks in each
// micro-batch: then micro-batches come first where nothing is said, and another order is an error.
Result<BatchOrder> batch_order(const Strategy& strategy);

class BatchLayout {
 public:
  BatchLayout() = default;
  explicit BatchLayout(Cuts cuts) : cuts_(std::move(cuts)) {}
  // Over the three axes that every mesh has, ranks first.
  static BatchLayout over_all_axes(const Mesh& mesh);

  // Cuts of the batch. What axes of other TaskGraphs cut is left out, and stands in the `outer` of the next cut.
  const Cuts& cuts() const { return cuts_; }
  // The same in a dimension that is `outer` times the batch.
  Cuts cuts_inside(int64_t outer) const;
  bool empty() const { return cuts_.empty(); }
  bool cuts_over(int axis) const { return find_cut(cuts_, axis) != nullptr; }
  // Of ranks, those with more than one.
  std::vector<int> rank_axes(const Mesh& mesh) const;
  void leave_out(int axis);

  int64_t units(const Mesh& mesh) const;  // U
  // What one call of a rank has of the batch: `runs` runs of `units_of_run` units. A run is a subtree, two of them
  // side by side are not: a sum over the batch sums each run by itself.
  int64_t runs(const Mesh& mesh) const;
  int64_t units_of_run(const Mesh& mesh) const;
  int64_t run_stride(const Mesh& mesh) const;  // units from the beginning of one run to that of the next
  // The first unit at these coordinates.
  int64_t first_unit(const Mesh& mesh, const MeshCoordinates& coordinates) const;
  // The axes in the order in which sums over the batch are completed.
  std::vector<int> order_of_sums() const;
  // Whether the loop over micro-batches cuts each run: then runs are added when it has ended.
  bool loops_in_runs(const Mesh& mesh) const;
  // Whether micro-batches come before ranks: then sums over ranks are completed in each micro-batch.
  bool time_first(const Mesh& mesh) const;

  friend bool operator==(const BatchLayout&, const BatchLayout&) = default;

 private:
  // What others cut of the batch between two axes that this TaskGraph uses: so many runs, of which each has so many
  // units behind where it begins. At most one (BatchAxes).
  struct Gap {
    int64_t runs = 1, behind = 0;
  };
  Gap gap(const Mesh& mesh) const;

  Cuts cuts_;
};

}  // namespace epl
