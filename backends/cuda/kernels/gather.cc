// gather: slices of x along an axis; gather_elements: one element for every index; gather_grad: the gradient of gather,
// dense, in the CPU's order: for every slice and every unit the slices of dy that belong to it are added in the order
// of their positions, starting from +0; units are joined by the binary tree. Positions of one index are brought
// together by lists: each position looks for the next one of its index. No order depends on which thread comes first.
// Numbers other than float32 are added in float64, and rounded for each unit.
#include "backends/cuda/generate/elements.h"
#include "backends/cuda/generate/steps.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

struct Span {
  int64_t outer = 1, size = 1, inner = 1;
};
Span span_of(const Shape& shape, int64_t axis) {
  if (axis < 0) axis += static_cast<int64_t>(shape.size());
  Span s{1, shape[static_cast<size_t>(axis)], 1};
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    if (d < axis) s.outer *= shape[static_cast<size_t>(d)];
    if (d > axis) s.inner *= shape[static_cast<size_t>(d)];
  }
  return s;
}

// Negative indices count from the end; -1 where there is nothing.
std::string index_function(DType type, int64_t size) {
  return cat("inline long long index_at(const ", memory_type(type), "* indices, long long i) {\n",
             "  long long index = indices[i];\n  if (index < 0) index += ", size,
             "LL;\n  return index >= 0 && index < ", size, "LL ? index : -1;\n}\n");
}
Status integers(const Query& q) { return require(is_integer(q.in(1).dtype), "indices that are no integers"); }

Result<Kernel> gather(const Query& q) {
  EPL_TRY(integers(q));
  const Span s = span_of(q.in(0).shape, q.integer("axis"));
  const int64_t count = q.in(1).elements(), elements = q.out(0).elements();
  const std::string_view element = bytes_type(q.in(0).dtype);
  const std::string body =
      cat(index_function(q.in(1).dtype, s.size), "extern \"C\" __global__ void gather(const ", element, "* x, const ",
          memory_type(q.in(1).dtype), "* indices, ", element, "* y) {\n", thread_head(elements),
          "  const long long row = t / ", s.inner, "LL, index = index_at(indices, row % ", count,
          "LL);\n  y[t] = index < 0 ? ", missing_bits(q.out(0).dtype), " : x[(row / ", count, "LL * ", s.size,
          "LL + index) * ", s.inner, "LL + t % ", s.inner, "LL];\n}\n");
  Kernel kernel;
  if (elements > 0)
    kernel.launches.push_back(launch_threads(program({}, body), "gather", elements, {input(0), input(1), output(0)}));
  return kernel;
}

Result<Kernel> gather_elements(const Query& q) {
  EPL_TRY(integers(q));
  const Shape &x = q.in(0).shape, &y = q.out(0).shape, strides = row_major_strides(x);
  const auto axis = static_cast<size_t>(q.axis("axis"));
  Walks walks;
  for (size_t d = 0; d < y.size(); ++d) walks.push_back({y[d], d == axis ? 0 : strides[d]});
  const std::string_view element = bytes_type(q.in(0).dtype);
  const int64_t elements = q.out(0).elements();
  const std::string body = cat(index_function(q.in(1).dtype, x[axis]), walk_function("line", walks),
                               "extern \"C\" __global__ void gather(const ", element, "* x, const ",
                               memory_type(q.in(1).dtype), "* indices, ", element, "* y) {\n", thread_head(elements),
                               "  const long long index = index_at(indices, t);\n", "  y[t] = index < 0 ? ",
                               missing_bits(q.out(0).dtype), " : x[line(t) + index * ", strides[axis], "LL];\n}\n");
  Kernel kernel;
  if (elements > 0)
    kernel.launches.push_back(launch_threads(program({}, body), "gather", elements, {input(0), input(1), output(0)}));
  return kernel;
}

constexpr std::string_view add_slices = R"text(
// first[p]: the first position of bucket p; next[i]: the one behind i that names the same bucket. -1: none.
extern "C" __global__ void link(const Index* indices, long long* first, long long* next) {
  const long long t = (long long)blockIdx.x * 256 + threadIdx.x;
  if (t >= count) return;
  const long long bucket = index_at(indices, t);
  if (bucket < 0) return;
  long long before = t - 1, behind = t + 1;
  while (before >= 0 && index_at(indices, before) != bucket) --before;
  if (before < 0) first[bucket] = t;
  while (behind < count && index_at(indices, behind) != bucket) ++behind;
  next[t] = behind < count ? behind : -1;
}
extern "C" __global__ void add_slices(const Memory* dy, const long long* first, const long long* next, Memory* dx) {
  const long long t = (long long)blockIdx.x * 256 + threadIdx.x;
  if (t >= elements) return;
  const long long row = t / inner, bucket = row % size;
  const Memory* from = dy + row / size * count * inner + t % inner;
  Wide tree[40];
  long long at = first[bucket];
  for (long long unit = 0;; ++unit) {
    Wide sum = 0;
    if (consecutive) {
      for (; at >= 0 && at / run % units == unit; at = next[at]) sum = sum + loaded(from[at * inner]);
    } else {
      for (at = first[bucket]; at >= 0; at = next[at])
        if (at / run % units == unit) sum = sum + loaded(from[at * inner]);
    }
    if (!joined(tree, unit, units, &sum)) continue;
    dx[t] = rounded(sum);
    return;
  }
}
)text";

// The CPU adds all slices of one bucket to one sum where they are of one unit: zeros of the other units change no bit,
// because a sum that starts from +0 is never -0.
Result<Kernel> gather_grad(const Query& q) {
  EPL_TRY(integers(q));
  const int64_t count = q.in(1).elements();
  EPL_TRY(require(q.units.divide(count), "units that do not divide the indices"));
  EPL_TRY(require((q.units.count & (q.units.count - 1)) == 0, "units that are no power of two"));
  const Span s = span_of(q.out(0).shape, q.integer("axis"));
  const int64_t elements = q.out(0).elements();
  Kernel kernel;
  if (elements == 0) return kernel;
  if (count == 0) {
    add_fill(kernel, q.out(0).dtype, output(0), elements);
    return kernel;
  }
  const int64_t first_bytes = line_aligned(s.size * 8);
  kernel.workspace_bytes = first_bytes + line_aligned(count * 8);
  const std::string body = cat(
      number_functions(q.out(0).dtype), "using Index = ", memory_type(q.in(1).dtype), ";\n",
      index_function(q.in(1).dtype, s.size), constant("count", count), constant("size", s.size),
      constant("inner", s.inner), constant("elements", elements), constant("units", q.units.count),
      constant("run", std::max<int64_t>(1, q.units.run(count))),
      "constexpr bool consecutive = ", q.units.outer == 1 ? "true" : "false", ";\n", join_rounded_function, add_slices);
  const std::string text = program({half_file}, body);
  add_fill(kernel, DType::i64, workspace(0), s.size, "~0ULL");
  kernel.launches.push_back(launch_threads(text, "link", count, {input(1), workspace(0), workspace(first_bytes)}));
  kernel.launches.push_back(
      launch_threads(text, "add_slices", elements, {input(0), workspace(0), workspace(first_bytes), output(0)}));
  return kernel;
}

// Rows copied to where indices say: the last one that names a slot; zeros where none does.
Result<Kernel> put_rows(const Query& q) {
  EPL_TRY(integers(q));
  const int64_t slots = q.out(0).shape[0], count = q.in(1).elements(), elements = q.out(0).elements();
  const int64_t width = slots > 0 ? elements / slots : 0;
  const std::string_view element = bytes_type(q.out(0).dtype);
  Kernel kernel;
  if (elements == 0) return kernel;
  const std::string body =
      cat(index_function(q.in(1).dtype, slots), "extern \"C\" __global__ void put(const ", element, "* x, const ",
          memory_type(q.in(1).dtype), "* indices, ", element, "* y) {\n", thread_head(elements),
          "  const long long slot = t / ", width, "LL;\n  long long last = ", count - 1,
          "LL;\n  while (last >= 0 && index_at(indices, last) != slot) --last;\n  y[t] = last < 0 ? 0 : x[last * ",
          width, "LL + t % ", width, "LL];\n}\n");
  kernel.launches.push_back(launch_threads(program({}, body), "put", elements, {input(0), input(1), output(0)}));
  return kernel;
}

Result<Kernel> take_rows(const Query& q) {
  EPL_TRY(integers(q));
  const int64_t rows = q.in(0).shape[0], elements = q.out(0).elements();
  const std::string_view element = bytes_type(q.out(0).dtype);
  Kernel kernel;
  if (elements == 0) return kernel;
  const int64_t width = elements / q.out(0).shape[0];
  const std::string body = cat(index_function(q.in(1).dtype, rows), "extern \"C\" __global__ void take(const ", element,
                               "* x, const ", memory_type(q.in(1).dtype), "* indices, ", element, "* y) {\n",
                               thread_head(elements), "  const long long row = index_at(indices, t / ", width,
                               "LL);\n  y[t] = row < 0 ? 0 : x[row * ", width, "LL + t % ", width, "LL];\n}\n");
  kernel.launches.push_back(launch_threads(program({}, body), "take", elements, {input(0), input(1), output(0)}));
  return kernel;
}

Result<Kernel> one_hot(const Query& q) {
  EPL_TRY(require(is_integer(q.in(0).dtype), "indices that are no integers"));
  const Shape& y = q.out(0).shape;
  const Span s = span_of(y, q.integer("axis"));
  const std::string_view element = bytes_type(q.out(0).dtype);
  const int64_t elements = q.out(0).elements();
  Kernel kernel;
  if (elements == 0) return kernel;
  const std::string body = cat(index_function(q.in(0).dtype, s.size), "extern \"C\" __global__ void one_hot(const ",
                               memory_type(q.in(0).dtype), "* indices, const ", element, "* values, ", element,
                               "* y) {\n", thread_head(elements), "  const long long outer = t / ", s.size * s.inner,
                               "LL, k = t / ", s.inner, "LL % ", s.size, "LL, index = index_at(indices, outer * ",
                               s.inner, "LL + t % ", s.inner, "LL);\n  y[t] = values[index == k];\n}\n");
  kernel.launches.push_back(launch_threads(program({}, body), "one_hot", elements, {input(0), input(1), output(0)}));
  return kernel;
}

}  // namespace

Rows gather_rows() {
  return {{"gather", "gather_copies", {}, gather},
          {"gather_elements", "gather_elements_copy", {}, gather_elements},
          {"gather_grad", "gather_grad_lists", float_types, gather_grad},
          {"put_rows", "put_rows_copies", {}, put_rows},
          {"take_rows", "take_rows_copies", {}, take_rows},
          {"one_hot", "one_hot", {}, one_hot}};
}

}  // namespace epl::cuda
