#include "backends/cpu/cpu.h"

#include <atomic>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace epl::cpu {
namespace {

constexpr int not_faked = -1;
std::atomic<int> faked{not_faked};

#if defined(__x86_64__)
// The registers the operating system saves on a switch (XCR0); zero where it does not say.
uint64_t saved_registers() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 27))) return 0;  // no OSXSAVE
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}
#endif

CpuLevel detect() {
#if defined(__x86_64__)
  constexpr uint64_t ymm = 0x6, zmm = 0xe6;
  __builtin_cpu_init();
  uint64_t saved = saved_registers();
  bool v3 = (saved & ymm) == ymm && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
            __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  bool v4 = v3 && (saved & zmm) == zmm && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return v4 ? CpuLevel::v4 : v3 ? CpuLevel::v3 : CpuLevel::none;
#else
  return CpuLevel::none;
#endif
}

}  // namespace

std::string_view cpu_level_name(CpuLevel level) {
  switch (level) {
    case CpuLevel::v3: return "x86-64-v3 (AVX2, FMA)";
    case CpuLevel::v4: return "x86-64-v4 (AVX-512)";
    case CpuLevel::none: break;
  }
  return "no vector level";
}

CpuLevel detected_cpu_level() {
  static const CpuLevel level = detect();
  return level;
}

CpuLevel cpu_level() {
  int level = faked.load(std::memory_order_relaxed);
  return level == not_faked ? detected_cpu_level() : static_cast<CpuLevel>(level);
}

ScopedCpuLevel::ScopedCpuLevel(CpuLevel level) : before_(faked.exchange(static_cast<int>(level))) {}
ScopedCpuLevel::~ScopedCpuLevel() { faked.store(before_); }

Status require_cpu() {
  if (cpu_level() != CpuLevel::none) return {};
  return unsupported("the cpu backend needs an x86-64 processor with AVX2 and FMA (level x86-64-v3, 2013 or later), and ",
                     "an operating system that saves the AVX registers; this machine lacks one of them");
}

}  // namespace epl::cpu
