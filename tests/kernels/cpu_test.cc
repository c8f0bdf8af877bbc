// The processor's level, detected and faked.
#include "backends/cpu/cpu.h"

#include <gtest/gtest.h>

namespace epl::cpu::cpu_test {
namespace {

TEST(Cpu, ThisMachineServes) {
  EXPECT_EQ(cpu_level(), detected_cpu_level());
  EXPECT_EQ(require_cpu().ok(), detected_cpu_level() != CpuLevel::none);
}

TEST(Cpu, WithoutVectorsIsAnError) {
  {
    ScopedCpuLevel fake(CpuLevel::none);
    Status status = require_cpu();
    EXPECT_EQ(status.code(), Code::unsupported);
    EXPECT_NE(status.message().find("AVX2"), std::string::npos);
    ScopedCpuLevel inner(CpuLevel::v3);
    EXPECT_EQ(cpu_level(), CpuLevel::v3);
  }
  EXPECT_EQ(cpu_level(), detected_cpu_level());
}

// The kernel tests compare the levels the processor has; this says where that is only one.
TEST(Cpu, BothLevelsAreCompared) {
  if (detected_cpu_level() < CpuLevel::v4)
    GTEST_SKIP() << "no AVX-512 here: kernel tests run at " << cpu_level_name(detected_cpu_level());
}

}  // namespace
}  // namespace epl::cpu::cpu_test
