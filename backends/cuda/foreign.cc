#include "backends/cuda/foreign.h"

#include <algorithm>

namespace epl::cuda {
namespace {

// A graph keeps the addresses of its copies, and the program may give another tensor at each step. So this kernel reads
// the address where the host has written it for this step.
constexpr const char* placed_text = R"(
extern "C" __global__ void copy_placed(unsigned char* memory, const unsigned long long* place, long long offset,
                                       long long bytes, long long to_place) {
  const unsigned long long found = *place;
  if (found == 0) return;
  unsigned char* theirs = (unsigned char*)(found + (unsigned long long)offset);
  const unsigned char* source = to_place != 0 ? memory : theirs;
  unsigned char* target = to_place != 0 ? theirs : memory;
  const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x, stride = (long long)gridDim.x * blockDim.x;
  if ((((unsigned long long)source | (unsigned long long)target | (unsigned long long)bytes) & 15) == 0) {
    for (long long i = first; i < bytes / 16; i += stride) ((uint4*)target)[i] = ((const uint4*)source)[i];
  } else {
    for (long long i = first; i < bytes; i += stride) target[i] = source[i];
  }
}
)";

}  // namespace

Status record_foreign(const Gpu& gpu, int64_t stream, EventHandle event) {
  // The driver's names for the two default streams are the numbers 1 and 2.
  auto* const theirs = reinterpret_cast<StreamHandle>(static_cast<uintptr_t>(stream));
  return gpu.call("cuEventRecord", [&] { return gpu.driver.record(event, theirs); });
}

Launch placed_launch(uint64_t bytes) {
  return over_elements(placed_text, "copy_placed", std::max<int64_t>(static_cast<int64_t>(bytes / 16), 1));
}

Status copy_placed(const GpuStream& stream, Address memory, Address place, int64_t offset, uint64_t bytes,
                   bool to_place) {
  const Launch how = placed_launch(bytes);
  EPL_ASSIGN(const Function function, stream.gpu->function(how.source, how.entry, how.shared_bytes));
  if (bytes == 0) return {};
  const uint64_t values[] = {memory, place, static_cast<uint64_t>(offset), bytes, uint64_t{to_place}};
  return stream.launch(function, how, values);
}

}  // namespace epl::cuda
