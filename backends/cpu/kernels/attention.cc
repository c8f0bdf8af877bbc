// Rows of attention and its gradient: how they are cut into tasks.
#include "backends/cpu/kernels/attention.h"

#include <algorithm>

#include "backends/cpu/kernels/rows.h"

namespace epl::cpu {
namespace {

int64_t tiles(int64_t n, int64_t tile) { return (n + tile - 1) / tile; }
int64_t round_up(int64_t n, int64_t to) { return tiles(n, to) * to; }

// Operand numbers of q and of the bias differ between the two ops.
AttentionProblem problem_of(const KernelQuery& query, int q_at, int bias_at) {
  const Shape &q = query.in(q_at).shape, &k = query.in(q_at + 1).shape, &v = query.in(q_at + 2).shape;
  AttentionProblem p{q[0], q[1], k[1], q[2], k[2], q[3], v[3]};
  p.scale = static_cast<float>(query.attributes.number("scale"));
  p.cap = static_cast<float>(query.attributes.number("softcap"));
  p.causal = query.attributes.flag("causal");
  if (query.has(bias_at)) {
    const Shape& bias = query.in(bias_at).shape;
    const Shape strides = row_major_strides(bias);
    for (int d = 0; d < 4; ++d) p.bias_step[d] = bias[d] == 1 ? 0 : strides[d];
  }
  return p;
}
AttentionProblem forward_problem(const KernelQuery& query) { return problem_of(query, 0, 3); }
AttentionProblem grad_problem(const KernelQuery& query) { return problem_of(query, 1, 6); }

Result<Prepared> prepare(const AttentionProblem& p, int64_t workspace_floats) {
  EPL_TRY(require(p.keys > 0 && p.depth > 0 && p.values > 0, "an empty dimension"));
  EPL_TRY(require_vectors());
  return Prepared{.workspace_bytes = 4 * workspace_floats};
}

void attention(const KernelCall& call) {
  const AttentionProblem p = forward_problem(call.query);
  AttentionTensors t{.q = call.in<float>(0), .k = call.in<float>(1), .v = call.in<float>(2)};
  if (call.query.has(3)) t.bias = call.in<float>(3);
  t.y = call.out<float>(0);
  if (call.query.has_output(1)) t.lse = call.out<float>(1);
  const int64_t row_tiles = tiles(p.queries, attention_rows), floats = attention_scratch_floats(p);
  const AttentionLoops& loops = EPL_CPU_CHOOSE(attention_loops)();
  call.threads().run(p.batch * p.heads * row_tiles, [&](int64_t task, int thread) {
    // The last rows of a causal product take longest: they go first.
    const int64_t tile = row_tiles - 1 - task % row_tiles, head = task / row_tiles;
    loops.forward(p, t, head / p.heads, head % p.heads, tile * attention_rows,
                  static_cast<float*>(call.workspace) + thread * floats);
  });
}

// Whether one task per key head, which computes every product once, keeps the threads busier than tasks by tile, which
// compute two of five products twice.
bool by_heads(const AttentionProblem& p, int64_t threads) {
  const int64_t tasks = p.batch * p.key_heads;
  return 7 * tasks >= 5 * round_up(tasks, threads);
}

void attention_grad(const KernelCall& call) {
  const AttentionProblem p = grad_problem(call.query);
  AttentionTensors t{.q = call.in<float>(1), .k = call.in<float>(2), .v = call.in<float>(3), .dy = call.in<float>(0)};
  const float* y = call.in<float>(4);
  t.lse = const_cast<float*>(call.in<float>(5));  // only read by the gradient
  if (call.query.has(6)) t.bias = call.in<float>(6);
  float* dots = static_cast<float*>(call.workspace);
  t.dots = dots;
  t.dq = call.out<float>(0);
  t.dk = call.out<float>(1);
  t.dv = call.out<float>(2);
  const AttentionLoops& loops = EPL_CPU_CHOOSE(attention_loops)();
  const int64_t rows = p.batch * p.heads * p.queries, floats = attention_grad_scratch_floats(p);
  for_each_row(call.threads(), rows, p.values,
               [&](int64_t r) { dots[r] = loops.dot(t.dy + r * p.values, y + r * p.values, p.values); });

  float* corrections = dots + round_up(rows, 16);
  float* scratch = corrections + round_up(rows, 16);
  t.corrections = corrections;
  const int64_t row_tiles = tiles(p.queries, attention_rows);
  call.threads().run(p.batch * p.heads * row_tiles, [&](int64_t i, int thread) {
    const int64_t head = i / row_tiles;
    loops.corrections(p, t, head / p.heads, head % p.heads, i % row_tiles * attention_rows, corrections,
                      scratch + thread * floats);
  });
  const auto run = [&](const AttentionGradTask& task, int thread) {
    loops.grad(p, t, task, scratch + thread * floats);
  };
  const AttentionGradTask full{
      .last_head = p.repeat(), .last_key = p.keys, .last_row = p.queries, .keys = true, .queries = true};
  if (by_heads(p, call.threads().size())) {
    call.threads().run(p.batch * p.key_heads, [&](int64_t i, int thread) {
      AttentionGradTask task = full;
      task.batch = i / p.key_heads;
      task.key_head = i % p.key_heads;
      run(task, thread);
    });
    return;
  }
  const int64_t key_tiles = tiles(p.keys, attention_keys);
  call.threads().run(p.batch * p.key_heads * key_tiles, [&](int64_t i, int thread) {
    AttentionGradTask task = full;
    task.queries = false;
    task.first_key = i % key_tiles * attention_keys;
    task.last_key = std::min(p.keys, task.first_key + attention_keys);
    task.batch = i / key_tiles / p.key_heads;
    task.key_head = i / key_tiles % p.key_heads;
    run(task, thread);
  });
  call.threads().run(p.batch * p.heads * row_tiles, [&](int64_t i, int thread) {
    AttentionGradTask task = full;
    task.keys = false;
    task.first_row = (row_tiles - 1 - i % row_tiles) * attention_rows;
    task.last_row = std::min(p.queries, task.first_row + attention_rows);
    const int64_t head = i / row_tiles % p.heads;
    task.batch = i / row_tiles / p.heads;
    task.key_head = head / p.repeat();
    task.first_head = head % p.repeat();
    task.last_head = task.first_head + 1;
    run(task, thread);
  });
}

}  // namespace

int64_t attention_scratch_floats(const AttentionProblem& p) {
  const int64_t width = attention_padded(p.values);
  return attention_rows * (2 + 16 + width + attention_keys) + attention_keys * (width + attention_padded(p.depth));
}
int64_t attention_grad_scratch_floats(const AttentionProblem& p) {
  const int64_t depth = attention_padded(p.depth), values = attention_padded(p.values);
  return attention_rows * (2 * attention_keys + 2 * depth + values) + attention_keys * (3 * depth + 2 * values);
}

EPL_KERNELS(cpu, attention) {
  table.add({.op = "attention",
             .name = "attention_tiled",
             .dtypes = {DType::f32},
             .prepare =
                 [](const KernelQuery& q) {
                   const AttentionProblem p = forward_problem(q);
                   return prepare(p, q.threads * attention_scratch_floats(p));
                 },
             .launch = attention});
  table.add({.op = "attention_grad",
             .name = "attention_grad_tiled",
             .dtypes = {DType::f32},
             .prepare =
                 [](const KernelQuery& q) {
                   const AttentionProblem p = grad_problem(q);
                   return prepare(p, 2 * round_up(p.batch * p.heads * p.queries, 16) +
                                         q.threads * attention_grad_scratch_floats(p));
                 },
             .launch = attention_grad});
}

}  // namespace epl::cpu
