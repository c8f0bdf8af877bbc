#include "core/base/processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace epl {
namespace {

constexpr uint32_t bit(int index) { return 1u << index; }
constexpr bool all(uint64_t words, uint64_t wanted) { return (words & wanted) == wanted; }

constexpr uint32_t fma = bit(12), movbe = bit(22), osxsave = bit(27), avx = bit(28), f16c = bit(29);  // leaf 1, ecx
constexpr uint32_t bmi1 = bit(3), avx2 = bit(5), bmi2 = bit(8);                                       // leaf 7, ebx
constexpr uint32_t avx512f = bit(16), avx512dq = bit(17), avx512cd = bit(28), avx512bw = bit(30), avx512vl = bit(31);
constexpr uint32_t avx512_bf16 = bit(5);  // leaf 7, subleaf 1, eax
constexpr uint32_t lzcnt = bit(5);        // 0x80000001, ecx
// Of XCR0: the xmm and ymm registers, and with them the mask registers and both parts of the zmm registers.
constexpr uint64_t ymm_saved = 0x06, zmm_saved = 0xe6;

#if defined(__x86_64__)
ProcessorWords read_words() {
  ProcessorWords words;
  uint32_t a, b, c, d;
  if (__get_cpuid(1, &a, &b, &c, &d)) words.leaf1_ecx = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    words.leaf7_ebx = b;
    const bool has_subleaf = a >= 1;
    if (has_subleaf && __get_cpuid_count(7, 1, &a, &b, &c, &d)) words.leaf7_1_eax = a;
  }
  if (__get_cpuid(0x80000001, &a, &b, &c, &d)) words.extended1_ecx = c;
  if (words.leaf1_ecx & osxsave) {  // without it xgetbv traps
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    words.xcr0 = (uint64_t{d} << 32) | a;
  }
  return words;
}
#endif

}  // namespace

int x86_64_level(const ProcessorWords& words) {
  const bool v3 = all(words.leaf1_ecx, fma | movbe | osxsave | avx | f16c) &&
                  all(words.leaf7_ebx, bmi1 | avx2 | bmi2) && all(words.extended1_ecx, lzcnt) &&
                  all(words.xcr0, ymm_saved);
  const bool v4 =
      v3 && all(words.leaf7_ebx, avx512f | avx512dq | avx512cd | avx512bw | avx512vl) && all(words.xcr0, zmm_saved);
  return v4 ? 4 : v3 ? 3 : 0;
}

bool x86_64_bf16(const ProcessorWords& words) {
  return x86_64_level(words) >= 4 && all(words.leaf7_1_eax, avx512_bf16);
}

int processor_level() {
#if defined(__x86_64__)
  static const int level = x86_64_level(read_words());
  return level;
#else
  return 0;
#endif
}

bool processor_has_bf16() {
#if defined(__x86_64__)
  static const bool has = x86_64_bf16(read_words());
  return has;
#else
  return false;
#endif
}

}  // namespace epl
