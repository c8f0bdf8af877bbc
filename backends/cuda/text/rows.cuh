// Kernels that work row by row: the CPU's own loops, 16 threads for each row.
#pragma once

#include "backends/cuda/text/team.cuh"

#define reduce_row team_reduce_row
#define for_each_vector team_for_each_vector
#define owns team_owns
// Behind the words that they are read with.
#include "backends/cpu/kernels/norm.simd.cc"
#include "backends/cpu/kernels/softmax.simd.cc"
#undef reduce_row
#undef for_each_vector
#undef owns
