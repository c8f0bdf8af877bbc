// Initialisers that a file stores sparse: the same numbers as stored dense, trained like them, and written dense.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/ir/evaluate.h"
#include "tests/onnx/make_model.h"
#include "tests/temporary_folder.h"

namespace epl::onnx::sparse_test {
namespace {

using namespace testing;

Message sparse(const std::string& name, const epl::Tensor& values, const epl::Tensor& indices, const Ints& dims) {
  Message out;
  protozero::pbf_writer w(out);
  w.add_message(schema::SparseTensorProto::values, tensor(name, values));
  w.add_message(schema::SparseTensorProto::indices, tensor("", indices));
  for (int64_t dim : dims) w.add_int64(schema::SparseTensorProto::dims, dim);
  return out;
}

// y = x W of W[2,3], which is stored as `stored` under a field of the graph.
Message model_with(uint32_t field, const Message& stored) {
  Message graph;
  protozero::pbf_writer w(graph);
  w.add_message(schema::GraphProto::node, node("MatMul", {"x", "w.weight"}, {"y"}));
  w.add_message(field, stored);
  w.add_message(schema::GraphProto::input, port("x", {"n", "2"}));
  w.add_message(schema::GraphProto::output, port("y", {"n", "3"}));
  Message out;
  protozero::pbf_writer m(out);
  m.add_int64(schema::ModelProto::ir_version, 10);
  protozero::pbf_writer id(m, schema::ModelProto::opset_import);
  id.add_int64(schema::OperatorSetIdProto::version, 20);
  id.commit();
  m.add_message(schema::ModelProto::graph, graph);
  return out;
}

const epl::Tensor numbers = epl::Tensor::from_floats({2}, {5, 7});

TEST(Sparse, IsReadAsDense) {
  epl::Tensor pairs({DType::i64, {2, 2}});
  const int64_t places[] = {0, 2, 1, 1};
  for (int64_t i = 0; i < 4; ++i) pairs.set_int(i, places[i]);
  for (const epl::Tensor& indices : {epl::Tensor::from_ints({2, 4}), pairs}) {
    auto graph =
        import(model_with(schema::GraphProto::sparse_initializer, sparse("w.weight", numbers, indices, {2, 3})));
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    const std::vector<Value> parameters = graph->leaves(ValueKind::parameter);
    ASSERT_EQ(parameters.size(), 1u);
    EXPECT_EQ(graph->value(parameters[0]).name, "w.weight");
    auto value = graph->value(parameters[0]).data.load();
    ASSERT_TRUE(value.ok());
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(value->get(i), i == 2 ? 5 : i == 4 ? 7 : 0);
  }
}

TEST(Sparse, IsWrittenDenseOnceItHasChanged) {
  const TemporaryFolder folder;
  const std::string path = folder / "m.onnx";
  auto made = load(model_with(schema::GraphProto::sparse_initializer,
                              sparse("w.weight", numbers, epl::Tensor::from_ints({2, 4}), {2, 3})));
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const epl::Tensor trained = epl::Tensor::from_floats({2, 3}, {1, 2, 3, 4, 5, 6});
  for (bool changed : {false, true}) {
    const std::map<std::string, epl::Tensor> replaced = {{"w.weight", trained}};
    const Status saved = (*made)->save(path, changed ? replaced : std::map<std::string, epl::Tensor>());
    ASSERT_TRUE(saved.ok()) << saved.to_string();
    auto again = load_model(path);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    auto graph = (*again)->bind({.symbols = {{"n", 2}}});
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    const std::vector<Value> parameters = graph->leaves(ValueKind::parameter);
    ASSERT_EQ(parameters.size(), 1u);
    auto value = graph->value(parameters[0]).data.load();
    ASSERT_TRUE(value.ok());
    EXPECT_EQ(value->get(5), changed ? 6 : 0);
    EXPECT_EQ(value->get(4), changed ? 5 : 7);
  }
}

TEST(Sparse, DamagedOnesAreNamed) {
  const auto refused = [](const epl::Tensor& values, const epl::Tensor& indices, const Ints& dims) {
    auto made = load(model_with(schema::GraphProto::sparse_initializer, sparse("w.weight", values, indices, dims)));
    return made.ok() ? std::string("read") : made.status().to_string();
  };
  EXPECT_NE(refused(numbers, epl::Tensor::from_ints({2, 6}), {2, 3}).find("index 1 lies outside"), std::string::npos);
  EXPECT_NE(refused(numbers, epl::Tensor::from_ints({-1, 4}), {2, 3}).find("index 0 lies outside"), std::string::npos);
  EXPECT_NE(refused(numbers, epl::Tensor::from_ints({1}), {2, 3}).find("do not fit"), std::string::npos);
  EXPECT_NE(refused(numbers, epl::Tensor::from_floats({2}, {1, 2}), {2, 3}).find("do not fit"), std::string::npos);
  EXPECT_NE(refused(numbers, epl::Tensor::from_ints({1, 2}), {1 << 20, 1 << 20}).find("up to 268435456 are read"),
            std::string::npos);
  EXPECT_NE(refused(numbers, epl::Tensor::from_ints({1, 2}), {-2, 3}).find("w.weight"), std::string::npos);
}

}  // namespace
}  // namespace epl::onnx::sparse_test
