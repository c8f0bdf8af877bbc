// What is particular to the CPU device.
#include "backends/cpu/cpu.h"

#include <xmmintrin.h>

#include "tests/backend/conformance.h"

namespace epl::cpu_test {
namespace {

TEST(CpuDevice, refuses_a_processor_without_avx2) {
  cpu::ScopedCpuLevel old(cpu::CpuLevel::none);
  TestHost memory;
  auto opened = open_device("cpu", memory.host());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), Code::unsupported);
  EXPECT_NE(opened.status().message().find("AVX2"), std::string::npos);
}

TEST(CpuDevice, names_the_level_it_runs_at) {
  TestHost memory;
  auto device = open_device("cpu", memory.host());
  ASSERT_TRUE(device.ok());
  EXPECT_NE((*device)->description().find(cpu::cpu_level_name(cpu::detected_cpu_level())), std::string::npos);
}

TEST(CpuDevice, needs_memory_from_the_host) {
  EXPECT_EQ(open_device("cpu", Host{}).status().code(), Code::invalid_argument);
}

TEST(CpuDevice, a_host_that_refuses_memory_is_out_of_memory) {
  TestHost memory;
  memory.limit = 4096;
  auto device = open_device("cpu", memory.host());
  ASSERT_TRUE(device.ok());
  auto held = (*device)->allocate(4000);
  ASSERT_TRUE(held.ok());
  auto refused = (*device)->allocate(100);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::out_of_memory);
  held->reset();
  EXPECT_TRUE((*device)->allocate(100).ok());
}

// Half of the smallest normal number: zero where subnormals are flushed.
void halve(const KernelCall& call) {
  call.threads().run(4, [&](int64_t i, int) { call.out<float>(0)[i] = call.in<float>(0)[i] * 0.5f; });
}

TEST(CpuDevice, kernels_do_not_feel_the_hosts_rounding_mode) {
  TestHost memory;
  auto device = open_device("cpu", memory.host());
  ASSERT_TRUE(device.ok());
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040 | 0x2000);  // flush to zero, denormals are zero, round down
  auto stream = (*device)->create_stream(2);
  std::vector<float> x(4, 1.17549435e-38f), y(4);
  const void* inputs[] = {x.data()};
  void* outputs[] = {y.data()};
  KernelRow row{.op = "halve", .name = "halve", .launch = halve};
  (*stream)->launch(row, {}, nullptr, inputs, outputs, nullptr, {});
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(after & 0xe040, 0xa040u) << "the host's own mode is kept";
  for (float v : y) EXPECT_EQ(v, 5.87747175e-39f);
}

}  // namespace
}  // namespace epl::cpu_test
