// GPUs that NCCL has brought together: one rank each. Those of one process are driven by one thread, so that the order
// of their calls is the same everywhere. Of a circle over processes each has one GPU, and no call waits for the others.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/cuda/api/nccl.h"
#include "backends/cuda/gpu.h"
#include "core/base/pack_abi.h"

namespace epl::cuda {

// Thread safety: one caller at a time.
class Circle {
 public:
  static Result<std::unique_ptr<Circle>> make(const std::string& libraries, std::vector<std::shared_ptr<Gpu>> gpus);
  // What tells a GPU from all others of all hosts, behind a line with the library that it can join a circle by.
  static Result<std::string> card(const Gpu& gpu);
  static Result<NcclId> new_id(const Gpu& gpu);
  // As one of `ranks` ranks over processes.
  static Result<std::unique_ptr<Circle>> begin(std::shared_ptr<Gpu> gpu, const NcclId& id, int ranks, int rank);
  ~Circle();
  Circle(const Circle&) = delete;
  Circle& operator=(const Circle&) = delete;

  // Of some of its GPUs, by their places, ascending. What it was given has been waited for.
  Result<std::unique_ptr<Circle>> split(std::span<const int32_t> places) const;
  // As commands of a stream of each GPU.
  Status collect(const epl_pack_collective& call) const;
  // Of one over processes: whether all have joined it, and the stream has done what it was given. Null: no stream.
  Result<bool> done(const GpuStream* stream) const;
  // What waits in it on any GPU ends, done or not. Afterwards it serves for nothing.
  void abort();

 private:
  Circle(const Nccl& nccl, std::vector<std::shared_ptr<Gpu>> gpus) : nccl_(nccl), gpus_(std::move(gpus)) {}
  Status check(NcclCode code, const char* call) const;
  // Between the beginning and the end of a group: f(place), a code.
  template <class F> Status together(const char* call, const F& f) const;

  const Nccl& nccl_;
  const std::vector<std::shared_ptr<Gpu>> gpus_;
  std::vector<NcclEnd> ends_;  // by place; empty once it is aborted
  bool over_processes_ = false;
};

}  // namespace epl::cuda
