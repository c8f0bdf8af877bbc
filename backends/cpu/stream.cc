#include "backends/cpu/stream.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"

namespace epl::cpu {
namespace {

// Below this a second thread costs more than it saves.
constexpr int64_t copy_grain = 1 << 20;

#if defined(__x86_64__)
constexpr unsigned default_control = 0x1f80;  // all exceptions masked, nearest, no flush to zero
constexpr unsigned exception_flags = 0x3f;
#endif

}  // namespace

FloatEnvironment::FloatEnvironment() : before_(0) {
#if defined(__x86_64__)
  before_ = __builtin_ia32_stmxcsr();
  if ((before_ & ~exception_flags) != default_control) __builtin_ia32_ldmxcsr(default_control);
#endif
}
FloatEnvironment::~FloatEnvironment() {
#if defined(__x86_64__)
  if ((before_ & ~exception_flags) != default_control) __builtin_ia32_ldmxcsr(before_);
#endif
}

CpuStream::CpuStream(int threads, ThreadPool::Wait wait) {
  FloatEnvironment environment;  // workers inherit it
  pool_ = std::make_unique<ThreadPool>(threads, wait);
}

void CpuStream::launch(const KernelRow& row, const KernelQuery& query, const void* prepared, const void* const* inputs,
                       void* const* outputs, void* workspace, const StepContext& context) {
  EPL_CHECK(row.launch != nullptr, "kernel ", row.name, " of ", row.op, " has no launch");
  FloatEnvironment environment;
  row.launch({query, prepared, inputs, outputs, workspace, *pool_, context});
}

void CpuStream::copy(void* target, const void* source, int64_t bytes) {
  if (bytes <= 0 || target == source) return;
  char* to = static_cast<char*>(target);
  const char* from = static_cast<const char*>(source);
  const bool overlap = to < from + bytes && from < to + bytes;
  if (overlap || bytes < 2 * copy_grain) {
    std::memmove(to, from, static_cast<size_t>(bytes));
    return;
  }
  pool_->run_ranges(bytes, copy_grain, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

void CpuStream::fill(void* target, int64_t bytes, uint8_t value) {
  char* to = static_cast<char*>(target);
  pool_->run_ranges(bytes, copy_grain, [&](int64_t begin, int64_t end) {
    std::memset(to + begin, value, static_cast<size_t>(end - begin));
  });
}

}  // namespace epl::cpu
