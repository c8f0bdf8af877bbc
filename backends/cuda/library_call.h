// A call of a library as a kernel has it (kernel.h), made ready for one GPU: descriptors, the algorithm and what it
// needs.
#pragma once

#include <memory>
#include <span>

#include "backends/cuda/gpu.h"
#include "backends/cuda/kernel.h"
#include "backends/cuda/target.h"

namespace epl::cuda {

// Libraries want a workspace aligned to so many bytes, and memory is planned with less: a call is given the next such
// address, and so much less than what is kept free for it.
constexpr int64_t call_alignment = 256;
inline uint64_t call_aligned(uint64_t address) {
  return (address + call_alignment - 1) / call_alignment * call_alignment;
}

// All calls may run together.
class PreparedCall {
 public:
  virtual ~PreparedCall() = default;
  // All that the call may take, whatever the library then chooses: so a plan that was made without a GPU, or with
  // another version of the library, has the same memory.
  virtual int64_t workspace_bytes() const = 0;
  // `values`: of the arguments, in their order.
  virtual Status issue(const GpuStream& stream, std::span<const uint64_t> values, uint64_t workspace) const = 0;
};

// Null where the launch has a text. For a target without a GPU the call is there to be planned: the library is not
// asked, and is taken to know an algorithm.
Result<std::unique_ptr<PreparedCall>> prepare_call(const LibraryCall& call, const Target* target);

Result<std::unique_ptr<PreparedCall>> prepare_blas(const BlasCall& call, std::shared_ptr<Gpu> gpu);
Result<std::unique_ptr<PreparedCall>> prepare_dnn(const DnnCall& call, std::shared_ptr<Gpu> gpu);

}  // namespace epl::cuda
