// The axes of ranks over which TaskGraphs cut the batch. All of them have these axes, so that they agree about the
// order of samples, and each uses those that make its own degree of data parallelism.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/strategy/batch_layout.h"

namespace epl {

// Degrees of which each divides the next: the boundaries between the axes of a mesh.
class Chain {
 public:
  void add(int64_t degree) { degrees_.insert(degree); }
  Status check() const;
  const std::set<int64_t>& degrees() const { return degrees_; }

 private:
  std::set<int64_t> degrees_;
};

// The micro-batches of a step, and whether they cut the batch before ranks do.
struct MicroBatches {
  int64_t count = 1;
  BatchOrder order = BatchOrder::ranks;
};

// Where the axes of the batch are in a mesh: those of ranks as BatchAxes has them.
struct MeshNumbers {
  std::vector<int> ranks;
  int time = 0, unit = 0;
};

class BatchAxes {
 public:
  struct Axis {
    int64_t size = 1;
    std::set<int64_t> degrees;  // who uses it
  };

  // Where the degrees are no chain, as 2 and 3, the axes are their common part and what each has besides. An error says
  // which degrees have no such axes.
  static Result<BatchAxes> find(const std::set<int64_t>& degrees);

  const std::vector<Axis>& axes() const { return axes_; }  // major first; the first is that of every mesh
  // Into how many shards they cut the batch together.
  int64_t shards() const;
  // Of a degree: how its TaskGraphs cut the batch.
  BatchLayout layout(int64_t degree, const MeshNumbers& numbers, const MicroBatches& in_time) const;
  // Whether sums over these ranks and micro-batches are the binary tree over all shards: then bits do not depend on how
  // many shards there are.
  bool keep_the_tree(const MicroBatches& in_time) const;

 private:
  std::vector<Axis> axes_;
  bool chain_ = true;
};

}  // namespace epl
