// Files whose batch is fixed, at another batch: every sample gives what the file as it is gives for it alone.
#include "frontends/onnx/free_batch.h"

#include <gtest/gtest.h>

#include "core/ir/evaluate.h"
#include "tests/onnx/make_model.h"

namespace epl::onnx::free_batch_test {
namespace {

using namespace testing;

epl::Tensor numbers(const Shape& shape, int64_t seed) {
  epl::Tensor out({DType::f32, shape});
  for (int64_t i = 0; i < out.elements(); ++i) out.set(i, static_cast<double>((i * 37 + seed * 11) % 19) / 19 - 0.5);
  return out;
}

// The output for x, whose samples lie in dimension 0, bound at as many as x has.
Result<epl::Tensor> run(const Model& model, const epl::Tensor& x) {
  Binding binding{.input_shapes = {{"x", x.shape()}}, .free_batch = true};
  EPL_ASSIGN(epl::Graph graph, model.bind(binding));
  EPL_ASSIGN(auto values, evaluate_graph(graph, {{graph.find("x"), x}}));
  return values[static_cast<size_t>(graph.outputs[0].value.index)];
}

// `from` samples at a time, the file's batch, against all at once.
void same_for_each_sample(const Message& bytes, const Shape& sample, int64_t from, int64_t to) {
  auto model = load(bytes);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  Shape all = sample, piece = sample;
  all.insert(all.begin(), to);
  piece.insert(piece.begin(), from);
  const epl::Tensor x = numbers(all, 3);
  auto whole = run(**model, x);
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  for (int64_t first = 0; first < to; first += from) {
    epl::Tensor part({DType::f32, piece});
    for (int64_t i = 0; i < part.elements(); ++i) part.set(i, x.get(first * element_count(sample) + i));
    auto alone = run(**model, part);
    ASSERT_TRUE(alone.ok()) << alone.status().to_string();
    const int64_t size = alone->elements() / from * first;
    for (int64_t i = 0; i < alone->elements(); ++i)
      ASSERT_NEAR(whole->get(size + i), alone->get(i), 1e-6) << "sample " << first << ", number " << i;
  }
}

Message of(const std::vector<Message>& nodes, const std::vector<Message>& constants,
           const std::vector<std::string>& input) {
  Parts parts;
  parts.nodes = nodes;
  parts.initializers = constants;
  parts.inputs = {port("x", input)};
  parts.outputs = {port("y", {})};
  return model(parts, {}, {.opset = 17});
}
Message ints(const std::string& name, const Ints& values) { return tensor(name, epl::Tensor::from_ints(values)); }

TEST(FreeBatch, ReshapesThatNameIt) {
  const std::vector<Message> nodes = {node("Reshape", {"x", "flat"}, {"a"}), node("MatMul", {"a", "w"}, {"b"}),
                                      node("Reshape", {"b", "back"}, {"y"})};
  const Message w = tensor("w", numbers({12, 6}, 1));
  same_for_each_sample(of(nodes, {ints("flat", {1, 12}), ints("back", {1, 2, 3}), w}, {"1", "3", "4"}), {3, 4}, 1, 5);
  same_for_each_sample(of(nodes, {ints("flat", {1, -1}), ints("back", {1, -1, 3}), w}, {"1", "3", "4"}), {3, 4}, 1, 5);
  same_for_each_sample(of(nodes, {ints("flat", {-1, 12}), ints("back", {2, 2, 3}), w}, {"2", "3", "4"}), {3, 4}, 2, 4);
}

TEST(FreeBatch, ReshapesThatMergeIt) {
  const std::vector<Message> nodes = {node("Reshape", {"x", "rows"}, {"a"}), node("MatMul", {"a", "w"}, {"b"}),
                                      node("Reshape", {"b", "back"}, {"y"})};
  const Message w = tensor("w", numbers({4, 6}, 1));
  same_for_each_sample(of(nodes, {ints("rows", {3, 4}), ints("back", {1, 3, 6}), w}, {"1", "3", "4"}), {3, 4}, 1, 5);
  same_for_each_sample(of(nodes, {ints("rows", {6, 4}), ints("back", {2, 3, 6}), w}, {"2", "3", "4"}), {3, 4}, 2, 6);
}

TEST(FreeBatch, ReshapesOfTimeMajorValues) {
  const std::vector<Message> nodes = {node("Transpose", {"x"}, {"t"}, {attribute("perm", Ints{1, 0, 2})}),
                                      node("Reshape", {"t", "rows"}, {"a"}), node("MatMul", {"a", "w"}, {"b"}),
                                      node("Reshape", {"b", "back"}, {"c"}),
                                      node("Transpose", {"c"}, {"y"}, {attribute("perm", Ints{1, 0, 2})})};
  const Message w = tensor("w", numbers({4, 6}, 1));
  same_for_each_sample(of(nodes, {ints("rows", {3, 4}), ints("back", {3, 1, 6}), w}, {"1", "3", "4"}), {3, 4}, 1, 5);
  same_for_each_sample(of(nodes, {ints("rows", {6, 4}), ints("back", {3, 2, 6}), w}, {"2", "3", "4"}), {3, 4}, 2, 6);
}

TEST(FreeBatch, WhatIsTheSameForEverySampleIsRepeated) {
  // A token before the others, and a slice that takes all samples.
  const std::vector<Message> nodes = {node("Concat", {"token", "x"}, {"a"}, {attribute("axis", int64_t{1})}),
                                      node("Slice", {"a", "starts", "ends"}, {"y"})};
  same_for_each_sample(of(nodes, {tensor("token", numbers({1, 1, 4}, 1)), ints("starts", {0, 0}), ints("ends", {1, 2})},
                          {"1", "3", "4"}),
                       {3, 4}, 1, 5);
}

// What an exporter has computed for each of the file's samples: a mask, positions, a token before the others.
TEST(FreeBatch, WhatTheFileRepeatsIsTakenOnce) {
  epl::Tensor whole({DType::i64, {2, 3, 4}});
  for (int64_t i = 0; i < whole.elements(); ++i) whole.set_int(i, i % 12);
  const Message mask = tensor("whole", whole), cast = node("Cast", {"whole"}, {"mask"}, {attribute("to", int64_t{1})});
  same_for_each_sample(of({cast, node("Add", {"x", "mask"}, {"y"})}, {mask}, {"2", "3", "4"}), {3, 4}, 2, 6);
  const std::vector<Message> positions = {node("Gather", {"table", "ids"}, {"rows"}),
                                          node("Mul", {"rows", "x"}, {"y"})};
  const epl::Tensor ids = epl::Tensor::from_ints({4, 0, 2, 4, 0, 2});
  epl::Tensor of_two({DType::i64, {2, 3}});
  for (int64_t i = 0; i < 6; ++i) of_two.set_int(i, ids.get_int(i));
  same_for_each_sample(of(positions, {tensor("table", numbers({5, 4}, 1)), tensor("ids", of_two)}, {"2", "3", "4"}),
                       {3, 4}, 2, 4);
  const std::vector<Message> token = {node("Expand", {"token", "sizes"}, {"all"}),
                                      node("Concat", {"all", "x"}, {"y"}, {attribute("axis", int64_t{1})})};
  same_for_each_sample(of(token, {tensor("token", numbers({1, 1, 4}, 1)), ints("sizes", {2, 1, 4})}, {"2", "3", "4"}),
                       {3, 4}, 2, 6);
  const std::vector<Message> state = {cast, node("Shape", {"x"}, {"shape"}), node("Expand", {"mask", "shape"}, {"all"}),
                                      node("Sub", {"x", "all"}, {"y"})};
  same_for_each_sample(of(state, {mask}, {"2", "3", "4"}), {3, 4}, 2, 6);
}

// A number of its own for each of the file's samples says nothing of others.
TEST(FreeBatch, WhatDiffersBetweenSamplesIsRefused) {
  epl::Tensor each({DType::i64, {2, 3, 4}});
  for (int64_t i = 0; i < each.elements(); ++i) each.set_int(i, i);
  const std::vector<Message> nodes = {node("Cast", {"whole"}, {"each"}, {attribute("to", int64_t{1})}),
                                      node("Add", {"x", "each"}, {"y"})};
  for (const Message& bytes : {of(nodes, {tensor("whole", each)}, {"2", "3", "4"}),
                               of({nodes[1]}, {tensor("each", numbers({2, 3, 4}, 1))}, {"2", "3", "4"})}) {
    auto model = load(bytes);
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    EXPECT_FALSE(run(**model, numbers({6, 3, 4}, 3)).ok());
  }
}

TEST(FreeBatch, RoomThatSamplesAreScatteredOver) {
  const std::vector<Message> nodes = {
      node("ConstantOfShape", {"size"}, {"room"}), node("ArgMax", {"x"}, {"best"}, {attribute("axis", int64_t{1})}),
      node("ReduceMax", {"x"}, {"most"}, {attribute("axes", Ints{1})}),
      node("ScatterElements", {"room", "best", "most"}, {"y"}, {attribute("axis", int64_t{1})})};
  same_for_each_sample(of(nodes, {ints("size", {2, 4})}, {"2", "4"}), {4}, 2, 6);
}

// Elements of each sample by tuples that count the samples.
TEST(FreeBatch, TuplesThatCountSamples) {
  const auto taken = [](const Ints& tuples, const Shape& shape) {
    epl::Tensor indices({DType::i64, shape});
    for (int64_t i = 0; i < indices.elements(); ++i) indices.set_int(i, tuples[static_cast<size_t>(i)]);
    return of({node("GatherND", {"x", "at"}, {"y"})}, {tensor("at", indices)}, {"2", "3", "4"});
  };
  same_for_each_sample(taken({0, 2, 1, 2}, {2, 2}), {3, 4}, 2, 6);
  same_for_each_sample(taken({0, 2, 0, 0, 1, 2, 1, 0}, {2, 2, 2}), {3, 4}, 2, 4);
  // Another element of the second sample: what a third one wants is not known.
  auto model = load(taken({0, 2, 1, 1}, {2, 2}));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  auto other = run(**model, numbers({4, 3, 4}, 1));
  EXPECT_TRUE(!other.ok() || other->shape()[0] == 2);
}

TEST(FreeBatch, IndicesThatCountOnFromSampleToSample) {
  const auto in_order = [](const Shape& shape) {
    epl::Tensor all({DType::i64, shape});
    for (int64_t i = 0; i < all.elements(); ++i) all.set_int(i, i);
    return all;
  };
  const auto taken = [](const Ints& indices, const Shape& shape, int64_t axis) {
    epl::Tensor at({DType::i64, shape});
    for (int64_t i = 0; i < at.elements(); ++i) at.set_int(i, indices[static_cast<size_t>(i)]);
    return of({node("Flatten", {"x"}, {"f"}, {attribute("axis", axis)}), node("Reshape", {"f", "all"}, {"r"}),
               node("Gather", {"r", "at"}, {"y"})},
              {tensor("at", at), ints("all", {6})}, {"2", "3"});
  };
  same_for_each_sample(taken({0, 1, 2, 3, 4, 5}, {2, 1, 3}, 1), {3}, 2, 6);
  same_for_each_sample(taken({2, 0, 5, 3}, {2, 2}, 1), {3}, 2, 4);
  same_for_each_sample(of({node("Reshape", {"x", "all"}, {"r"}), node("Gather", {"r", "at"}, {"y"})},
                          {tensor("at", in_order({1, 1, 3})), ints("all", {3})}, {"1", "3"}),
                       {3}, 1, 4);
  // The second sample's are not the first one's moved on: of a third nothing is known.
  auto model = load(taken({2, 0, 5, 4}, {2, 2}, 1));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  auto other = run(**model, numbers({4, 3}, 1));
  EXPECT_TRUE(!other.ok() || other->shape()[0] == 2);
}

TEST(FreeBatch, SizesOfAResize) {
  const std::vector<Message> nodes = {node("Resize", {"x", "", "", "sizes"}, {"y"})};
  same_for_each_sample(of(nodes, {ints("sizes", {1, 2, 6, 6})}, {"1", "2", "3", "3"}), {2, 3, 3}, 1, 3);
}

TEST(FreeBatch, ShapesThatHideItAreRefused) {
  EXPECT_FALSE(freed_shape({2, 3, 4}, {4, 3, 4}, 1, {3, 8}, {2, 4}).ok());
  EXPECT_FALSE(freed_shape({2, 2, 4}, {4, 4, 4}, 1, {4, 4}, {2, 4}).ok()) << "in two dimensions at once";
  auto made = freed_shape({5, 2, 3}, {5, 4, 3}, 1, {10, 3}, {2, 4});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->shape, (Shape{20, 3}));
  EXPECT_EQ(made->outer, 5) << "samples are not the major part";
  auto back = freed_shape({10, 3}, {20, 3}, 5, {5, 2, 3}, {2, 4});
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->shape, (Shape{5, 4, 3}));
}

}  // namespace
}  // namespace epl::onnx::free_batch_test
