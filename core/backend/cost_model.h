// Seconds: of a kernel, of bytes that move within a rank, and of what ranks do together, on a Machine. Whoever weighs
// one plan against another and whoever simulates a step asks here, so that there is one scale.
//
// A kernel takes the longer of computing and moving (roofline: Williams, Waterman, Patterson, 2009). A collective takes
// the cheaper of a latency-optimal and a bandwidth-optimal algorithm, from Thakur, Rabenseifner, Gropp, "Optimization
// of collective communication operations in MPICH", 2005. A barrier is Hensgen, Finkel and Manber's dissemination,
// 1988.
#pragma once

#include <algorithm>

#include "core/backend/communicator.h"
#include "core/backend/machine.h"

namespace epl {

struct KernelQuery;

// What a kernel has to do.
struct Work {
  DType dtype = DType::f32;
  double flops = 0, bytes = 0;
  double operands = 0, results = 0;  // elements
  WorkKind kind() const;
};
Work work_of(const KernelQuery& query);

// m by k times k by n, so many times.
struct ProductShape {
  double m = 1, n = 1, k = 1, count = 1;
  double flops() const { return 2 * m * n * k * count; }
};

// Ranks that do something together: so many, the first and the last of which are these ranks of the job, and as far
// from one to the next.
struct RankGroup {
  int64_t size = 1;
  int64_t first = 0, last = 0;
  static RankGroup of_first(int64_t size) { return {size, 0, std::max<int64_t>(size, 1) - 1}; }
};

class CostModel {
 public:
  explicit CostModel(Machine machine) : machine_(std::move(machine)) {}
  const Machine& machine() const { return machine_; }

  double kernel(const Work& work) const;
  // Of the operations alone, without a launch and without what they read and write.
  double computing(const Work& work) const;
  // Of a product, by its shape too: small ones do not fill the device.
  double product(DType dtype, const ProductShape& shape) const;
  // Bytes over time: what a kernel that only moves takes for so many bytes read and written; a launch comes on top.
  double memory(double bytes) const;
  double launch() const { return machine_.launch_seconds; }
  double host(double bytes) const;  // from or to the host's memory, without a launch
  // From or to another memory of the device. One that the machine does not describe is as fast as the host's.
  double other(MemoryKind kind, double bytes) const;

  // `bytes` is what one rank contributes; of a reduce-scatter and an all-to-all what it gets from or gives to each, of
  // a message all of it.
  double collective(Collective::Kind kind, const RankGroup& group, double bytes) const;
  // The same without latencies, of which many small calls have as many, and one that stands for all of them has one.
  double moving(Collective::Kind kind, const RankGroup& group, double bytes) const;
  // Of a call.
  double collective(const Collective& call, const RankGroup& group) const;

 private:
  static double seconds(const Machine::Link& link, Collective::Kind kind, int64_t ranks, double bytes);
  Machine::Link link_of(Collective::Kind kind, const RankGroup& group) const;

  Machine machine_;
};

}  // namespace epl
