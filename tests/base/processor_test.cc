// The processor's level, from the words of processors that are sold and of virtual machines that hide a feature of one.
#include "core/base/processor.h"

#include <gtest/gtest.h>

#include <vector>

namespace epl::processor_test {
namespace {

// A word with these bits. The numbers are those of the manuals' tables, written again here.
uint64_t bits(std::initializer_list<int> indices) {
  uint64_t word = 0;
  for (int i : indices) word |= uint64_t{1} << i;
  return word;
}

const std::vector<int> leaf1_of_v3 = {12, 22, 27, 28, 29};  // FMA, MOVBE, OSXSAVE, AVX, F16C
const std::vector<int> leaf7_of_v3 = {3, 5, 8};             // BMI1, AVX2, BMI2
const std::vector<int> leaf7_of_v4 = {16, 17, 28, 30, 31};  // AVX512F, DQ, CD, BW, VL

// As a processor with AVX2 shows itself, under a system that saves the xmm and ymm registers (and x87's).
ProcessorWords haswell() {
  return {.leaf1_ecx = static_cast<uint32_t>(bits({0, 12, 22, 27, 28, 29})),
          .leaf7_ebx = static_cast<uint32_t>(bits({3, 5, 8})),
          .extended1_ecx = static_cast<uint32_t>(bits({0, 5})),
          .xcr0 = 0x07};
}
// As one with AVX-512, under a system that saves the mask and zmm registers too (and those of protection keys).
ProcessorWords skylake_x() {
  ProcessorWords words = haswell();
  words.leaf7_ebx |= static_cast<uint32_t>(bits({16, 17, 28, 30, 31}));
  words.xcr0 = 0x2e7;
  return words;
}

TEST(Processor, KnowsTheLevels) {
  EXPECT_EQ(x86_64_level({}), 0);
  EXPECT_EQ(x86_64_level(haswell()), 3);
  EXPECT_EQ(x86_64_level(skylake_x()), 4);
  ProcessorWords sandy_bridge{.leaf1_ecx = static_cast<uint32_t>(bits({0, 27, 28})), .extended1_ecx = 1, .xcr0 = 0x07};
  EXPECT_EQ(x86_64_level(sandy_bridge), 0);
}

TEST(Processor, EveryFeatureOfALevelIsAskedFor) {
  for (int i : leaf1_of_v3) {
    ProcessorWords words = skylake_x();
    words.leaf1_ecx &= ~static_cast<uint32_t>(bits({i}));
    EXPECT_EQ(x86_64_level(words), 0) << "leaf 1, ecx bit " << i;
  }
  for (int i : leaf7_of_v3) {
    ProcessorWords words = skylake_x();
    words.leaf7_ebx &= ~static_cast<uint32_t>(bits({i}));
    EXPECT_EQ(x86_64_level(words), 0) << "leaf 7, ebx bit " << i;
  }
  for (int i : leaf7_of_v4) {
    ProcessorWords words = skylake_x();
    words.leaf7_ebx &= ~static_cast<uint32_t>(bits({i}));
    EXPECT_EQ(x86_64_level(words), 3) << "leaf 7, ebx bit " << i;
  }
  ProcessorWords words = skylake_x();
  words.extended1_ecx &= ~static_cast<uint32_t>(bits({5}));
  EXPECT_EQ(x86_64_level(words), 0) << "LZCNT, which decodes as BSR where it is missing: a wrong answer and no trap";
}

TEST(Processor, RegistersThatTheSystemDoesNotSaveAreNotUsed) {
  for (int i : {1, 2}) {  // xmm, ymm
    ProcessorWords words = skylake_x();
    words.xcr0 &= ~bits({i});
    EXPECT_EQ(x86_64_level(words), 0) << "XCR0 bit " << i;
  }
  for (int i : {5, 6, 7}) {  // masks, upper halves of zmm0..15, zmm16..31
    ProcessorWords words = skylake_x();
    words.xcr0 &= ~bits({i});
    EXPECT_EQ(x86_64_level(words), 3) << "XCR0 bit " << i;
  }
}

// A system that hides AVX-512 hides what builds on it.
TEST(Processor, ProductsOfBf16NeedTheirBitAndLevel4) {
  ProcessorWords words = skylake_x();
  EXPECT_FALSE(x86_64_bf16(words));
  words.leaf7_1_eax = static_cast<uint32_t>(bits({5}));
  EXPECT_TRUE(x86_64_bf16(words));
  words.xcr0 = 0x07;
  EXPECT_FALSE(x86_64_bf16(words));
  words = haswell();
  words.leaf7_1_eax = ~0u;
  EXPECT_FALSE(x86_64_bf16(words));
}

#if defined(__x86_64__)
// What the compiler's own run-time library says of the same processor, where it says anything.
TEST(Processor, AgreesWithTheCompiler) {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  EXPECT_EQ(processor_level(), avx512 ? 4 : avx2 ? 3 : 0);
  EXPECT_EQ(processor_has_bf16(), avx512 && __builtin_cpu_supports("avx512bf16"));
}
#endif

}  // namespace
}  // namespace epl::processor_test
