// What the processor can do, and the choice of a compiled level for the vector kernels.
//
// Sources named *.simd.cc are compiled once per level, in namespace epl::cpu::v3 and epl::cpu::v4; rows pick at run
// time:
//   EPL_CPU_CHOOSE(softmax_rows)(...)
// Every level gives the same bits. Thread safety: all calls may run together.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/status.h"

namespace epl::cpu {

// x86-64 micro-architecture levels: v3 has AVX2, FMA and BMI, v4 has AVX-512 F, BW, CD, DQ and VL. v4_bf16 is v4 with
// AVX-512-BF16: few sources are compiled for it (*.bf16.cc), and all others run as on v4.
enum class CpuLevel : uint8_t { none, v3, v4, v4_bf16 };
std::string_view cpu_level_name(CpuLevel level);

// What this processor has and its operating system lets us use.
CpuLevel detected_cpu_level();
// The level kernels run at: the detected one unless a test has chosen another.
CpuLevel cpu_level();

// Tests only: pretends for its lifetime that the processor has `level`. Running kernels above the detected level traps.
class ScopedCpuLevel {
 public:
  explicit ScopedCpuLevel(CpuLevel level);
  ~ScopedCpuLevel();
  ScopedCpuLevel(const ScopedCpuLevel&) = delete;
  ScopedCpuLevel& operator=(const ScopedCpuLevel&) = delete;

 private:
  int before_;
};

// Ok, or `unsupported` naming what the processor lacks; the backend asks when it is opened.
Status require_cpu();

#define EPL_CPU_CHOOSE(function) (::epl::cpu::cpu_level() >= ::epl::cpu::CpuLevel::v4 ? &v4::function : &v3::function)

}  // namespace epl::cpu
