// Elementwise reduction of the same run of elements of several ranks, in the canonical order.
//
// Sums follow the binary tree over ranks: neighbours first; if a count is odd, the last one is carried up unchanged, so
// that tree(first, n) = tree(first, p) + tree(first + p, n - p) with p the largest power of two below n. Every addition
// rounds to the element type, so that a tree may be continued from stored sums. Max and min are NaN if any element is.
#pragma once

#include <cstdint>
#include <span>

#include "core/backend/communicator.h"

namespace epl::cpu {

bool can_reduce(DType dtype);  // f32, f64, f16, bf16, i64; integer sums wrap

// For each element i of [begin, end): the reduction of sources[r][i] over r, written to every targets[t][i].
// A target may be a source. There are at most max_thread_ranks of either.
void reduce_ranks(std::span<const void* const> sources, std::span<void* const> targets, int64_t begin, int64_t end,
                  DType dtype, Reduction reduction);

}  // namespace epl::cpu
