// Ops that put elements where indices say, and their adjoints, in the order of positions. What names one bucket is
// brought together by lists (as in gather.cc), or looked for by a thread for each line.
#include "backends/cuda/generate/elements.h"
#include "backends/cuda/generate/region.h"
#include "backends/cuda/generate/steps.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

// `Memory combined(Memory old, Memory other)`: empty for "none", which replaces.
Result<std::string> combine_function(std::string_view reduction, DType type) {
  EPL_TRY(require(type == DType::boolean || reduction == "none" || reduction == "add" || reduction == "mul" ||
                      reduction == "max" || reduction == "min",
                  "a reduction that it does not know"));
  if (reduction == "none")
    return cat("using Memory = ", bytes_type(type),
               ";\ninline Memory combined(Memory, Memory other) { return other; }\n");
  EPL_TRY(require(type != DType::boolean, "truth values"));
  const std::string text = element_functions(type);
  std::string by = cat("Integer<ScalarOp::", reduction, ">::apply(a, b)");
  if (is_float(type)) by = cat("Real<ScalarOp::", reduction, ">::apply(a, b)");
  if (type == DType::u64) {
    by = reduction == "add"   ? "a + b"
         : reduction == "mul" ? "a * b"
         : reduction == "max" ? "a > b ? a : b"
                              : "a < b ? a : b";
  }
  return text +
         cat("inline Memory combined(Memory old, Memory other) {\n  const Wide a = loaded(old), b = loaded(other);\n",
             "  return rounded(", by, ");\n}\n");
}

// --- along one axis ---

// Where lines along an axis begin in the indices and in the data, which may be larger.
struct Lines {
  int64_t count = 1, length = 1, step = 1;  // of the indices
  int64_t data_length = 1, data_step = 1;   // of the data
  Walks of_indices, of_data;                // of the other dimensions

  Lines(const Shape& indices, const Shape& data, size_t axis) {
    const Shape own = row_major_strides(indices), other = row_major_strides(data);
    for (size_t d = 0; d < indices.size(); ++d) {
      if (d == axis) {
        length = indices[d], step = own[d];
        data_length = data[d], data_step = other[d];
      } else {
        count *= indices[d];
        of_indices.push_back({indices[d], own[d]});
        of_data.push_back({indices[d], other[d]});
      }
    }
  }
  std::string text(DType index) const {
    return cat(constant("length", length), constant("step", step), constant("data_length", data_length),
               constant("data_step", data_step), "using Index = ", memory_type(index), ";\n",
               walk_function("index_line", of_indices), walk_function("data_line", of_data),
               "inline long long element_of(const Index* indices, long long i) {\n  long long index = indices[i];\n"
               "  if (index < 0) index += data_length;\n  return index >= 0 && index < data_length ? index : -1;\n}\n");
  }
};

Result<Kernel> scatter_elements(const Query& q) {
  EPL_TRY(require(is_integer(q.in(1).dtype), "indices that are no integers"));
  const Lines lines(q.in(1).shape, q.in(0).shape, static_cast<size_t>(q.axis("axis")));
  const DType type = q.in(0).dtype;
  EPL_ASSIGN(const std::string combine, combine_function(q.text("reduction"), type));
  Kernel kernel;
  kernel.aliases = {{0, 0}};
  const int64_t elements = q.out(0).elements();
  add_copy(kernel, type, input(0), output(0), {{elements, 1}}, {{elements, 1}});
  const std::string body =
      cat(lines.text(q.in(1).dtype), combine,
          "extern \"C\" __global__ void scatter(const Index* indices, const Memory* updates, Memory* y) {\n",
          thread_head(lines.count),
          "  for (long long i = 0, from = index_line(t); i < length; ++i, from += step) {\n"
          "    const long long element = element_of(indices, from);\n    if (element < 0) continue;\n"
          "    Memory& to = y[data_line(t) + element * data_step];\n    to = combined(to, updates[from]);\n  }\n}\n");
  if (lines.count > 0)
    kernel.launches.push_back(
        launch_threads(program({region_file}, body), "scatter", lines.count, {input(1), input(2), output(0)}));
  return kernel;
}

// Each element adds up what names it, in float64.
Result<Kernel> gather_elements_grad(const Query& q) {
  EPL_TRY(require(is_integer(q.in(1).dtype), "indices that are no integers"));
  EPL_TRY(require(is_float(q.out(0).dtype), "elements that are no real numbers"));
  const Shape& x = q.out(0).shape;
  const int64_t axis = q.integer("axis"), elements = q.out(0).elements();
  const Lines lines(q.in(1).shape, x, static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(x.size()) : axis));
  const std::string functions = element_functions(q.out(0).dtype);
  Kernel kernel;
  add_fill(kernel, q.out(0).dtype, output(0), elements);
  const int64_t threads = lines.count * lines.data_length;
  const std::string body =
      cat(lines.text(q.in(1).dtype), functions,
          "extern \"C\" __global__ void gradient(const Memory* dy, const Index* indices, Memory* dx) {\n",
          thread_head(threads),
          "  const long long line = t / data_length, own = t % data_length;\n  Wide sum = 0;\n"
          "  for (long long i = 0, from = index_line(line); i < length; ++i, from += step)\n"
          "    if (element_of(indices, from) == own) sum += loaded(dy[from]);\n"
          "  dx[data_line(line) + own * data_step] = rounded(sum);\n}\n");
  if (threads > 0)
    kernel.launches.push_back(
        launch_threads(program({region_file}, body), "gradient", threads, {input(0), input(1), output(0)}));
  return kernel;
}

// --- at tuples ---

// indices [b..., i..., t] name slices of x [b..., (t coordinates), r...].
struct Tuples {
  std::vector<int64_t> sizes;                           // of the t coordinates
  int64_t batches = 1, count = 1, span = 1, inner = 1;  // of b, of i, of the coordinates, of r

  Tuples(const Shape& x, const Shape& indices, size_t batch) {
    const auto tuple = static_cast<size_t>(indices.back());
    for (size_t d = 0; d < x.size(); ++d) (d < batch ? batches : d < batch + tuple ? span : inner) *= x[d];
    for (size_t d = batch; d + 1 < indices.size(); ++d) count *= indices[d];
    sizes.assign(x.begin() + static_cast<int64_t>(batch), x.begin() + static_cast<int64_t>(batch + tuple));
  }
  int64_t positions() const { return batches * count; }
  int64_t slices() const { return batches * span; }
  // `slice_of(indices, position)`: -1 where there is none. Negative indices count from the end.
  std::string text(DType index) const {
    std::string steps;
    for (size_t t = 0; t < sizes.size(); ++t)
      steps +=
          cat("  index = indices[position * ", sizes.size(), " + ", t, "];\n  if (index < 0) index += ", sizes[t],
              ";\n  if (index < 0 || index >= ", sizes[t], ") return -1;\n  tuple = tuple * ", sizes[t], " + index;\n");
    return cat("using Index = ", memory_type(index), ";\n", constant("count", count),
               constant("positions", positions()), constant("inner", inner),
               "inline long long slice_of(const Index* indices, long long position) {\n",
               "  long long tuple = 0, index = 0;\n  (void)index;\n", steps, "  return position / count * ", span,
               "LL + tuple;\n}\n");
  }
};

// first[p]: the first position of bucket p; next[i]: the one behind i that names the same bucket. -1: none.
constexpr std::string_view link_positions = R"text(
extern "C" __global__ void link_positions(const Index* indices, long long* first, long long* next) {
  const long long t = (long long)blockIdx.x * 256 + threadIdx.x;
  if (t >= positions) return;
  const long long bucket = slice_of(indices, t);
  if (bucket < 0) return;
  long long before = t - 1, behind = t + 1;
  while (before >= 0 && slice_of(indices, before) != bucket) --before;
  if (before < 0) first[bucket] = t;
  while (behind < positions && slice_of(indices, behind) != bucket) ++behind;
  next[t] = behind < positions ? behind : -1;
}
)text";

void add_links(Kernel& kernel, const std::string& text, int64_t buckets, int64_t positions, Argument indices,
               Argument first, Argument next) {
  add_fill(kernel, DType::i64, first, buckets, "~0ULL");
  if (positions > 0)
    kernel.launches.push_back(launch_threads(text, "link_positions", positions, {indices, first, next}));
}

Result<Kernel> gather_nd(const Query& q) {
  EPL_TRY(require(is_integer(q.in(1).dtype), "indices that are no integers"));
  const Tuples tuples(q.in(0).shape, q.in(1).shape, static_cast<size_t>(q.integer("batch_dims")));
  const int64_t elements = q.out(0).elements();
  const std::string_view element = bytes_type(q.in(0).dtype);
  Kernel kernel;
  if (elements == 0) return kernel;
  const std::string body = cat(tuples.text(q.in(1).dtype), "extern \"C\" __global__ void gather(const ", element,
                               "* x, const Index* indices, ", element, "* y) {\n", thread_head(elements),
                               "  const long long slice = slice_of(indices, t / inner);\n  y[t] = slice < 0 ? ",
                               missing_bits(q.in(0).dtype), " : x[slice * inner + t % inner];\n}\n");
  kernel.launches.push_back(launch_threads(program({}, body), "gather", elements, {input(0), input(1), output(0)}));
  return kernel;
}

// In float64; units are rounded and joined by the binary tree.
constexpr std::string_view tuple_sums = R"text(
extern "C" __global__ void tuple_sums(const Memory* dy, const long long* first, const long long* next, Memory* dx) {
  const long long t = (long long)blockIdx.x * 256 + threadIdx.x;
  if (t >= elements) return;
  const long long begin = first[t / inner];
  Wide tree[40];
  for (long long unit = 0;; ++unit) {
    Wide sum = 0;
    for (long long at = begin; at >= 0; at = next[at])
      if (at % count / run % units == unit) sum += loaded(dy[at * inner + t % inner]);
    if (!joined(tree, unit, units, &sum)) continue;
    dx[t] = rounded(sum);
    return;
  }
}
)text";

Result<Kernel> gather_nd_grad(const Query& q) {
  EPL_TRY(require(is_integer(q.in(1).dtype), "indices that are no integers"));
  const Tuples tuples(q.out(0).shape, q.in(1).shape, static_cast<size_t>(q.integer("batch_dims")));
  EPL_TRY(require(q.units.divide(tuples.count), "units that do not divide the indices"));
  const int64_t elements = q.out(0).elements(), first_bytes = line_aligned(tuples.slices() * 8);
  Kernel kernel;
  if (elements == 0) return kernel;
  if (tuples.positions() == 0) {
    add_fill(kernel, q.out(0).dtype, output(0), elements);
    return kernel;
  }
  kernel.workspace_bytes = first_bytes + line_aligned(tuples.positions() * 8);
  const std::string text = program({half_file}, cat(element_functions(q.out(0).dtype), tuples.text(q.in(1).dtype),
                                                    constant("elements", elements), constant("units", q.units.count),
                                                    constant("run", std::max<int64_t>(1, q.units.run(tuples.count))),
                                                    link_positions, join_rounded_function, tuple_sums));
  add_links(kernel, text, tuples.slices(), tuples.positions(), input(1), workspace(0), workspace(first_bytes));
  kernel.launches.push_back(
      launch_threads(text, "tuple_sums", elements, {input(0), workspace(0), workspace(first_bytes), output(0)}));
  return kernel;
}

Result<Kernel> scatter_nd(const Query& q) {
  EPL_TRY(require(is_integer(q.in(1).dtype), "indices that are no integers"));
  const Tuples tuples(q.in(0).shape, q.in(1).shape, 0);
  const DType type = q.in(0).dtype;
  EPL_ASSIGN(const std::string combine, combine_function(q.text("reduction"), type));
  const int64_t elements = q.out(0).elements(), first_bytes = line_aligned(tuples.slices() * 8);
  Kernel kernel;
  kernel.aliases = {{0, 0}};
  if (elements == 0) return kernel;
  kernel.workspace_bytes = first_bytes + line_aligned(tuples.positions() * 8);
  const std::string text = program(
      {region_file},
      cat(tuples.text(q.in(1).dtype), combine, link_positions,
          "extern \"C\" __global__ void scatter(const Memory* x, const Memory* updates, const long long* first,\n"
          "    const long long* next, Memory* y) {\n",
          thread_head(elements),
          "  Memory value = x[t];\n  for (long long at = first[t / inner]; at >= 0; at = next[at])\n"
          "    value = combined(value, updates[at * inner + t % inner]);\n  y[t] = value;\n}\n"));
  add_links(kernel, text, tuples.slices(), tuples.positions(), input(1), workspace(0), workspace(first_bytes));
  kernel.launches.push_back(
      launch_threads(text, "scatter", elements, {input(0), input(2), workspace(0), workspace(first_bytes), output(0)}));
  return kernel;
}

// x above or below a diagonal, zeros elsewhere.
Result<Kernel> trilu(const Query& q) {
  const Shape& shape = q.in(0).shape;
  const int64_t elements = q.out(0).elements(), columns = shape.back(), rows = shape[shape.size() - 2];
  const std::string_view element = bytes_type(q.in(0).dtype);
  Kernel kernel;
  if (elements == 0) return kernel;
  const std::string body =
      cat("extern \"C\" __global__ void triangle(const ", element, "* x, ", element, "* y) {\n", thread_head(elements),
          "  const long long off = t % ", columns, "LL - t / ", columns, "LL % ", rows, "LL;\n  y[t] = off ",
          q.flag("upper") ? ">=" : "<=", " ", q.integer("k"), "LL ? x[t] : 0;\n}\n");
  kernel.launches.push_back(launch_threads(program({}, body), "triangle", elements, {input(0), output(0)}));
  return kernel;
}

}  // namespace

Rows scatter_rows() {
  return {{"scatter_elements", "scatter_elements_lines", {}, scatter_elements},
          {"gather_elements_grad", "gather_elements_grad_sums", {}, gather_elements_grad},
          {"gather_nd", "gather_nd_copies", {}, gather_nd},
          {"gather_nd_grad", "gather_nd_grad_lists", float_types, gather_nd_grad},
          {"scatter_nd", "scatter_nd_lists", {}, scatter_nd},
          {"trilu", "trilu", {}, trilu}};
}

}  // namespace epl::cuda
