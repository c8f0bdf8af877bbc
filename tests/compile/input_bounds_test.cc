// What integers of inputs may be, told from the graph; and where a graph keeps samples apart.
#include "core/compile/input_bounds.h"

#include <gtest/gtest.h>

#include "core/compile/sample_dims.h"
#include "core/strategy/pass.h"

namespace epl::input_bounds_test {
namespace {

std::shared_ptr<const Graph> parse(std::string_view text) {
  auto graph = parse_graph(text);
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  return graph.ok() ? std::make_shared<const Graph>(*std::move(graph)) : nullptr;
}

constexpr std::string_view ids_text = R"(graph ids(ids: i32[4,3] batch 0, other: i64[4] batch 0, mask: i64[4] batch 0) {
  table: f32[10,2] = param
  forward:
  flat: i32[12] = reshape(ids) {shape=[12]}
  wide: i64[12] = cast(flat) {to=@i64}
  rows: f32[12,2] = gather(table, wide) {axis=0}
  shifted: i64[4] = add(other, mask)
  more: f32[4,2] = gather(table, shifted) {axis=0}
  output rows = rows
  output more = more
}
)";

TEST(InputBounds, FollowWhatOnlyMovesElements) {
  auto graph = parse(ids_text);
  ASSERT_NE(graph, nullptr);
  const std::vector<InputBound> bounds = input_bounds(*graph, {}, "target");
  ASSERT_EQ(bounds.size(), 1u) << "of a sum of inputs nothing is known";
  EXPECT_EQ(bounds[0].input, 0);
  EXPECT_EQ(bounds[0].node, "rows");
  EXPECT_TRUE(bounds[0].holds(9));
  EXPECT_TRUE(bounds[0].holds(-10));
  EXPECT_FALSE(bounds[0].holds(10));
  EXPECT_FALSE(bounds[0].holds(-11));
}

constexpr std::string_view real_ids_text = R"(graph ids(ids: f32[4,3] batch 0, marks: f32[4] batch 0) {
  table: f32[10,2] = param
  forward:
  whole: i32[4,3] = cast(ids) {to=@i32}
  rows: f32[4,3,2] = gather(table, whole) {axis=0}
  marked: bool[4] = cast(marks) {to=@bool}
  which: i64[4] = cast(marked) {to=@i64}
  more: f32[4,2] = gather(table, which) {axis=0}
  output rows = rows
  output more = more
}
)";

// Indices that come as real numbers, as Keras feeds them; truth values are other numbers than what they are made of.
TEST(InputBounds, FollowCastsOfRealNumbers) {
  auto graph = parse(real_ids_text);
  ASSERT_NE(graph, nullptr);
  const std::vector<InputBound> bounds = input_bounds(*graph, {}, "target");
  ASSERT_EQ(bounds.size(), 1u);
  EXPECT_EQ(bounds[0].input, 0);
  EXPECT_EQ(bounds[0].node, "rows");
  for (DType type : {DType::f32, DType::f64, DType::f16}) {
    Tensor ids({type, {4, 3}});
    ids.set(4, 9.7);
    EXPECT_EQ(find_out_of_bounds(bounds[0], ids), -1);
    ids.set(7, 10);
    EXPECT_EQ(find_out_of_bounds(bounds[0], ids), 7);
  }
  EXPECT_TRUE(bound_text(bounds[0], "10").starts_with("holds 10, which is not an index into 10 rows"));
}

constexpr std::string_view computed_ids_text = R"(graph ids(ids: i64[4,3] batch 0, n: i64[4] batch 0) {
  table: f32[10,2] = param
  one: i64[] = const i64[](1)
  ten: i64[] = const i64[](10)
  zero: i64[] = const i64[](0)
  offsets: i64[3] = const i64[3](0,4,7)
  forward:
  less_one: i64[4,3] = sub(ids, one)
  shifted: f32[4,3,2] = gather(table, less_one) {axis=0}
  placed: i64[4,3] = add(ids, offsets)
  own: f32[4,3,2] = gather(table, placed) {axis=0}
  negative: bool[4,3] = less(ids, zero)
  up: i64[4,3] = add(ids, ten)
  wrapped: i64[4,3] = where(negative, up, ids)
  turned: f32[4,3,2] = gather(table, wrapped) {axis=0}
  longest: i64[] = max_reduce(n) {axes=[0],keep=false}
  count: i64[] = trip_count(longest) {most=5,loop="turns"}
  runs: bool[] = less(zero, count)
  output shifted = shifted
  output own = own
  output turned = turned
  output runs = runs
}
)";

InputBound bound_of(const std::vector<InputBound>& bounds, std::string_view node) {
  for (const InputBound& bound : bounds) {
    if (bound.node == node) return bound;
  }
  ADD_FAILURE() << "nothing is known of " << node;
  return {};
}

// table[ids - 1], a place of its own for each column, and a negative index that the model itself makes one from the
// end: what is picked by is computed of each element, of a batch and of a sample alike.
TEST(InputBounds, FollowArithmeticOnEachElement) {
  auto graph = parse(computed_ids_text);
  ASSERT_NE(graph, nullptr);
  const std::vector<InputBound> bounds = input_bounds(*graph, {}, "target");
  ASSERT_EQ(bounds.size(), 4u);
  const InputBound shifted = bound_of(bounds, "shifted"), own = bound_of(bounds, "own"),
                   turned = bound_of(bounds, "turned");
  Tensor ids({DType::i64, {4, 3}});
  for (const InputBound& bound : {shifted, own, turned}) EXPECT_EQ(find_out_of_bounds(bound, ids), -1);
  ids.set_int(7, 10);
  EXPECT_EQ(find_out_of_bounds(shifted, ids), -1) << "10 - 1 is a row";
  EXPECT_EQ(find_out_of_bounds(own, ids), 7);
  EXPECT_EQ(find_out_of_bounds(turned, ids), 7);
  ids.set_int(7, 11);
  EXPECT_EQ(find_out_of_bounds(shifted, ids), 7);
  EXPECT_EQ(bound_text(shifted, ids, 7),
            "holds 11, of which the model makes the index 10, and that is out of range: it is not an index into 10 "
            "rows; they count from 0");
  ids.set_int(7, 5);
  EXPECT_EQ(find_out_of_bounds(own, ids), -1) << "5 + 4 is a row";
  ids.set_int(8, 5);
  EXPECT_EQ(find_out_of_bounds(own, ids), 8) << "5 + 7 is none";
  Tensor sample({DType::i64, {3}});
  sample.set_int(2, 3);
  EXPECT_EQ(find_out_of_bounds(own, sample), 2) << "3 + 7 is none, in a sample by itself too";
  ids.set_int(8, -10);
  EXPECT_EQ(find_out_of_bounds(turned, ids), -1);
  ids.set_int(8, -21);
  EXPECT_EQ(find_out_of_bounds(turned, ids), 8);
}

// More iterations than a loop is unrolled for, where the longest of a batch says how many.
TEST(InputBounds, HoldCountsOfIterations) {
  auto graph = parse(computed_ids_text);
  ASSERT_NE(graph, nullptr);
  const InputBound count = bound_of(input_bounds(*graph, {}, "target"), "count");
  EXPECT_EQ(count.input, 1);
  Tensor n({DType::i64, {4}});
  n.set_int(0, -7);
  n.set_int(1, 5);
  EXPECT_EQ(find_out_of_bounds(count, n), -1);
  n.set_int(2, 6);
  EXPECT_EQ(find_out_of_bounds(count, n), 2);
  EXPECT_EQ(bound_text(count, n, 2),
            "holds 6, more than the 5 iterations for which the loop turns is unrolled; max_trip_count "
            "(--max-trip-count N) allows more");
}

TEST(InputBounds, NameTheElement) {
  const InputBound bound{
      .input = 0, .range = {.low = 0, .high = 3, .ignored = -1, .what = "class of 3"}, .node = "loss"};
  for (DType type : {DType::i64, DType::i32, DType::i8, DType::u8}) {
    Tensor tensor({type, {4, 3}});
    EXPECT_EQ(find_out_of_bounds(bound, tensor), -1);
    tensor.set_int(7, 3);
    EXPECT_EQ(find_out_of_bounds(bound, tensor), 7);
    EXPECT_EQ(element_text(tensor.type(), 0, 7), "row 2");
    EXPECT_EQ(element_text(tensor.type(), 1, 7), "row 1");
    EXPECT_EQ(element_text(tensor.type(), -1, 7), "element 7");
  }
  EXPECT_EQ(bound_text(bound, "3"), "holds 3, which is not a class of 3 and not the ignored -1; they count from 0");
}

TEST(SampleDims, OutputsThatRestOnOtherSamplesStandNotAlone) {
  auto graph = parse(R"(graph mixed(x: f32[4,3] batch 0) {
  forward:
  total: f32[1,3] = sum(x) {axes=[0],keep=true}
  centred: f32[4,3] = sub(x, total)
  flat: f32[12] = reshape(x) {shape=[12]}
  turned: f32[3,4] = transpose(x) {perm=[1,0]}
  output centred = centred
  output flat = flat
  output turned = turned
  output total = total
}
)");
  ASSERT_NE(graph, nullptr);
  auto plan = decide({.graph = graph});
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const SampleDims dims = sample_dims(*plan);
  EXPECT_EQ(dims.batch, 4);
  EXPECT_EQ(dims.inputs, (std::vector<int>{0}));
  EXPECT_EQ(dims.outputs, (std::vector<int>{-1, 0, 1, -1}));
}

TEST(SampleDims, RowsAreFilledUpAndCutOff) {
  Tensor part({DType::i32, {2, 3}}), full({DType::i32, {2, 5}});
  for (int64_t i = 0; i < 6; ++i) part.set_int(i, i);
  pad_samples(part, 1, full);
  EXPECT_EQ(full.to_ints(), (std::vector<int64_t>{0, 1, 2, 2, 2, 3, 4, 5, 5, 5}));
  const Tensor back = first_samples(full, 1, 5, 3);
  EXPECT_TRUE(identical(back, part));
  Tensor rows({DType::i32, {6}});  // two numbers of each of three samples
  for (int64_t i = 0; i < 6; ++i) rows.set_int(i, i);
  EXPECT_EQ(first_samples(rows, 0, 3, 2).to_ints(), (std::vector<int64_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace epl::input_bounds_test
