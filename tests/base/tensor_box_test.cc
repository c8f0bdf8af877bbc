// Boxes of tensors come to their place, from memory, from a file and from shards, and take little more than themselves.
#include "core/base/tensor_box.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>

namespace epl::tensor_box_test {
namespace {

Tensor counted(const Shape& shape) {
  Tensor out(TensorType{DType::i32, shape});
  for (int64_t i = 0; i < out.elements(); ++i) out.set_int(i, i + 1);
  return out;
}

// What a file is to a tensor. It counts what is asked of it.
class Counting final : public TensorSource {
 public:
  explicit Counting(Tensor value) : value_(std::move(value)) {}
  Status read(int64_t begin, int64_t bytes, void* target) const override {
    ++calls, all += bytes, longest = std::max(longest, bytes);
    return value_.read(begin, bytes, target);
  }
  mutable int64_t calls = 0, all = 0, longest = 0;

 private:
  Tensor value_;
};

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  int64_t number(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  BoxCopy box(const Shape& all) {
    BoxCopy out;
    for (const int64_t size : all) {
      const int64_t begin = number(0, size), here = number(0, size - begin), before = number(0, 2);
      const bool full = number(0, 2) == 0;
      out.from.push_back(full ? 0 : begin);
      out.shape.push_back(full ? size : here);
      out.to.push_back(full ? 0 : before);
      out.room.push_back(full ? size : before + here + number(0, 2));
    }
    return out;
  }

 private:
  std::mt19937 random_;
};

int64_t index_in(const Shape& all, const Shape& at) {
  int64_t out = 0;
  for (size_t d = 0; d < all.size(); ++d) out = out * all[d] + at[d];
  return out;
}

// Element by element.
Tensor expected(const Tensor& from, const BoxCopy& box) {
  Tensor out(TensorType{DType::i32, box.room});
  const Shape strides = row_major_strides(box.shape);
  for (int64_t i = 0; i < element_count(box.shape); ++i) {
    Shape source = box.from, target = box.to;
    for (size_t d = 0; d < source.size(); ++d) {
      const int64_t at = i / strides[d] % box.shape[d];
      source[d] += at;
      target[d] += at;
    }
    out.set_int(index_in(box.room, target), from.get_int(index_in(from.shape(), source)));
  }
  return out;
}

// The tensor in shards that a tree of cuts makes.
void cut(const Tensor& all, const BoxCopy& box, Draw& draw, std::vector<PositionedBox>& out) {
  const size_t ndim = box.shape.size();
  const size_t d = ndim == 0 ? 0 : static_cast<size_t>(draw.number(0, static_cast<int64_t>(ndim) - 1));
  if (ndim == 0 || box.shape[d] < 2 || draw.number(0, 3) == 0) {
    Tensor shard(TensorType{DType::i32, box.shape});
    ASSERT_TRUE(copy_box(all, {box.shape, box.from, box.shape, Shape(ndim, 0)}, shard.data()).ok());
    out.push_back(PositionedBox::all(Tensor(shard.type(), std::make_shared<Counting>(shard))));
    out.back().offset = box.from;
    return;
  }
  const int64_t here = draw.number(1, box.shape[d] - 1);
  BoxCopy first = box, second = box;
  first.shape[d] = here;
  second.from[d] += here;
  second.shape[d] -= here;
  cut(all, first, draw, out);
  cut(all, second, draw, out);
}

TEST(TensorBox, ComesToItsPositionFromWhereverItIs) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    Draw draw(seed);
    Shape shape(static_cast<size_t>(draw.number(0, 4)));
    for (int64_t& size : shape) size = draw.number(1, 5);
    const Tensor memory = counted(shape), file(memory.type(), std::make_shared<Counting>(memory));
    std::vector<PositionedBox> shards;
    cut(memory, {shape, Shape(shape.size(), 0), {}, {}}, draw, shards);
    const Tensor together = joined(memory.type(), shards);
    const BoxCopy box = draw.box(shape);
    for (const Tensor* from : {&memory, &file, &together}) {
      Tensor target(TensorType{DType::i32, box.room});
      ASSERT_TRUE(copy_box(*from, box, target.data()).ok());
      EXPECT_TRUE(identical(target, expected(memory, box))) << "seed " << seed;
    }
    Tensor target(TensorType{DType::i32, box.room}), part(TensorType{DType::i32, box.shape});
    ASSERT_TRUE(copy_box(shards, box, target.data()).ok());
    EXPECT_TRUE(identical(target, expected(memory, box))) << "seed " << seed;
    // A box of a tensor is a tensor.
    const BoxCopy alone{box.shape, box.from, box.shape, Shape(shape.size(), 0)};
    ASSERT_TRUE(copy_box(memory, alone, part.data()).ok());
    EXPECT_TRUE(identical(*PositionedBox{{}, box.shape, file, box.from}.as_tensor().load(), part)) << "seed " << seed;
    EXPECT_TRUE(identical(*together.load(), memory)) << "seed " << seed << ", " << shards.size() << " shards";
    const int64_t begin = draw.number(0, memory.elements()), count = draw.number(0, memory.elements() - begin);
    std::vector<std::byte> range(static_cast<size_t>(count) * 4);
    ASSERT_TRUE(together.read(begin * 4, count * 4, range.data()).ok());
    EXPECT_TRUE(
        std::ranges::equal(range, std::span(static_cast<const std::byte*>(memory.data()) + begin * 4, range.size())))
        << "seed " << seed;
  }
}

TEST(TensorBox, ReadsLittleMoreThanTheBox) {
  const Tensor wide(TensorType{DType::f32, {64, 64 << 10}});
  const auto file = std::make_shared<Counting>(wide);
  const Tensor lazy(wide.type(), file);
  Tensor target(TensorType{DType::f32, {64, 16 << 10}});
  // Runs that are far apart are read alone.
  ASSERT_TRUE(copy_box(lazy, {{64, 16 << 10}, {0, 16 << 10}, {64, 16 << 10}, {0, 0}}, target.data()).ok());
  EXPECT_EQ(file->calls, 64);
  EXPECT_EQ(file->all, target.bytes());

  const Tensor narrow(TensorType{DType::f32, {16 << 10, 64}});
  const auto close = std::make_shared<Counting>(narrow);
  const Tensor rows(narrow.type(), close);
  Tensor column(TensorType{DType::f32, {16 << 10, 16}});
  // Runs that are close together are read at once, a buffer at a time.
  ASSERT_TRUE(copy_box(rows, {{16 << 10, 16}, {0, 16}, {16 << 10, 16}, {0, 0}}, column.data()).ok());
  EXPECT_LE(close->calls, 17);
  EXPECT_LE(close->longest, 256 << 10);
  EXPECT_LE(close->all, narrow.bytes());
}

TEST(TensorBox, AShardThatCannotBeReadIsAnError) {
  class Broken final : public TensorSource {
    Status read(int64_t, int64_t, void*) const override { return Status(Code::io, "broken"); }
  };
  const TensorType half{DType::i32, {2, 2}};
  std::vector<PositionedBox> shards = {PositionedBox::all(counted({2, 2})),
                                       PositionedBox::all(Tensor(half, std::make_shared<Broken>()))};
  shards[1].offset = {2, 0};
  Tensor target(half);
  EXPECT_TRUE(copy_box(shards, {{2, 2}, {0, 0}, {2, 2}, {0, 0}}, target.data()).ok());
  EXPECT_EQ(copy_box(shards, {{2, 2}, {1, 0}, {2, 2}, {0, 0}}, target.data()).code(), Code::io);
  EXPECT_EQ(joined({DType::i32, {4, 2}}, shards).load().status().code(), Code::io);
}

}  // namespace
}  // namespace epl::tensor_box_test
