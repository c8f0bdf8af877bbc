// Attention and its gradient: shapes, and what is launched.
#include "backends/cuda/generate/steps.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

constexpr DType f32[] = {DType::f32};
constexpr std::string_view attention_file = "backends/cuda/text/attention_tiles.cuh";

std::string float_function(std::string_view name, double value) {
  uint32_t bits = 0;
  store_double(DType::f32, &bits, 0, value);
  return cat("  static constexpr float ", name, "() { return __builtin_bit_cast(float, ", bits, "u); }\n");
}

struct Shapes {
  int64_t batch, heads, key_heads, queries, keys, depth, values;
  std::string text;  // struct P
};
// Operand numbers of q and of the bias differ between the two ops.
Shapes shapes_of(const Query& query, int q_at, int bias_at) {
  const Shape &q = query.in(q_at).shape, &k = query.in(q_at + 1).shape, &v = query.in(q_at + 2).shape;
  Shapes s{q[0], q[1], k[1], q[2], k[2], q[3], v[3], "struct P {\n"};
  int64_t steps[4] = {0, 0, 0, 0};
  if (query.has(bias_at)) {
    const Shape &bias = query.in(bias_at).shape, strides = row_major_strides(bias);
    for (size_t d = 0; d < 4; ++d) steps[d] = bias[d] == 1 ? 0 : strides[d];
  }
  const std::pair<std::string_view, int64_t> numbers[] = {
      {"heads", s.heads},       {"key_heads", s.key_heads}, {"queries", s.queries},   {"keys", s.keys},
      {"depth", s.depth},       {"values", s.values},       {"bias_batch", steps[0]}, {"bias_head", steps[1]},
      {"bias_query", steps[2]}, {"bias_key", steps[3]}};
  for (const auto& [name, value] : numbers) s.text += cat("  static ", constant(name, value));
  s.text += cat("  static constexpr bool causal = ", query.flag("causal") ? "true" : "false", ";\n");
  s.text += float_function("scale", query.number("scale")) + float_function("cap", query.number("softcap")) + "};\n";
  return s;
}
Status accepts(const Shapes& s) { return require(s.keys > 0 && s.depth > 0 && s.values > 0, "an empty dimension"); }

// How many rows of queries, or keys, each thread of a block has; 0: they are too deep for shared memory, and a thread
// has one of its own. `own` and `passing` are floats of the vectors that stay and that pass, `numbers` of what each
// other has for a row.
constexpr int64_t free_shared_floats = (48 << 10) / 4;
int64_t stride_of(int64_t n) { return (((n + 3) / 4) | 1) * 4; }  // tile_stride
int64_t rows_of_a_thread(int64_t own, int64_t passing, int64_t numbers) {
  for (const int64_t each : {2, 1})
    if (16 * each * (own + numbers) + passing <= free_shared_floats) return each;
  return 0;
}
constexpr int64_t tile_keys = 64, tile_rows = 32, spare = 4;  // of text/attention_tiles.cuh

// A launch by tiles, or by rows where there are none.
Launch launch_tiles(const std::string& text, std::string_view entry, int64_t each, int64_t of, int64_t in,
                    std::vector<Argument> arguments) {
  if (each == 0) return launch_threads(text, std::string(entry), of * in, std::move(arguments));
  const int64_t blocks = of * ((in + 16 * each - 1) / (16 * each));
  return launch_threads(text, std::string(entry), blocks * block_threads, std::move(arguments));
}
std::string tiles_or(int64_t each, std::string_view tiles, std::string_view head, std::string_view rows,
                     std::string_view arguments) {
  if (each > 0) return cat("  ", tiles, "<P, ", each, ">(", arguments, ");\n}\n");
  return cat(head, "  ", rows, "<P>(t, ", arguments, ");\n}\n");
}

Result<Kernel> attention(const Query& q) {
  const Shapes s = shapes_of(q, 0, 3);
  EPL_TRY(accepts(s));
  const int64_t rows = s.batch * s.heads * s.queries;
  Kernel kernel;
  if (rows == 0) return kernel;
  const int64_t depth = stride_of(s.depth), wide = std::max(depth, stride_of(s.values)),
                each = rows_of_a_thread(depth, tile_keys * wide, tile_keys + spare);
  const std::string body =
      cat(s.text,
          "extern \"C\" __global__ void attention(const float* q, const float* k, const float* v, const float* bias,\n"
          "                                     float* y, float* lse) {\n",
          tiles_or(each, "attention_tiles", thread_head(rows), "attention_row", "q, k, v, bias, y, lse"));
  kernel.launches.push_back(launch_tiles(program({attention_file}, body), "attention", each, s.batch * s.heads,
                                         s.queries,
                                         {input(0), input(1), input(2), q.has(3) ? input(3) : Argument{}, output(0),
                                          q.has_output(1) ? output(1) : Argument{}}));
  return kernel;
}

Result<Kernel> attention_grad(const Query& q) {
  const Shapes s = shapes_of(q, 1, 6);
  EPL_TRY(accepts(s));
  const int64_t rows = s.batch * s.heads * s.queries, keys = s.batch * s.key_heads * s.keys;
  Kernel kernel;
  if (keys == 0) return kernel;
  const int64_t depth = stride_of(s.depth), values = stride_of(s.values), both = depth + values;
  const int64_t each_query = rows_of_a_thread(both, tile_keys * std::max(depth, values), tile_keys + spare),
                each_key = rows_of_a_thread(both, tile_rows * both, 2 * (tile_rows + spare));
  constexpr std::string_view common = "dy, q, k, v, lse, bias, dots, corrections";
  const std::string body = cat(
      s.text,
      "extern \"C\" __global__ void prepare(const float* dy, const float* q, const float* k, const float* y,\n"
      "    const float* lse, const float* bias, float* dots, float* corrections) {\n",
      thread_head(rows), "  attention_prepare<P>(t, dy, q, k, y, lse, bias, dots, corrections);\n}\n",
      "extern \"C\" __global__ void queries(const float* dy, const float* q, const float* k, const float* v,\n"
      "    const float* lse, const float* bias, const float* dots, const float* corrections, float* dq) {\n",
      tiles_or(each_query, "attention_query_tiles", thread_head(rows), "attention_query_gradient", cat(common, ", dq")),
      "extern \"C\" __global__ void keys(const float* dy, const float* q, const float* k, const float* v,\n"
      "    const float* lse, const float* bias, const float* dots, const float* corrections, float* dk, float* dv) {\n",
      tiles_or(each_key, "attention_key_tiles", thread_head(keys), "attention_key_gradient", cat(common, ", dk, dv")));
  const std::string text = program({attention_file}, body);
  const Argument dy = input(0), qs = input(1), ks = input(2), vs = input(3), y = input(4), lse = input(5),
                 bias = q.has(6) ? input(6) : Argument{}, dots = workspace(0),
                 corrections = workspace(line_aligned(rows * 4));
  kernel.workspace_bytes = 2 * line_aligned(rows * 4);
  if (rows > 0) {
    kernel.launches.push_back(launch_threads(text, "prepare", rows, {dy, qs, ks, y, lse, bias, dots, corrections}));
    kernel.launches.push_back(launch_tiles(text, "queries", each_query, s.batch * s.heads, s.queries,
                                           {dy, qs, ks, vs, lse, bias, dots, corrections, output(0)}));
  }
  kernel.launches.push_back(launch_tiles(text, "keys", each_key, s.batch * s.key_heads, s.keys,
                                         {dy, qs, ks, vs, lse, bias, dots, corrections, output(1), output(2)}));
  return kernel;
}

}  // namespace

Rows attention_rows() {
  return {{"attention", "attention_by_rows", f32, attention},
          {"attention_grad", "attention_grad_by_rows", f32, attention_grad}};
}

}  // namespace epl::cuda
