// The order-invariant float32 matrix product: C[m,n] = sum over k of A[m,k] * B[k,n], plus a bias.
//
// The bits of an element depend on its row of A, its column of B and `units`, on nothing else. k is `units` equal runs;
// a run is cut, from its start, into blocks of `gemm_k_block`; a block is one chain of fused multiply-adds that starts
// from +0; the blocks of a run are added in order; the runs are added as the binary tree (u0+u1)+(u2+u3)...; the bias
// comes last, with one addition. So cutting rows, columns, or an aligned power-of-two run of units off, transposing an
// operand, changing the number of threads or the width of vectors leaves every bit as it was.
//
// Operands of bf16 may come as pairs: an element is then 32 bits, two neighbours along k, the first in the upper half,
// and everything that counts elements of k counts pairs. The instruction that multiplies pairs adds the first product,
// then the second, each in one rounding, which is the same chain. A unit whose length is odd ends with a pair of which
// the second half is 0 of A and -0 of B: their product changes no sum. Subnormal numbers count as zero there, because
// the instruction has them so; `flush` asks the same of float32.
//
// Thread safety: calls share nothing; each needs a workspace of its own. Nothing allocates.
#pragma once

#include <cstdint>

#include "core/base/thread_pool.h"

namespace epl::cpu {

inline constexpr int64_t gemm_k_block = 256;  // a half of that in pairs

// Gathers a panel of an operand that is not a strided matrix, such as the patches of a convolution. For A, `index`
// counts rows; for B, columns. Writes the elements (first + i, k + j), 0 <= i < count, 0 <= j < depth, to to[j * stride
// + i]; what lies between count and stride in a row of `to` is not to be touched. Called by several threads at once.
using GemmPack = void (*)(const void* context, int64_t batch, int64_t first, int64_t count, int64_t k, int64_t depth,
                          float* to, int64_t stride);

// One dimension of independent products: how many there are, and how far (in elements) each operand moves.
struct GemmBatch {
  int64_t count = 1;
  int64_t a = 0, b = 0, c = 0, bias = 0;
};

enum class GemmBias { none, columns, rows };  // bias[n] added to every row, or bias[m] to every column

// Shapes and strides, in elements. All that the choice of tiles needs; the same problem may run many times.
struct GemmProblem {
  int64_t m = 0, n = 0, k = 0;
  int64_t units = 1;             // a power of two that divides k
  int64_t a_row = 0, a_col = 0;  // unused with pack_a
  int64_t b_row = 0, b_col = 0;  // unused with pack_b
  int64_t c_row = 0;             // the columns of C are contiguous, in runs of c_run, which start every c_jump elements
  int64_t c_run = 0, c_jump = 0;  // c_run 0: one run
  GemmBias bias = GemmBias::none;
  GemmPack pack_a = nullptr, pack_b = nullptr;
  bool strided_packs = false;  // the packs read as the strides say, as fast as operands that lie there
  bool pairs = false;          // operands are pairs of bf16, by packs, on a processor of level v4_bf16
  bool flush = false;          // subnormal operands, sums and results are zero
  GemmBatch batch[3];          // outermost first; the packs get the flat index
};

struct GemmArguments {
  const float* a = nullptr;  // or null with pack_a
  const float* b = nullptr;  // or null with pack_b
  float* c = nullptr;        // must not overlap A, B or the bias
  const float* bias = nullptr;
  const void* a_context = nullptr;
  const void* b_context = nullptr;
};

// Bytes of workspace that `gemm` needs on a pool of up to `threads` threads.
int64_t gemm_workspace_bytes(const GemmProblem& problem, int threads);

// Computes the product. `workspace` is 64-byte aligned. The pool may be smaller than the number of threads that the
// workspace was asked for.
void gemm(const GemmProblem& problem, const GemmArguments& arguments, void* workspace, ThreadPool& pool);

}  // namespace epl::cpu
