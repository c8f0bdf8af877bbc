#include "core/base/tensor_box.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/base/check.h"

namespace epl {
namespace {

constexpr int64_t buffer_bytes = 256 << 10;
// Gaps that are shorter are read as well, and are thrown away: a call of the system costs more.
constexpr int64_t read_gap_bytes = 16 << 10;

// The box as runs of bytes that lie together on both sides.
class BoxRuns {
 public:
  BoxRuns(const Tensor& tensor, const BoxCopy& box, void* target)
      : tensor_(tensor),
        target_(static_cast<std::byte*>(target)),
        gap_bytes_(tensor.in_memory() ? 0 : read_gap_bytes),
        run_bytes_(static_cast<int64_t>(dtype_bytes(tensor.dtype()))) {
    int64_t from_stride = run_bytes_, to_stride = run_bytes_;
    for (size_t d = box.shape.size(); d-- > 0;) {
      from_ += box.from[d] * from_stride;
      to_ += box.to[d] * to_stride;
      if (from_stride == run_bytes_ && to_stride == run_bytes_) {
        run_bytes_ *= box.shape[d];
      } else if (box.shape[d] != 1) {
        loops_.push_back({box.shape[d], from_stride, to_stride});
      }
      from_stride *= tensor.shape()[d];
      to_stride *= box.room[d];
    }
  }

  Status copy() { return loop(loops_.size(), from_, to_); }

 private:
  struct Loop {
    int64_t count, from_stride, to_stride;
  };

  // The inner `depth` loops.
  Status loop(size_t depth, int64_t from, int64_t to) {
    if (depth == 0) return tensor_.read(from, run_bytes_, target_ + to);
    const Loop& here = loops_[depth - 1];
    const bool close = here.from_stride - run_bytes_ < gap_bytes_ && here.from_stride + run_bytes_ <= buffer_bytes;
    if (depth == 1 && close) return line(here, from, to);
    for (int64_t i = 0; i < here.count; ++i)
      EPL_TRY(loop(depth - 1, from + i * here.from_stride, to + i * here.to_stride));
    return {};
  }

  // Runs that lie close together, as many at once as the buffer holds.
  Status line(const Loop& here, int64_t from, int64_t to) {
    const int64_t at_once = std::min(here.count, (buffer_bytes - run_bytes_) / here.from_stride + 1);
    buffer_.resize(static_cast<size_t>((at_once - 1) * here.from_stride + run_bytes_));
    for (int64_t first = 0; first < here.count; first += at_once) {
      const int64_t count = std::min(at_once, here.count - first);
      EPL_TRY(
          tensor_.read(from + first * here.from_stride, (count - 1) * here.from_stride + run_bytes_, buffer_.data()));
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(target_ + to + (first + i) * here.to_stride, buffer_.data() + i * here.from_stride,
                    static_cast<size_t>(run_bytes_));
    }
    return {};
  }

  const Tensor& tensor_;
  std::byte* const target_;
  const int64_t gap_bytes_;
  std::vector<Loop> loops_;  // the innermost first
  int64_t from_ = 0, to_ = 0, run_bytes_;
  std::vector<std::byte> buffer_;
};

bool lies_in(const Shape& box, const Shape& begin, const Shape& all) {
  if (box.size() != all.size() || begin.size() != all.size()) return false;
  for (size_t d = 0; d < all.size(); ++d) {
    if (begin[d] < 0 || box[d] < 0 || begin[d] > all[d] - box[d]) return false;
  }
  return true;
}

class JoinedShards final : public TensorSource {
 public:
  JoinedShards(TensorType type, std::vector<PositionedBox> shards)
      : type_(std::move(type)), shards_(std::move(shards)) {}

  // A range is read as the largest boxes that it has.
  Status read(int64_t begin, int64_t bytes, void* target) const override {
    const auto size = static_cast<int64_t>(dtype_bytes(type_.dtype));
    EPL_CHECK(begin % size == 0 && bytes % size == 0, "bytes ", begin, " to ", begin + bytes, " of ", type_.text());
    const Shape& all = type_.shape;
    const Shape strides = row_major_strides(all);
    const int64_t first = begin / size, end = first + bytes / size;
    for (int64_t at = first, count = 0; at < end; at += count) {
      BoxCopy box{Shape(all.size(), 1), Shape(all.size(), 0), {}, Shape(all.size(), 0)};
      count = 1;
      bool found = false;
      for (size_t d = 0; d < all.size(); ++d) {
        box.from[d] = found ? 0 : at / strides[d] % all[d];
        if (found) {
          box.shape[d] = all[d];
        } else if (at % strides[d] == 0 && at + strides[d] <= end) {
          box.shape[d] = std::min(all[d] - box.from[d], (end - at) / strides[d]);
          count = box.shape[d] * strides[d];
          found = true;
        }
      }
      box.room = box.shape;
      EPL_TRY(copy_box(shards_, box, static_cast<std::byte*>(target) + (at - first) * size));
    }
    return {};
  }

 private:
  const TensorType type_;
  const std::vector<PositionedBox> shards_;
};

}  // namespace

PositionedBox PositionedBox::all(Tensor value) {
  const Shape shape = value.shape(), origin(shape.size(), 0);
  return {origin, shape, std::move(value), origin};
}

Status copy_box(const Tensor& tensor, const BoxCopy& box, void* target) {
  EPL_CHECK(lies_in(box.shape, box.from, tensor.shape()), "a box ", box.shape, " at ", box.from, " of ",
            tensor.type().text());
  EPL_CHECK(lies_in(box.shape, box.to, box.room), "a box ", box.shape, " at ", box.to, " in room ", box.room);
  if (element_count(box.shape) == 0) return {};
  return BoxRuns(tensor, box, target).copy();
}

Status copy_box(const std::vector<PositionedBox>& shards, const BoxCopy& box, void* target) {
  for (const PositionedBox& shard : shards) {
    BoxCopy common = box;
    bool any = true;
    for (size_t d = 0; d < box.shape.size(); ++d) {
      const int64_t begin = std::max(box.from[d], shard.offset[d]);
      const int64_t end = std::min(box.from[d] + box.shape[d], shard.offset[d] + shard.shape[d]);
      any = any && begin < end;
      common.shape[d] = end - begin;
      common.from[d] = begin - shard.offset[d] + shard.from[d];
      common.to[d] += begin - box.from[d];
    }
    if (any) EPL_TRY(copy_box(shard.value, common, target));
  }
  return {};
}

Tensor PositionedBox::as_tensor() const {
  if (shape == value.shape()) return value;
  return joined({value.dtype(), shape}, {{Shape(shape.size(), 0), shape, value, from}});
}

Tensor joined(TensorType type, std::vector<PositionedBox> shards) {
  auto source = std::make_shared<const JoinedShards>(type, std::move(shards));
  return Tensor(std::move(type), std::move(source));
}

}  // namespace epl
