// Programs for a GPU: our own sources, joined into one text, with the functions that a row writes behind them.
//
// A kernel at level `exact` has the bits of the CPU because it is made of the same text: the CPU's vector kernels, read
// with vectors of one lane (backends/cuda/text/one_lane.cuh). What a row adds is how elements are found.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/kernel.h"

namespace epl::cuda {

// The text of a program: `files` and all that they include, each once, then `body`. Includes of the C++ library and of
// Highway are left out; text/machine.cuh and text/one_lane.cuh stand for them.
std::string program(std::initializer_list<std::string_view> files, std::string_view body);
// What stands around the body: names of its own, before those of the files.
inline constexpr std::string_view body_begins = "namespace kernel {\nusing namespace epl::cuda;\n";
inline constexpr std::string_view body_ends = "}  // namespace kernel\n";

// One dimension of a walk through memory, in elements.
struct Walk {
  int64_t size, stride;
};
using Walks = std::vector<Walk>;

// `long long name(long long i)`: where element i of `walks`, row-major, lies behind `first`. Neighbours that are walked
// as one are merged.
std::string walk_function(std::string_view name, const Walks& walks, int64_t first = 0);

// `constexpr long long name = value;`
std::string constant(std::string_view name, int64_t value);

// The type of elements in memory, and of elements of so many bytes.
std::string_view memory_type(DType type);
std::string_view bytes_type(DType type);

// `blocks` of 256 threads for `threads` of them. Functions begin with `thread_loop_head`, which gives `t`.
Launch launch_threads(std::string source, std::string entry, int64_t threads, std::vector<Argument> arguments);
inline constexpr int block_threads = 256;
// The line that says which thread this is, and leaves where there is no work for it.
std::string thread_head(int64_t threads);

// The same of kernels that have 16 threads for each row: `row`, and `lane`, which of its threads this is.
inline constexpr int row_threads = 16;
std::string row_head(int64_t rows);

// Elements of a type's missing value: NaN, or zero. As the bits of memory.
std::string missing_bits(DType type);

Walks row_major(const Shape& shape);

}  // namespace epl::cuda
