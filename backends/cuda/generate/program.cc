#include "backends/cuda/generate/program.h"

#include <limits>
#include <set>

#include "backends/cuda/generate/texts.h"
#include "core/base/check.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

// Highway is read through our own operations of one lane; its mathematics is taken as it is.
std::string_view stands_for(std::string_view path) {
  return path == "hwy/highway.h" ? "backends/cuda/text/one_lane.cuh" : path;
}

bool comes_once(std::string_view text) {
  return text.find("#pragma once") != std::string_view::npos || text.find("_INL_H_") != std::string_view::npos;
}

void paste(std::string_view path, std::set<std::string, std::less<>>& seen, std::string& to) {
  path = stands_for(path);
  const std::string_view text = source_text(path);
  EPL_CHECK(!text.empty(), "the pack does not carry ", path);
  if (comes_once(text) && !seen.emplace(path).second) return;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("#include \"")) {
      const size_t begin = line.find('"') + 1;
      paste(line.substr(begin, line.rfind('"') - begin), seen, to);
    } else if (line.starts_with("#include <hwy/highway.h>")) {
      paste("hwy/highway.h", seen, to);
    } else if (!line.starts_with("#include <") && !line.starts_with("#pragma once") && !line.starts_with("//")) {
      to.append(line).push_back('\n');
    }
  }
}

}  // namespace

std::string program(std::initializer_list<std::string_view> files, std::string_view body) {
  std::string text;
  std::set<std::string, std::less<>> seen;
  paste("backends/cuda/text/machine.cuh", seen, text);
  for (std::string_view file : files) paste(file, seen, text);
  return text.append(body_begins).append(body).append(body_ends);
}

std::string walk_function(std::string_view name, const Walks& walks, int64_t first) {
  Walks merged;
  for (const Walk& w : walks) {
    if (w.size == 1) continue;
    if (!merged.empty() && merged.back().stride == w.stride * w.size) {
      merged.back() = {merged.back().size * w.size, w.stride};
    } else {
      merged.push_back(w);
    }
  }
  std::string text = cat("inline long long ", name, "(long long i) {\n");
  if (merged.size() == 1 && merged[0].stride == 1 && first == 0) return text + "  return i;\n}\n";
  // Division of 32 bits is several times as fast; it serves wherever there are fewer elements.
  int64_t count = 1;
  for (const Walk& w : merged) count *= w.size;
  text += cat("  long long at = ", first, "LL;\n");
  text += count <= INT32_MAX ? "  unsigned rest = (unsigned)i;\n" : "  long long rest = i;\n";
  for (size_t d = merged.size(); d-- > 0;) {
    if (merged[d].stride != 0) {
      const std::string index = d == 0 ? "rest" : cat("(rest % ", merged[d].size, ")");
      text += cat("  at += (long long)", index, " * ", merged[d].stride, "LL;\n");
    }
    if (d > 0) text += cat("  rest /= ", merged[d].size, ";\n");
  }
  return text + "  (void)rest;\n  return at;\n}\n";
}

std::string constant(std::string_view name, int64_t value) {
  return cat("constexpr long long ", name, " = ", value, "LL;\n");
}

std::string_view memory_type(DType type) {
  switch (type) {
    case DType::f32:
      return "float";
    case DType::f64:
      return "double";
    case DType::i8:
      return "int8_t";
    case DType::i16:
      return "int16_t";
    case DType::i32:
      return "int32_t";
    case DType::i64:
      return "int64_t";
    case DType::f16:
    case DType::bf16:
    case DType::u16:
      return "uint16_t";
    case DType::u32:
      return "uint32_t";
    case DType::u64:
      return "uint64_t";
    default:
      return "uint8_t";
  }
}

std::string_view bytes_type(DType type) {
  switch (dtype_bytes(type)) {
    case 1:
      return "uint8_t";
    case 2:
      return "uint16_t";
    case 4:
      return "uint32_t";
    default:
      return "uint64_t";
  }
}

Launch launch_threads(std::string source, std::string entry, int64_t threads, std::vector<Argument> arguments) {
  const int64_t blocks = (threads + block_threads - 1) / block_threads;
  return {.source = std::move(source),
          .entry = std::move(entry),
          .grid = {static_cast<unsigned>(blocks), 1, 1},
          .block = {block_threads, 1, 1},
          .arguments = std::move(arguments)};
}

std::string thread_head(int64_t threads) {
  return cat("  const long long t = (long long)blockIdx.x * ", block_threads, " + threadIdx.x;\n  if (t >= ", threads,
             "LL) return;\n");
}

std::string row_head(int64_t rows) {
  return cat(thread_head(rows * row_threads), "  const long long row = t / ", row_threads, ", lane = t % ", row_threads,
             ";\n");
}

std::string missing_bits(DType type) {
  uint64_t bits = 0;
  store_double(type, &bits, 0, is_float(type) ? std::numeric_limits<double>::quiet_NaN() : 0.0);
  return cat("(", bytes_type(type), ")", bits, "ULL");
}

Walks row_major(const Shape& shape) {
  const Shape strides = row_major_strides(shape);
  Walks walks;
  for (size_t d = 0; d < shape.size(); ++d) walks.push_back({shape[d], strides[d]});
  return walks;
}

}  // namespace epl::cuda
