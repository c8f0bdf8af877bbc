#include "backends/cuda/generate/steps.h"

#include "core/base/text.h"

namespace epl::cuda {
namespace {

constexpr int64_t reduce_segment = 1024;  // of backends/cpu/kernels/reduce_order.h; a test compares the bits

int64_t count_of(const Walks& walks) {
  int64_t count = 1;
  for (const Walk& w : walks) count *= w.size;
  return count;
}

}  // namespace

int64_t line_aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

void add_copy(Kernel& kernel, DType type, Argument from, Argument to, const Walks& source, const Walks& target,
              int64_t first_source, int64_t first_target) {
  const int64_t count = count_of(source);
  if (count == 0) return;
  const std::string_view element = bytes_type(type);
  const std::string body =
      cat(walk_function("source", source, first_source), walk_function("target", target, first_target),
          "extern \"C\" __global__ void copy(const ", element, "* from, ", element, "* to) {\n", thread_head(count),
          "  to[target(t)] = from[source(t)];\n}\n");
  kernel.launches.push_back(launch_threads(program({}, body), "copy", count, {from, to}));
}

void add_fill(Kernel& kernel, DType type, Argument to, int64_t count, std::string_view bits) {
  if (count == 0) return;
  const std::string body = cat("extern \"C\" __global__ void fill(", bytes_type(type), "* to, long long count) {\n",
                               "  const long long t = (long long)blockIdx.x * ", block_threads,
                               " + threadIdx.x;\n  if (t < count) to[t] = ", bits, ";\n}\n");
  kernel.launches.push_back(launch_threads(program({}, body), "fill", count, {to, number(count)}));
}

void add_spread(Kernel& kernel, DType type, Argument from, Argument to, int64_t count) {
  add_copy(kernel, type, from, to, {{count, 0}}, {{count, 1}});
}

Reduction::Reduction(const Shape& shape, const std::vector<int64_t>& axes, Units of) : units(of) {
  std::vector<bool> is_folded(shape.size(), false);
  for (int64_t a : axes) is_folded[static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(shape.size()) : a)] = true;
  const Shape strides = row_major_strides(shape);
  for (size_t d = 0; d < shape.size(); ++d) {
    (is_folded[d] ? folded : kept).push_back({shape[d], strides[d]});
    (is_folded[d] ? reduced : outputs) *= shape[d];
  }
}

int64_t Reduction::segments() const { return (run() + reduce_segment - 1) / reduce_segment; }

std::string position_function(Units units, int64_t n) {
  if (units.outer == 1 || n == 0) return "inline long long position(long long i) { return i; }\n";
  const int64_t run = units.run(n);
  return cat("inline long long position(long long i) {\n  const long long unit = i / ", run * units.outer,
             "LL, at = i % ", run * units.outer, "LL;\n  return (at / ", run, "LL * ", units.count, "LL + unit) * ",
             run, "LL + at % ", run, "LL;\n}\n");
}

void add_reduction(Kernel& kernel, const Reduction& r, std::string_view op, Argument x, Argument y, int64_t offset) {
  if (r.outputs == 0) return;
  if (r.reduced == 0) return add_fill(kernel, DType::f32, y, r.outputs, op == "Product" ? "0x3f800000u" : "0u");
  const int64_t parts = r.parts();
  const std::string constants = cat(constant("outputs", r.outputs), constant("segments", r.segments()),
                                    constant("units", r.units.count), constant("run", r.run()));
  const std::string body =
      cat(constants, walk_function("kept_at", r.kept), walk_function("folded_at", r.folded),
          position_function(r.units, r.reduced),
          "extern \"C\" __global__ void reduce_parts(const float* x, float* to) {\n", thread_head(parts * r.outputs),
          "  const long long part = t / outputs, segment = part % segments, start = segment * reduce_segment,\n"
          "                  first = part / segments * run + start, base = kept_at(t % outputs);\n"
          "  to[t] = reduce_found<",
          op,
          ">(fewer(reduce_segment, run - start), [&](int64_t i) {\n"
          "    return x[base + folded_at(position(first + i))];\n  });\n}\n"
          "extern \"C\" __global__ void join_parts(float* parts, float* y) {\n",
          thread_head(r.outputs),
          "  float* own = parts + t;\n"
          "  for (long long u = 0; u < units; ++u) join_strided<",
          op,
          ">(own + u * segments * outputs, segments, outputs);\n"
          "  join_strided<",
          op, ">(own, units, segments * outputs);\n  y[t] = *own;\n}\n");
  const std::string text = program({reduce_file}, body);
  const Argument partials = parts == 1 ? y : workspace(offset);
  kernel.launches.push_back(launch_threads(text, "reduce_parts", parts * r.outputs, {x, partials}));
  if (parts > 1) kernel.launches.push_back(launch_threads(text, "join_parts", r.outputs, {partials, y}));
}

AxisRows::AxisRows(const TensorType& type, int axis) : n(type.shape[static_cast<size_t>(axis)]) {
  for (int d = 0; d < type.ndim(); ++d) {
    if (d != axis) rows *= type.shape[static_cast<size_t>(d)];
    if (d > axis) inner *= type.shape[static_cast<size_t>(d)];
  }
}

Walks RowLayout::in_memory() const {
  return {{rows_.rows / std::max<int64_t>(rows_.inner, 1), rows_.n * rows_.inner},
          {rows_.inner, 1},
          {rows_.n, rows_.inner}};
}
Walks RowLayout::in_rows() const {
  return {
      {rows_.rows / std::max<int64_t>(rows_.inner, 1), rows_.inner * rows_.n}, {rows_.inner, rows_.n}, {rows_.n, 1}};
}
Argument RowLayout::room() {
  const Argument at = workspace(kernel_.workspace_bytes);
  kernel_.workspace_bytes += line_aligned(rows_.elements() * 4);
  return at;
}
Argument RowLayout::read(Argument x) {
  if (rows_.inner <= 1) return x;
  const Argument at = room();
  add_copy(kernel_, DType::f32, x, at, in_memory(), in_rows());
  return at;
}
Argument RowLayout::write(Argument y) {
  if (rows_.inner <= 1) return y;
  results_.emplace_back(room(), y);
  return results_.back().first;
}
void RowLayout::finish() {
  for (const auto& [from, to] : results_) add_copy(kernel_, DType::f32, from, to, in_rows(), in_memory());
}

}  // namespace epl::cuda
