// ONNX files as models: what they bind to, what a damaged or hostile one is told, and what is written again.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <protozero/pbf_writer.hpp>

#include "core/ir/evaluate.h"
#include "core/ir/op.h"
#include "frontends/onnx/model.h"
#include "frontends/onnx/schema.h"
#include "tests/temporary_folder.h"

namespace epl::onnx::files_test {
namespace {

namespace fs = std::filesystem;

fs::path data() { return fs::path(EPL_SOURCE_DIR) / "tests/onnx/data"; }

std::shared_ptr<const Model> load(const fs::path& path) {
  auto model = load_model(path.string());
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return model.ok() ? *model : nullptr;
}

epl::Graph bound(const Model& model, const Binding& binding) {
  auto graph = model.bind(binding);
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_TRUE(!graph.ok() || verify(*graph).ok());
  return graph.ok() ? *std::move(graph) : epl::Graph();
}

// What the model of a file computes from x.
epl::Tensor result(const fs::path& path, const epl::Tensor& x) {
  auto model = load(path);
  if (!model) return {};
  epl::Graph graph = bound(*model, {.input_shapes = {{"x", x.shape()}}});
  auto values = evaluate_graph(graph, {{graph.find("x"), x}});
  EXPECT_TRUE(values.ok()) << values.status().to_string();
  return values.ok() ? (*values)[graph.outputs[0].value.index] : epl::Tensor();
}

std::vector<float> floats(const epl::Tensor& t) { return {t.as<float>().begin(), t.as<float>().end()}; }

const epl::Tensor x23 = epl::Tensor::from_floats({2, 3}, {1, -2, 3, -4, 5, -6});

TEST(OnnxFile, BindsSymbolsAndKeepsNames) {
  auto model = load(data() / "linear.onnx");
  ASSERT_TRUE(model);
  ASSERT_EQ(model->inputs().size(), 1u);
  EXPECT_EQ(model->inputs()[0].dims[0].symbol, "batch");
  epl::Graph graph = bound(*model, {.symbols = {{"batch", 5}}});
  EXPECT_EQ(graph.type(graph.find("x")).shape, (Shape{5, 3}));
  EXPECT_EQ(graph.leaves(ValueKind::parameter).size(), 2u);
  EXPECT_EQ(graph.value(graph.find("fc.weight")).kind, ValueKind::parameter);
  EXPECT_EQ(graph.value(graph.find("x")).batch_dim, 0);
  EXPECT_EQ(graph.outputs[0].name, "y");
  const std::vector<float> y = floats(result(data() / "linear.onnx", x23));
  const std::vector<float> wanted = {0.9f, 0.5f, 1.85f, 3.2f};  // relu(w x + b) of the first row
  ASSERT_EQ(y.size(), 8u);
  for (size_t k = 0; k < wanted.size(); ++k) EXPECT_NEAR(y[k], wanted[k], 1e-6);
}

TEST(OnnxFile, AMissingSymbolIsNamed) {
  auto graph = load(data() / "linear.onnx")->bind({});
  ASSERT_FALSE(graph.ok());
  EXPECT_NE(graph.status().message().find("x[0] (\"batch\")"), std::string::npos) << graph.status().message();
}

TEST(OnnxFile, ShapeArithmeticIsFolded) {
  auto model = load(data() / "shapes.onnx");
  epl::Graph graph = bound(*model, {.symbols = {{"batch", 2}}});
  for (const epl::Node& node : graph.nodes())
    EXPECT_TRUE(node.name == "last" || node.op->name == "reshape") << node.name;
  EXPECT_EQ(floats(result(data() / "shapes.onnx", x23)), (std::vector<float>{2, -4, 6, -8, 10, -12}));
}

TEST(OnnxFile, FunctionsAreInlinedWithTheirAttributes) {
  EXPECT_EQ(floats(result(data() / "functions.onnx", x23)), (std::vector<float>{1, -0.25f, 3, -0.5f, 5, -0.75f}));
}

TEST(OnnxFile, ABranchIsChosenByWhatIsKnown) {
  EXPECT_EQ(floats(result(data() / "branch.onnx", x23)), (std::vector<float>{-1, 2, -3, 4, -5, 6}));
  EXPECT_EQ(floats(result(data() / "branch.onnx", epl::Tensor::from_floats({1, 3}, {1, -2, 3}))),
            (std::vector<float>{1, 2, 3}));
}

TEST(OnnxFile, EveryEncodingIsRead) {
  // The last column of x plus [1, -1, 3].
  EXPECT_EQ(floats(result(data() / "encodings.onnx", x23)), (std::vector<float>{4, 2, 6, -5, -7, -3}));
}

TEST(OnnxFile, BatchNormMovesItsStatisticsAsPyTorchDoes) {
  auto model = load(data() / "batch_norm.onnx");
  epl::Graph graph = bound(*model, {.symbols = {{"batch", 2}}});
  EXPECT_EQ(graph.leaves(ValueKind::parameter).size(), 2u);
  EXPECT_EQ(graph.leaves(ValueKind::buffer).size(), 2u);
  ASSERT_EQ(graph.updates.size(), 2u);
  auto values =
      evaluate_graph(graph, {{graph.find("x"), epl::Tensor::from_floats({2, 2, 2}, {1, 2, 0, 0, 3, 4, 0, 4})}});
  ASSERT_TRUE(values.ok()) << values.status().to_string();
  // Channel 0 holds 1..4: mean 2.5, unbiased variance 5/3; momentum 0.1 in PyTorch's counting.
  EXPECT_NEAR((*values)[graph.updates[0].next.index].get(0), 0.25, 1e-6);
  EXPECT_NEAR((*values)[graph.updates[1].next.index].get(0), 0.9 + 0.1 * 5 / 3, 1e-6);
  EXPECT_EQ(bound(*model, {.symbols = {{"batch", 2}}, .mode = Binding::Mode::evaluate}).updates.size(), 0u);
}

struct Hostile {
  const char* file;
  Code code;
  const char* says;
};
class HostileFile : public ::testing::TestWithParam<Hostile> {};

TEST_P(HostileFile, IsRefusedWithTheReason) {
  auto model = load_model((data() / GetParam().file).string());
  Status status = model.status();
  if (model.ok()) status = (*model)->bind({.symbols = {{"batch", 2}}}).status();
  EXPECT_EQ(status.code(), GetParam().code) << status.to_string();
  EXPECT_NE(status.to_string().find(GetParam().says), std::string::npos) << status.to_string();
}

INSTANTIATE_TEST_SUITE_P(
    Data, HostileFile,
    ::testing::Values(Hostile{"truncated.onnx", Code::invalid_model, "byte"},
                      Hostile{"use_before_definition.onnx", Code::invalid_model, "\"later\""},
                      Hostile{"defined_twice.onnx", Code::invalid_model, "second"},
                      Hostile{"huge_dims.onnx", Code::invalid_model, "huge.weight"},
                      Hostile{"too_few_numbers.onnx", Code::invalid_model, "big.weight"},
                      Hostile{"calls_itself.onnx", Code::invalid_model, "me"},
                      Hostile{"unfolding.onnx", Code::invalid_model, "unfold"},
                      Hostile{"external_up.onnx", Code::invalid_model, "leave the model's folder"},
                      Hostile{"external_absolute.onnx", Code::invalid_model, "leave the model's folder"},
                      Hostile{"external_short.onnx", Code::invalid_model, "fc.weight"},
                      Hostile{"external_wrong_length.onnx", Code::invalid_model, "fc.weight"},
                      Hostile{"opset_old.onnx", Code::unsupported, "opset 6"},
                      Hostile{"wrong_type.onnx", Code::invalid_argument, "sum"},
                      Hostile{"baked_batch.onnx", Code::invalid_model, "flatten"},
                      Hostile{"unknown_ops.onnx", Code::unsupported, "Frobnicate (node one"},
                      Hostile{"unknown_ops.onnx", Code::unsupported, "acme.Gizmo (node two"}),
    [](const auto& info) { return fs::path(info.param.file).stem().string() + std::to_string(info.index); });

TEST(OnnxSave, ReplacesWeightsAndNothingElse) {
  const TemporaryFolder folder;
  auto model = load(data() / "linear.onnx");
  epl::Tensor bias = epl::Tensor::from_floats({4}, {10, 20, 30, 40});
  ASSERT_TRUE(model->save(folder / "out.onnx", {{"fc.bias", bias}}).ok());
  auto again = load(folder / "out.onnx");
  ASSERT_TRUE(again);
  epl::Graph graph = bound(*again, {.symbols = {{"batch", 1}}}), before = bound(*model, {.symbols = {{"batch", 1}}});
  EXPECT_TRUE(identical(graph.value(graph.find("fc.bias")).data, bias));
  EXPECT_TRUE(identical(graph.value(graph.find("fc.weight")).data, before.value(before.find("fc.weight")).data));
  // With its own values the file comes back byte for byte in length.
  ASSERT_TRUE(model->save(folder / "same.onnx", {{"fc.bias", before.value(before.find("fc.bias")).data}}).ok());
  EXPECT_EQ(fs::file_size(folder / "same.onnx"), fs::file_size(data() / "linear.onnx"));
  EXPECT_EQ(model->save(folder / "out.onnx", {{"fc.bais", bias}}).code(), Code::not_found);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / ""), {}), 2);  // nothing is left beside them
}

TEST(OnnxExternal, ALinkMayNotLeadOut) {
  const TemporaryFolder folder;
  std::ofstream(folder / "secret") << std::string(48, 'x');
  fs::create_directory(folder / "model");
  fs::create_symlink(folder / "secret", folder / "model/secret");
  std::string bytes;
  {
    std::ifstream file(data() / "external_up.onnx", std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  const size_t at = bytes.find("../secret");  // a name as long that stays inside takes its place
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 9, ".//secret");
  std::ofstream(folder / "model/m.onnx", std::ios::binary) << bytes;
  auto model = load_model(folder / "model/m.onnx");
  Status status = model.ok() ? (*model)->bind({.symbols = {{"batch", 2}}}).status() : model.status();
  EXPECT_NE(status.to_string().find("leads out"), std::string::npos) << status.to_string();
}

// A file of 3 GiB, nearly all of it holes: only its frame is read.
TEST(OnnxFile, BeyondTwoGigabytesIsReadWithoutItsData) {
  const TemporaryFolder folder;
  const int64_t bytes = int64_t{3} << 30;
  // Messages of one file add up: behind a small model stands a second piece of its graph, an initialiser of int8 whose
  // raw data is the hole.
  const std::vector<int64_t> dims = {3, int64_t{1} << 30};
  std::string tensor, piece, start;
  protozero::pbf_writer writer(tensor);
  writer.add_packed_int64(schema::TensorProto::dims, dims.begin(), dims.end());
  writer.add_int32(schema::TensorProto::data_type, schema::TensorProto::DataType_INT8);
  writer.add_string(schema::TensorProto::name, "big");
  auto open_field = [](std::string& out, uint32_t field, uint64_t length) {
    protozero::add_varint_to_buffer(&out, (uint64_t{field} << 3) | 2);
    protozero::add_varint_to_buffer(&out, length);
  };
  open_field(tensor, schema::TensorProto::raw_data, static_cast<uint64_t>(bytes));
  open_field(piece, schema::GraphProto::initializer, tensor.size() + static_cast<uint64_t>(bytes));
  {
    std::ifstream file(data() / "linear.onnx", std::ios::binary);
    start.assign(std::istreambuf_iterator<char>(file), {});
  }
  open_field(start, schema::ModelProto::graph, piece.size() + tensor.size() + static_cast<uint64_t>(bytes));
  start += piece + tensor;
  std::ofstream(folder / "big.onnx", std::ios::binary) << start;
  ASSERT_EQ(truncate((folder / "big.onnx").c_str(), static_cast<off_t>(start.size()) + bytes), 0);
  auto model = load(folder / "big.onnx");
  ASSERT_TRUE(model);
  ASSERT_EQ(model->initializers().size(), 3u);
  EXPECT_EQ(model->initializers()[2].type.bytes(), bytes);
  EXPECT_TRUE(model->findings().size() < 10);
}

}  // namespace
}  // namespace epl::onnx::files_test
