// Sums, extremes and products over axes. See reduce.h and reduce_order.h.
#include "backends/cpu/kernels/reduce.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "backends/cpu/cpu.h"
#include "core/backend/kernel.h"
#include "core/base/cache_line.h"

namespace epl::cpu {
namespace {

constexpr int64_t task_values = 32768;  // what is worth waking a thread for

// The values of `dims` in row-major order, cut into contiguous runs: f(offset, values) for [first, first + count).
template <class Dims, class F> void for_each_run(const Dims& dims, int64_t first, int64_t count, F&& f) {
  int last = static_cast<int>(dims.size()) - 1;
  int64_t row = dims[last].size;
  int64_t outer = first / row, position = first % row;
  while (count > 0) {
    int64_t offset = position * dims[last].stride, rest = outer;
    for (int d = last - 1; d >= 0; --d) {
      offset += rest % dims[d].size * dims[d].stride;
      rest /= dims[d].size;
    }
    int64_t run = std::min(row - position, count);
    f(offset, run);
    count -= run;
    position = 0;
    ++outer;
  }
}

}  // namespace

PreparedReduce::PreparedReduce(const Shape& shape, const std::vector<int64_t>& axes, Units units)
    : units_(units.count) {
  std::vector<bool> folded(shape.size(), false);
  for (int64_t a : axes) folded[a < 0 ? a + shape.size() : a] = true;
  Shape strides = row_major_strides(shape);
  int previous = -1;  // kind of the last dimension seen
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    std::vector<Dim>& dims = folded[d] ? folded_ : kept_;
    if (previous == folded[d]) {
      dims.back() = {dims.back().size * shape[d], strides[d]};
    } else {
      dims.push_back({shape[d], strides[d]});
    }
    previous = folded[d];
  }
  for (const Dim& dim : folded_) reduced_ *= dim.size;
  if (folded_.empty()) folded_ = {{1, 1}};
  if (previous == 0) {  // the last dimension stays
    columns_ = kept_.back().size;
    kept_.pop_back();
  }
  for (const Dim& dim : kept_) outer_ *= dim.size;
  segments_ = segment_count(reduced_ / units_);
  if (units.outer > 1 && units.count > 1 && reduced_ > 0) put_units_first(units);
}

// The folded dimensions are outer x units x runs: as (units, outer, runs) a unit is a stretch of them.
void PreparedReduce::put_units_first(Units units) {
  const int64_t run = units.run(reduced_);
  std::vector<Dim> outer, middle, inner;
  int64_t behind = 1;  // positions of the dimensions behind
  for (size_t d = folded_.size(); d-- > 0;) {
    // What of this dimension counts positions within a run, what units, what lies before them.
    const int64_t size = folded_[d].size, stride = folded_[d].stride;
    const int64_t within = std::clamp<int64_t>(run / behind, 1, size);
    const int64_t of_units = std::clamp<int64_t>(run * units.count / (behind * within), 1, size / within);
    if (within > 1 || d + 1 == folded_.size()) inner.insert(inner.begin(), {within, stride});
    if (of_units > 1) middle.insert(middle.begin(), {of_units, stride * within});
    if (const int64_t before = size / within / of_units; before > 1)
      outer.insert(outer.begin(), {before, stride * within * of_units});
    behind *= size;
  }
  folded_ = middle;
  folded_.insert(folded_.end(), outer.begin(), outer.end());
  folded_.insert(folded_.end(), inner.begin(), inner.end());
}

int64_t PreparedReduce::kept_offset(int64_t index) const {
  int64_t offset = 0;
  for (int d = static_cast<int>(kept_.size()) - 1; d >= 0; --d) {
    offset += index % kept_[d].size * kept_[d].stride;
    index /= kept_[d].size;
  }
  return offset;
}

PreparedReduce::Row PreparedReduce::row(int64_t number) const {
  const bool units_outside = !kept_.empty() && folded_[0].stride > kept_[0].stride;
  return units_outside ? Row{number % outer_, number / outer_} : Row{number / units_, number % units_};
}

int64_t PreparedReduce::partials_bytes() const {
  return units_ * segments_ == 1 ? 0 : line_aligned(outputs() * units_ * segments_ * 4);
}

int64_t PreparedReduce::workspace_bytes(int threads) const {
  int64_t thread = columns_ > 1 ? reduce_lanes * column_block * 4 + reduce_segment * 8 : 0;
  return partials_bytes() + threads * thread;
}

void PreparedReduce::run(Reducer op, const float* x, float* y, void* workspace, ThreadPool& threads) const {
  if (outputs() == 0) return;
  const ReduceLoops& loops = EPL_CPU_CHOOSE(reduce_loops)(op);
  if (reduced_ == 0) {  // only sums and products are asked for
    std::fill_n(y, outputs(), op == Reducer::product ? 1.0f : 0.0f);
    return;
  }
  bool direct = units_ * segments_ == 1;
  float* partials = direct ? y : static_cast<float*>(workspace);
  std::byte* scratch = static_cast<std::byte*>(workspace) + partials_bytes();
  if (columns_ == 1) {
    run_values(loops, x, y, partials, threads);
  } else {
    run_columns(loops, x, y, partials, scratch, threads);
  }
}

// Every output is a sequence of values of its own; partials are [output][unit][segment]. They are computed in the order
// in which the values lie: reading short runs that are far apart gets half of the memory's rate.
void PreparedReduce::run_values(const ReduceLoops& loops, const float* x, float* y, float* partials,
                                ThreadPool& threads) const {
  int64_t run = reduced_ / units_, parts = units_ * segments_;
  int64_t grain = std::max<int64_t>(1, task_values / std::min(run, reduce_segment));
  threads.run_ranges(outer_ * parts, grain, [&](int64_t begin, int64_t end) {
    float gathered[reduce_segment];
    for (int64_t at = begin; at < end;) {
      const int64_t segment = at % segments_;
      const auto [output, unit] = row(at / segments_);
      float* to_partials = partials + (output * units_ + unit) * segments_ + segment;
      int64_t many = std::min(end - at, segments_ - segment);  // segments of one run
      int64_t first = segment * reduce_segment, count = std::min(many * reduce_segment, run - first);
      const float* source = x + kept_offset(output);
      const int64_t from = unit * run + first;
      if (from % folded_.back().size + count <= folded_.back().size) {  // contiguous
        for_each_run(folded_, from, count,
                     [&](int64_t offset, int64_t values) { loops.segments(source + offset, values, to_partials); });
      } else {
        for (int64_t s = 0; s < many; ++s) {
          const int64_t n = std::min(reduce_segment, count - s * reduce_segment);
          float* to = gathered;
          for_each_run(folded_, from + s * reduce_segment, n, [&](int64_t offset, int64_t values) {
            std::memcpy(to, source + offset, values * sizeof(float));
            to += values;
          });
          loops.segments(gathered, n, to_partials + s);
        }
      }
      at += many;
    }
  });
  if (parts > 1) join_values(loops, partials, y, threads);
}

// Parts of outputs, [output][unit][segment], to outputs.
void PreparedReduce::join_values(const ReduceLoops& loops, float* partials, float* y, ThreadPool& threads) const {
  const int64_t parts = units_ * segments_;
  threads.run_ranges(outer_, std::max<int64_t>(1, task_values / parts), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      float* own = partials + o * parts;
      for (int64_t u = 0; u < units_; ++u) join_tree(own + u * segments_, segments_, 1, 1, loops.join);
      join_tree(own, units_, segments_, 1, loops.join);
      y[o] = own[0];
    }
  });
}

// How many rows are made at once: as many short ones as a segment holds, if they follow one another in memory. They
// begin with a line then, wherever whole lines of rows fit: such results can go past the caches.
int64_t PreparedReduce::rows_at_once() const {
  const int64_t run = reduced_ / units_;
  if (segments_ > 1 || folded_.back().size % run != 0) return 1;
  const auto begins = [&](int64_t number) {
    const auto [output, unit] = row(number);
    int64_t at = kept_offset(output);
    for_each_run(folded_, unit * run, 1, [&](int64_t offset, int64_t) { at += offset; });
    return at;
  };
  for (int64_t number : {int64_t{1}, outer_ - 1, outer_, outer_ * units_ - 1}) {
    if (number < outer_ * units_ && begins(number) != number * run) return 1;
  }
  const int64_t fit = reduce_segment / run, aligned = 16 / std::gcd(run, int64_t{16});
  return fit < aligned ? fit : fit / aligned * aligned;
}

int64_t PreparedReduce::made_workspace_bytes(int sums, int threads) const {
  return sums * (partials_bytes() + threads * reduce_segment * int64_t{sizeof(float)});
}

void PreparedReduce::run_made(int sums, FunctionRef<void(int, Walk)> task, void* const* y, void* workspace,
                              ThreadPool& threads) const {
  const ReduceLoops& loops = EPL_CPU_CHOOSE(reduce_loops)(Reducer::sum);
  const int64_t run = reduced_ / units_, parts = units_ * segments_, rows = outer_ * units_, at_once = rows_at_once();
  const auto partials = [&](int k) {
    if (parts == 1) return static_cast<float*>(y[k]);
    return reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + k * partials_bytes());
  };
  auto* rooms = reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + sums * partials_bytes());
  const int64_t blocks = (rows + at_once - 1) / at_once;
  const int64_t tasks = std::clamp<int64_t>(rows * run / task_values, 1, std::min(blocks, int64_t{8} * threads.size()));
  threads.run(tasks, [&](int64_t number, int thread) {
    float* room = rooms + thread * sums * reduce_segment;
    // What lies in the room from `at` on is a segment of a row.
    const auto reduce = [&](int64_t of, int64_t segment, int64_t at, int64_t count) {
      const auto [output, unit] = row(of);
      for (int k = 0; k < sums; ++k) {
        if (!y[k]) continue;
        loops.segments(room + k * reduce_segment + at, count,
                       partials(k) + (output * units_ + unit) * segments_ + segment);
      }
    };
    task(thread, [&](Make make) {
      for (int64_t block = blocks * number / tasks; block < blocks * (number + 1) / tasks; ++block) {
        const int64_t first = block * at_once, many = std::min(at_once, rows - first);
        if (many > 1) {
          make(first * run, many * run, room);
          for (int64_t r = 0; r < many; ++r) reduce(first + r, 0, r * run, run);
          continue;
        }
        const auto [output, unit] = row(first);
        const int64_t start = kept_offset(output);
        for (int64_t segment = 0; segment < segments_; ++segment) {
          const int64_t from = segment * reduce_segment, count = std::min(reduce_segment, run - from);
          float* to = room;
          for_each_run(folded_, unit * run + from, count, [&](int64_t offset, int64_t values) {
            make(start + offset, values, to);
            to += values;
          });
          reduce(first, segment, 0, count);
        }
      }
    });
  });
  for (int k = 0; k < sums && parts > 1; ++k) {
    if (y[k]) join_values(loops, partials(k), static_cast<float*>(y[k]), threads);
  }
}

// Outputs come in rows of columns; partials are [outer][unit][segment][column].
void PreparedReduce::run_columns(const ReduceLoops& loops, const float* x, float* y, float* partials,
                                 std::byte* scratch, ThreadPool& threads) const {
  int64_t run = reduced_ / units_, parts = units_ * segments_, blocks = (columns_ + column_block - 1) / column_block;
  constexpr int64_t scratch_bytes = reduce_lanes * column_block * 4 + reduce_segment * 8;
  int64_t tasks = outer_ * parts * blocks;
  int64_t values = std::min(run, reduce_segment) * std::min(columns_, column_block);
  int64_t per_task = std::max<int64_t>(1, task_values / values);
  threads.run((tasks + per_task - 1) / per_task, [&](int64_t task, int thread) {
    float* lanes = reinterpret_cast<float*>(scratch + thread * scratch_bytes);
    int64_t* offsets = reinterpret_cast<int64_t*>(lanes + reduce_lanes * column_block);
    for (int64_t t = task * per_task; t < std::min(tasks, (task + 1) * per_task); ++t) {
      int64_t part = t / blocks, column = t % blocks * column_block;
      int64_t unit = part % parts / segments_, first = part % segments_ * reduce_segment;
      int64_t rows = std::min(reduce_segment, run - first), width = std::min(column_block, columns_ - column);
      int64_t* next = offsets;
      for_each_run(folded_, unit * run + first, rows, [&](int64_t offset, int64_t count) {
        for (int64_t r = 0; r < count; ++r) *next++ = offset + r * folded_.back().stride;
      });
      const float* source = x + kept_offset(part / parts) + column;
      loops.columns(source, offsets, rows, width, partials + part * columns_ + column, lanes);
    }
  });
  if (parts == 1) return;
  threads.run_ranges(outer_ * blocks, std::max<int64_t>(1, task_values / (parts * column_block)),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t t = begin; t < end; ++t) {
                         int64_t column = t % blocks * column_block, width = std::min(column_block, columns_ - column);
                         float* own = partials + t / blocks * parts * columns_ + column;
                         auto join = [&](int64_t from, int64_t count, int64_t stride) {
                           for (int64_t step = 1; step < count; step *= 2) {
                             for (int64_t i = 0; i + step < count; i += 2 * step) {
                               loops.join_rows(own + (from + i * stride) * columns_,
                                               own + (from + (i + step) * stride) * columns_, width);
                             }
                           }
                         };
                         for (int64_t u = 0; u < units_; ++u) join(u * segments_, segments_, 1);
                         join(0, units_, segments_);
                         std::memcpy(y + t / blocks * columns_ + column, own, width * sizeof(float));
                       }
                     });
}

namespace {

template <Reducer op> Result<Prepared> prepare(const KernelQuery& q) {
  constexpr bool honours_units = op == Reducer::sum;
  const int64_t values = PreparedReduce(q.in(0).shape, q.attributes.ints("axes"), 1).reduced();
  const bool empty = values == 0 && (op == Reducer::max || op == Reducer::min);
  EPL_TRY(require(cpu_level() != CpuLevel::none, "a processor without AVX2"));
  EPL_TRY(require(!empty, "an extreme of nothing"));
  EPL_TRY(require(!honours_units || q.units.divide(values), "units that do not divide the summed elements"));
  auto state = std::make_shared<const PreparedReduce>(q.in(0).shape, q.attributes.ints("axes"),
                                                      honours_units ? q.units : Units());
  return Prepared{.state = state, .workspace_bytes = state->workspace_bytes(q.threads)};
}

template <Reducer op> void launch(const KernelCall& call) {
  static_cast<const PreparedReduce*>(call.state)
      ->run(op, call.in<float>(0), call.out<float>(0), call.workspace, call.threads());
}

template <Reducer op> void add_row(KernelTable& table, const char* name, const char* row) {
  table.add({.op = name, .name = row, .dtypes = {DType::f32}, .prepare = prepare<op>, .launch = launch<op>});
}

}  // namespace

EPL_KERNELS(cpu, reduce) {
  add_row<Reducer::sum>(table, "sum", "sum_segments");
  add_row<Reducer::max>(table, "max_reduce", "max_segments");
  add_row<Reducer::min>(table, "min_reduce", "min_segments");
  add_row<Reducer::product>(table, "prod_reduce", "product_segments");
}

}  // namespace epl::cpu
