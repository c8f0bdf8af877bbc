// Rows put into slots and taken from them, on several threads: what a plain loop gives.
#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::put_rows_test {
namespace {

constexpr int64_t rows = 300, slots = 90, width = 70;

int64_t slot_of(const Tensor& indices, int64_t i) {
  const int64_t at = indices.get_int(i);
  return at < 0 ? at + slots : at;
}

// Most slots are named several times, some never, and some rows name none.
TEST(PutRows, PutsTheLastOfThoseWithOneIndex) {
  const Tensor x = random_int(DType::f32, {rows, width}, 1, 1, 99),
               indices = random_int(DType::i64, {rows}, 2, -slots - 5, slots + 5);
  const Tensor y = launch_everywhere({.op = "put_rows",
                                      .attributes = {{"size", slots}},
                                      .inputs = {x, indices},
                                      .outputs = {f32_type({slots, width})}})[0];
  for (int64_t slot = 0; slot < slots; ++slot) {
    int64_t last = -1;
    for (int64_t i = 0; i < rows; ++i) last = slot_of(indices, i) == slot ? i : last;
    for (int64_t j = 0; j < width; ++j)
      ASSERT_EQ(y.get(slot * width + j), last < 0 ? 0 : x.get(last * width + j)) << slot;
  }
}

TEST(TakeRows, TakesZerosFromNowhere) {
  const Tensor x = random_int(DType::f32, {slots, width}, 1, 1, 99),
               indices = random_int(DType::i64, {rows}, 2, -slots - 5, slots + 5);
  const Tensor y =
      launch_everywhere({.op = "take_rows", .inputs = {x, indices}, .outputs = {f32_type({rows, width})}})[0];
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t slot = slot_of(indices, i);
    for (int64_t j = 0; j < width; ++j)
      ASSERT_EQ(y.get(i * width + j), slot < 0 || slot >= slots ? 0 : x.get(slot * width + j)) << i;
  }
}

}  // namespace
}  // namespace epl::cpu::put_rows_test
