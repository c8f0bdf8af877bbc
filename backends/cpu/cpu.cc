#include "backends/cpu/cpu.h"

#include <atomic>

#include "core/base/processor.h"

namespace epl::cpu {
namespace {

constexpr int not_faked = -1;
std::atomic<int> faked{not_faked};

CpuLevel detect() {
  const int level = processor_level();
  return processor_has_bf16() ? CpuLevel::v4_bf16
         : level >= 4         ? CpuLevel::v4
         : level >= 3         ? CpuLevel::v3
                              : CpuLevel::none;
}

}  // namespace

std::string_view cpu_level_name(CpuLevel level) {
  switch (level) {
    case CpuLevel::v3:
      return "x86-64-v3 (AVX2, FMA)";
    case CpuLevel::v4:
      return "x86-64-v4 (AVX-512)";
    case CpuLevel::v4_bf16:
      return "x86-64-v4 (AVX-512, with products of bf16)";
    case CpuLevel::none:
      break;
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
  return unsupported(
      "the cpu backend needs an x86-64 processor with AVX2 and FMA (level x86-64-v3, 2013 or later), and ",
      "an operating system that saves the AVX registers; this machine lacks one of them");
}

}  // namespace epl::cpu
