// GPUs of one process that NCCL has brought together: one rank each. All are driven by one thread, so that the order of
// their calls is the same everywhere.
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
  ~Circle();
  Circle(const Circle&) = delete;
  Circle& operator=(const Circle&) = delete;

  // Of some of its GPUs, by their places, ascending. What it was given has been waited for.
  Result<std::unique_ptr<Circle>> split(std::span<const int32_t> places) const;
  // As commands of a stream of each GPU.
  Status collect(const epl_pack_collective& call) const;
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
};

}  // namespace epl::cuda
