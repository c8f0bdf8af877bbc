// One thread's work on a region, for the rows that run regions. See elementwise.h.
#pragma once

#include <algorithm>
#include <array>
#include <bit>

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/streaming.h"
#include "core/base/cache_line.h"

namespace epl::cpu {

// Walks the runs of a broadcast operand that make up elements [first, first + count) of the output:
// f(offset of the first element, is it one repeated element, elements).
template <class F>
void for_each_layout_run(const PreparedElementwise::Layout& layout, int64_t first, int64_t count, F&& f) {
  int last = static_cast<int>(layout.sizes.size()) - 1;
  int64_t row = layout.sizes[last], stride = layout.strides[last];
  int64_t outer = first / row, position = first % row;
  while (count > 0) {
    int64_t offset = position * stride, rest = outer;
    for (int d = last - 1; d >= 0; --d) {
      offset += rest % layout.sizes[d] * layout.strides[d];
      rest /= layout.sizes[d];
    }
    int64_t run = std::min(row - position, count);
    f(offset, stride == 0, run);
    count -= run;
    position = 0;
    ++outer;
  }
}

// One thread's view of a launch: where every value lies for the current tile.
class PreparedElementwise::Run {
 public:
  // The first `stored` results are outputs of the call; `set_result` says where the others lie. The call's workspace
  // begins with that of the region. `thread` is the calling thread's number.
  Run(const PreparedElementwise& prepared, const KernelCall& call, size_t stored, int thread)
      : prepared_(prepared), call_(call), stored_(stored), loops_(EPL_CPU_CHOOSE(tile_loop_table)()) {
    const auto values = static_cast<int64_t>(prepared.values_.size());
    uniform_ = static_cast<std::byte*>(call.workspace);
    std::byte* scratch = uniform_ + line_aligned(values * 8) + thread * prepared.thread_bytes();
    where_ = reinterpret_cast<const void**>(scratch);
    one_ = reinterpret_cast<uint8_t*>(where_ + values);
    slots_ = scratch + line_aligned(values * 9);
    for (size_t o = 0; o < prepared.outputs_.size(); ++o) {
      results_[o] = {o < stored ? static_cast<std::byte*>(call.outputs[o]) : nullptr, 0};
      if (streams_output(o)) streamed_ |= uint64_t{1} << o;
    }
    for (int64_t v = 0; v < values; ++v) {
      where_[v] = uniform_ + 8 * v;
      one_[v] = prepared.values_[v].uniform;
      if (may_compute_into_output(prepared.values_[v])) direct_ |= uint64_t{1} << prepared.values_[v].output;
    }
  }

  // Computes the values that are one element for all of the tensor.
  void uniform_values() {
    for (size_t v = 0; v < prepared_.values_.size(); ++v) {
      const Value& value = prepared_.values_[v];
      if (!value.constant) continue;
      std::byte* at = uniform_ + 8 * v;
      switch (value.type) {
        case ElementClass::real32:
          *reinterpret_cast<float*>(at) = static_cast<float>(value.number);
          break;
        case ElementClass::real64:
          *reinterpret_cast<double*>(at) = value.number;
          break;
        case ElementClass::integer:
          *reinterpret_cast<int64_t*>(at) = integer_value(value.number);
          break;
      }
    }
    for (const Step& s : prepared_.uniform_steps_) {
      void* result = uniform_ + 8 * s.result;
      if (s.kind == Kind::load) {
        loops_.loops[s.row][0](call_.inputs[s.arguments[0]], nullptr, nullptr, result, 1);
      } else {
        auto at = [&](int k) { return s.arguments[k] < 0 ? nullptr : where_[s.arguments[k]]; };
        loops_.loops[s.row][0](at(0), at(1), at(2), result, 1);
      }
    }
  }

  // Result o goes to `to` from element `first` on.
  void set_result(size_t o, void* to, int64_t first) { results_[o] = {static_cast<std::byte*>(to), first}; }

  // Elements [first, first + count), tile by tile.
  void range(int64_t first, int64_t count) {
    for (int64_t at = 0; at < count; at += prepared_.tile_) tile(first + at, std::min(prepared_.tile_, count - at));
  }

  // At most a tile's elements.
  void tile(int64_t first, int64_t count) {
    for (const Step& s : prepared_.steps_) {
      if (s.kind == Kind::load) {
        load(s, first, count);
      } else {
        compute(s, first, count);
      }
    }
    for (size_t o = 0; o < prepared_.outputs_.size(); ++o) {
      const Output& output = prepared_.outputs_[o];
      if ((direct_ >> o & 1) || !results_[o].data) continue;
      const int one = one_[output.value];
      std::byte* to = target(o, first);
      if (!one && (streamed_ >> o & 1) && reinterpret_cast<uintptr_t>(to) % line_bytes == 0) {
        EPL_CPU_CHOOSE(stream_floats)
        (static_cast<const float*>(where_[output.value]), reinterpret_cast<float*>(to), count);
      } else {
        loops_.loops[output.row][one](where_[output.value], nullptr, nullptr, to, count);
      }
    }
  }

  // After the last tile of a task.
  void finish() const {
    if (streamed_) EPL_CPU_CHOOSE(finish_streaming)();
  }

 private:
  static int64_t integer_value(double number) {
    if (number >= 9223372036854775807.0) return INT64_MAX;
    if (number <= -9223372036854775808.0) return INT64_MIN;
    return static_cast<int64_t>(number);
  }

  std::byte* slot(int value) const {
    return slots_ + prepared_.values_[value].slot * prepared_.tile_ * prepared_.element_bytes_;
  }
  std::byte* target(size_t o, int64_t first) const {
    return results_[o].data + (first - results_[o].first) * prepared_.outputs_[o].bytes;
  }

  // Over an input an output finds its lines in the caches already.
  bool streams_output(size_t o) const {
    const void* to = results_[o].data;
    return prepared_.outputs_[o].streams && to &&
           std::none_of(call_.inputs, call_.inputs + prepared_.inputs_.size(),
                        [&](const void* from) { return from == to; });
  }

  // An output may be written by the step that computes it unless a later step still reads the input it lies over.
  bool may_compute_into_output(const Value& value) const {
    const auto o = static_cast<size_t>(value.output);
    if (value.output < 0 || (streamed_ >> o & 1)) return false;
    if (o >= stored_) return true;
    if (!call_.outputs[o]) return false;
    for (size_t i = 0; i < prepared_.inputs_.size(); ++i) {
      if (call_.inputs[i] == call_.outputs[o] && prepared_.inputs_[i].last_use > value.defined) return false;
    }
    return true;
  }

  void load(const Step& s, int64_t first, int64_t count) {
    const Input& input = prepared_.inputs_[s.arguments[0]];
    const std::byte* source = static_cast<const std::byte*>(call_.inputs[s.arguments[0]]);
    one_[s.result] = 0;
    if (input.layout.full && input.in_place) {
      where_[s.result] = source + first * input.bytes;
      return;
    }
    std::byte* scratch = slot(s.result);
    where_[s.result] = scratch;
    if (input.layout.full) {
      loops_.loops[s.row][0](source + first * input.bytes, nullptr, nullptr, scratch, count);
      return;
    }
    const int64_t element = class_bytes(prepared_.values_[s.result].type);
    for_each_layout_run(input.layout, first, count, [&](int64_t offset, bool repeated, int64_t run) {
      const std::byte* from = source + offset * input.bytes;
      if (run == count && input.in_place) {
        where_[s.result] = from;
        one_[s.result] = repeated;
      } else if (run == count && repeated) {
        loops_.loops[s.row][0](from, nullptr, nullptr, scratch, 1);
        one_[s.result] = 1;
      } else {
        loops_.loops[s.row][repeated](from, nullptr, nullptr, scratch, run);
        scratch += run * element;
      }
    });
  }

  void compute(const Step& s, int64_t first, int64_t count) {
    const void* operands[3] = {};
    int variant = 0;
    for (int k = 0; k < 3 && s.arguments[k] >= 0; ++k) {
      operands[k] = where_[s.arguments[k]];
      variant |= one_[s.arguments[k]] << k;
    }
    int output = prepared_.values_[s.result].output;
    bool direct = output >= 0 && (direct_ >> output & 1);
    void* result = direct ? target(output, first) : slot(s.result);
    loops_.loops[s.row][variant](operands[0], operands[1], operands[2], result, count);
    where_[s.result] = result;
    one_[s.result] = 0;
  }

  struct Target {
    std::byte* data;
    int64_t first;  // the element that lies there
  };

  const PreparedElementwise& prepared_;
  const KernelCall& call_;
  size_t stored_;
  const TileLoopTable& loops_;
  std::byte* uniform_;     // 8 bytes a value, shared by the threads once it is filled
  const void** where_;     // of each value
  uint8_t* one_;           // is it one element?
  uint64_t streamed_ = 0;  // outputs that go past the caches
  uint64_t direct_ = 0;    // outputs computed in place
  std::byte* slots_;
  std::array<Target, max_results> results_;
};

}  // namespace epl::cpu
