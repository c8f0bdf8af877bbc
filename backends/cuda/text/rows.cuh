// Kernels that work row by row: the CPU's own loops, a row for each thread.
#pragma once

#include "backends/cpu/kernels/norm.simd.cc"
#include "backends/cpu/kernels/softmax.simd.cc"
#include "backends/cuda/text/reduce.cuh"
