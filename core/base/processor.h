// Which code this processor may run.
//
// Thread safety: all calls may run together.
#pragma once

#include <cstdint>

namespace epl {

// What decides the level, as CPUID and XGETBV give it (Intel's manual, volume 2, CPUID; AMD's APM, volume 3, appendix
// E).
struct ProcessorWords {
  uint32_t leaf1_ecx = 0;
  uint32_t leaf7_ebx = 0;
  uint32_t leaf7_1_eax = 0;    // leaf 7, subleaf 1; zero where there is none
  uint32_t extended1_ecx = 0;  // leaf 0x80000001
  uint64_t xcr0 = 0;           // register sets that the operating system saves; zero where it cannot be read
};

// The x86-64 micro-architecture level (x86-64 psABI 1.0, section 3.1.1): 4 with AVX-512 F, BW, CD, DQ and VL, 3 with
// AVX2 and what goes with it, else 0. Every feature of a level is checked, because a virtual machine can hide any of
// them and the compiler uses them all. Level 3 is taken to contain what level 2 does.
int x86_64_level(const ProcessorWords& words);

// Whether level 4 has the products of bf16 too (AVX-512-BF16).
bool x86_64_bf16(const ProcessorWords& words);

// The level of this processor under this operating system; 0 where it is not x86-64.
int processor_level();
bool processor_has_bf16();

}  // namespace epl
