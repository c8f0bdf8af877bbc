#include "backends/cpu/kernels/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"

namespace epl::cpu {
namespace {

constexpr int64_t task_bytes = 65536;
constexpr int64_t square = 16;  // of a blocked transposition

// One row of `n` elements.
template <class T> void copy_row(const T* source, int64_t source_step, T* target, int64_t target_step, int64_t n) {
  if (source_step == 1 && target_step == 1) {
    std::memcpy(target, source, n * sizeof(T));
  } else if (source_step == 0 && target_step == 1) {
    std::fill_n(target, n, *source);
  } else {
    for (int64_t i = 0; i < n; ++i) target[i * target_step] = source[i * source_step];
  }
}

// rows x columns elements where rows are neighbours in the source and columns in the target: squares of both fit the
// cache.
template <class T>
void copy_square(const T* source, int64_t source_column, T* target, int64_t target_row, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) target[r * target_row + c] = source[r + c * source_column];
  }
}
template <class T>
void transpose(const T* source, int64_t source_column, T* target, int64_t target_row, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; r += square) {
    for (int64_t c = 0; c < columns; c += square) {
      const T* from = source + r + c * source_column;
      T* to = target + r * target_row + c;
      int64_t high = std::min(square, rows - r), wide = std::min(square, columns - c);
      if (high == square && wide == square) {
        copy_square(from, source_column, to, target_row, square, square);
      } else {
        copy_square(from, source_column, to, target_row, high, wide);
      }
    }
  }
}

}  // namespace

StridedCopy::StridedCopy(std::vector<Dim> dims, DType type) : element_bytes_(static_cast<int64_t>(dtype_bytes(type))) {
  // Outermost first in the target's order, so that writes run forward.
  std::erase_if(dims, [](const Dim& d) { return d.size == 1; });
  std::stable_sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.target > b.target; });
  for (const Dim& d : dims) {
    if (!dims_.empty() && dims_.back().source == d.source * d.size && dims_.back().target == d.target * d.size) {
      dims_.back() = {dims_.back().size * d.size, d.source, d.target};
    } else {
      dims_.push_back(d);
    }
  }
  if (dims_.empty()) dims_.push_back({1, 1, 1});
}

int64_t StridedCopy::elements() const {
  int64_t n = 1;
  for (const Dim& d : dims_) n *= d.size;
  return n;
}

void StridedCopy::run(const void* source, void* target, ThreadPool& threads) const {
  if (elements() == 0) return;
  switch (element_bytes_) {
    case 1:
      return run_as(static_cast<const uint8_t*>(source), static_cast<uint8_t*>(target), threads);
    case 2:
      return run_as(static_cast<const uint16_t*>(source), static_cast<uint16_t*>(target), threads);
    case 4:
      return run_as(static_cast<const uint32_t*>(source), static_cast<uint32_t*>(target), threads);
    case 8:
      return run_as(static_cast<const uint64_t*>(source), static_cast<uint64_t*>(target), threads);
    default:
      EPL_CHECK(false, "elements of ", element_bytes_, " bytes");
  }
}

template <class T> void StridedCopy::run_as(const T* source, T* target, ThreadPool& threads) const {
  const Dim inner = dims_.back();
  // A transposition: some other dimension walks the source one by one, while the innermost strides.
  int across = -1;
  for (int d = 0; d + 1 < static_cast<int>(dims_.size()); ++d) {
    if (dims_[d].source == 1 && inner.source != 1 && inner.source != 0 && inner.target == 1) across = d;
  }
  int64_t outer = 1;
  for (int d = 0; d + 1 < static_cast<int>(dims_.size()); ++d) outer *= d == across ? 1 : dims_[d].size;
  const Dim rows = across < 0 ? Dim{1, 0, 0} : dims_[across];
  // If there are few other dimensions, the innermost one (of a transposition, or the row) is cut too.
  int64_t work = inner.size * rows.size, cuts = 1;
  const int64_t long_side = across < 0 ? inner.size : rows.size;
  if (outer < 4 * threads.size())
    cuts = std::clamp<int64_t>(outer * work * static_cast<int64_t>(sizeof(T)) / task_bytes, 1, 4 * threads.size());
  cuts = std::max<int64_t>(1, std::min(cuts, long_side / square));
  int64_t grain =
      std::max<int64_t>(1, task_bytes * cuts / std::max<int64_t>(1, work * static_cast<int64_t>(sizeof(T))));
  threads.run_ranges(outer * cuts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      int64_t rest = t / cuts, part = t % cuts, from = 0, to = 0;
      for (int d = static_cast<int>(dims_.size()) - 2; d >= 0; --d) {
        if (d == across) continue;
        int64_t i = rest % dims_[d].size;
        rest /= dims_[d].size;
        from += i * dims_[d].source;
        to += i * dims_[d].target;
      }
      int64_t squares = (long_side + square - 1) / square;
      int64_t first = squares * part / cuts * square, last = std::min(long_side, squares * (part + 1) / cuts * square);
      if (across < 0) {
        copy_row(source + from + first * inner.source, inner.source, target + to + first * inner.target, inner.target,
                 last - first);
      } else {
        transpose(source + from + first, inner.source, target + to + first * rows.target, rows.target, last - first,
                  inner.size);
      }
    }
  });
}

void fill_bytes(void* target, int64_t bytes, uint8_t value, ThreadPool& threads) {
  threads.run_ranges(bytes, task_bytes * 4, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<uint8_t*>(target) + begin, value, end - begin);
  });
}
void fill_elements(const void* element, DType type, void* target, int64_t count, ThreadPool& threads) {
  auto fill = [&]<class T>(const T* value) {
    threads.run_ranges(count, task_bytes * 4 / static_cast<int64_t>(sizeof(T)), [&](int64_t begin, int64_t end) {
      std::fill(static_cast<T*>(target) + begin, static_cast<T*>(target) + end, *value);
    });
  };
  switch (dtype_bytes(type)) {
    case 1:
      return fill(static_cast<const uint8_t*>(element));
    case 2:
      return fill(static_cast<const uint16_t*>(element));
    case 4:
      return fill(static_cast<const uint32_t*>(element));
    default:
      return fill(static_cast<const uint64_t*>(element));
  }
}
void copy_bytes(const void* source, void* target, int64_t bytes, ThreadPool& threads) {
  if (source == target) return;
  threads.run_ranges(bytes, task_bytes * 4, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<uint8_t*>(target) + begin, static_cast<const uint8_t*>(source) + begin, end - begin);
  });
}

}  // namespace epl::cpu
