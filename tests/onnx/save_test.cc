// Models written again: which bytes change, where data that lay beside a model go, and what files of spoilt exports are
// told.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/byte_writer.h"
#include "tests/onnx/make_model.h"
#include "tests/temporary_folder.h"

namespace epl::onnx::save_test {
namespace {

namespace fs = std::filesystem;
using testing::node;
using testing::port;

constexpr int32_t f32 = schema::TensorProto::DataType_FLOAT;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Saving : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "from");
    fs::create_directories(folder_ / "to");
  }

  // x w of a 2 x 2 weight, as `tensor` holds it, and a second weight that nothing replaces.
  std::shared_ptr<const Model> model(const std::string& tensor) {
    testing::Parts parts{
        .nodes = {node("MatMul", {"x", "layer.w"}, {"h"}), node("MatMul", {"h", "layer.v"}, {"y"})},
        .initializers = {tensor, testing::tensor("layer.v", epl::Tensor::from_floats({2, 2}, {1, 0, 0, 1}))},
        .inputs = {port("x", {"n", "2"})},
        .outputs = {port("y", {"n", "2"})}};
    std::ofstream(folder_ / "from/m.onnx", std::ios::binary) << testing::model(parts);
    return open(folder_ / "from/m.onnx");
  }
  std::shared_ptr<const Model> open(const fs::path& path) {
    auto loaded = load_model(path.string());
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    return loaded.ok() ? *loaded : nullptr;
  }
  // The value that a model at `path` starts from.
  epl::Tensor value(const fs::path& path, const char* name) {
    auto loaded = open(path);
    if (!loaded) return {};
    auto graph = loaded->bind({.symbols = {{"n", 1}}});
    EXPECT_TRUE(graph.ok()) << graph.status().to_string();
    return graph.ok() && graph->find(name) ? graph->value(graph->find(name)).data : epl::Tensor();
  }
  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

const epl::Tensor weight = epl::Tensor::from_floats({2, 2}, {1, 2, 3, 4});
const epl::Tensor other = epl::Tensor::from_floats({2, 2}, {-5, 6, -7, 8});

TEST_F(Saving, NothingReplacedIsTheSameFile) {
  auto m = model(testing::tensor("layer.w", weight));
  ASSERT_TRUE(m->save((folder_ / "to/m.onnx").string(), {}).ok());
  EXPECT_EQ(read(folder_ / "to/m.onnx"), read(folder_ / "from/m.onnx"));
}

TEST_F(Saving, AReplacedWeightChangesItsDataAndNoOtherByte) {
  auto m = model(testing::tensor("layer.w", weight));
  ASSERT_TRUE(m->save((folder_ / "to/m.onnx").string(), {{"layer.w", other}}).ok());
  std::string wanted = read(folder_ / "from/m.onnx");
  auto bytes = [](const epl::Tensor& t) {
    return std::string(static_cast<const char*>(t.data()), static_cast<size_t>(t.bytes()));
  };
  const size_t at = wanted.find(bytes(weight));
  ASSERT_NE(at, std::string::npos);
  wanted.replace(at, 16, bytes(other));
  EXPECT_EQ(read(folder_ / "to/m.onnx"), wanted);
  // Onto itself, while it is mapped.
  ASSERT_TRUE(m->save((folder_ / "from/m.onnx").string(), {{"layer.w", other}}).ok());
  EXPECT_EQ(read(folder_ / "from/m.onnx"), wanted);
}

TEST_F(Saving, NumbersInTypedFieldsAreReplacedToo) {
  std::string typed;
  {
    protozero::pbf_writer w(typed);
    for (int64_t dim : {2, 2}) w.add_int64(schema::TensorProto::dims, dim);
    w.add_int32(schema::TensorProto::data_type, f32);
    w.add_string(schema::TensorProto::name, "layer.w");
    const float numbers[] = {1, 2, 3, 4};
    w.add_packed_float(schema::TensorProto::float_data, std::begin(numbers), std::end(numbers));
  }
  auto m = model(typed);
  EXPECT_TRUE(identical(value(folder_ / "from/m.onnx", "layer.w"), weight));
  ASSERT_TRUE(m->save((folder_ / "to/m.onnx").string(), {{"layer.w", other}}).ok());
  EXPECT_TRUE(identical(value(folder_ / "to/m.onnx", "layer.w"), other));
}

TEST_F(Saving, DataBesideTheModelComeAlong) {
  {
    std::ofstream data(folder_ / "from/w.bin", std::ios::binary);
    data << "....";
    data.write(static_cast<const char*>(weight.data()), weight.bytes());
  }
  auto m = model(testing::external_tensor("layer.w", f32, {2, 2}, "w.bin", {{"offset", "4"}, {"length", "16"}}));
  ASSERT_TRUE(m);
  ASSERT_TRUE(m->save((folder_ / "to/kept.onnx").string(), {}).ok());
  ASSERT_TRUE(m->save((folder_ / "to/new.onnx").string(), {{"layer.w", other}}).ok());
  m.reset();
  fs::remove_all(folder_ / "from");  // the copies stand alone
  EXPECT_TRUE(fs::exists(folder_ / "to/kept.onnx.data"));
  EXPECT_TRUE(identical(value(folder_ / "to/kept.onnx", "layer.w"), weight));
  EXPECT_TRUE(identical(value(folder_ / "to/new.onnx", "layer.w"), other));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "to"), {}), 4);
}

TEST_F(Saving, AsAStreamItIsTheSameFile) {
  auto m = model(testing::tensor("layer.w", weight));
  for (const auto& replaced : {std::map<std::string, epl::Tensor>{}, {{"layer.w", other}}}) {
    ASSERT_TRUE(m->save((folder_ / "to/m.onnx").string(), replaced).ok());
    BytesWritten out;
    ASSERT_TRUE(m->write(out, replaced, {}).ok());
    EXPECT_EQ(out.text, read(folder_ / "to/m.onnx"));
  }
  FullWriter full(100);
  const Status status = m->write(full, {}, {});
  EXPECT_EQ(status.code(), Code::not_found);
  EXPECT_EQ(status.message(), "the bucket is gone");
}

TEST_F(Saving, AStreamTakesUpWhatLiesBesideTheModel) {
  std::ofstream(folder_ / "from/w.bin", std::ios::binary)
      .write(static_cast<const char*>(weight.data()), weight.bytes());
  auto m = model(testing::external_tensor("layer.w", f32, {2, 2}, "w.bin", {{"length", "16"}}));
  ASSERT_TRUE(m);
  BytesWritten out;
  ASSERT_TRUE(m->write(out, {}, {}).ok());
  std::ofstream(folder_ / "to/m.onnx", std::ios::binary) << out.text;
  m.reset();
  fs::remove_all(folder_ / "from");
  EXPECT_TRUE(identical(value(folder_ / "to/m.onnx", "layer.w"), weight));
}

TEST_F(Saving, WhatDoesNotFitIsRefusedAndWritesNothing) {
  auto m = model(testing::tensor("layer.w", weight));
  const std::string to = (folder_ / "to/m.onnx").string();
  Status wrong = m->save(to, {{"layer.w", epl::Tensor::from_floats({4}, {1, 2, 3, 4})}});
  EXPECT_NE(wrong.message().find("layer.w"), std::string::npos) << wrong.to_string();
  EXPECT_EQ(m->save(to, {{"layer.u", weight}}).code(), Code::not_found);
  EXPECT_FALSE(m->save((folder_ / "nowhere/m.onnx").string(), {}).ok());
  EXPECT_TRUE(fs::is_empty(folder_ / "to"));
}

// What PyTorch's exporters do by default is said, and what was exported with care is left alone.
TEST(Findings, OfExportsThatFoldedTheirParameters) {
  auto warned = [](const std::string& name, const char* what) {
    auto model = load_model(cat(EPL_SOURCE_DIR, "/tests/rewrite/fixtures/", name));
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    if (!model.ok()) return false;
    auto findings = (*model)->findings();
    return std::ranges::any_of(findings, [&](const ModelFinding& f) {
      return f.level == ModelFinding::Level::warning && f.message.find(what) != std::string::npos &&
             f.message.find("torch.onnx.export") != std::string::npos;
    });
  };
  for (const char* name : {"gpt2_eager_dynamo", "llama_eager_dynamo", "vit_eager_dynamo"}) {
    EXPECT_TRUE(warned(cat(name, ".onnx"), "lost their names")) << name;
    EXPECT_FALSE(warned(cat(name, "_raw.onnx"), "lost their names")) << name;
  }
  EXPECT_FALSE(warned("resnet_legacy.onnx", "frozen"));  // exported for training
}

TEST(Findings, OfBatchNormsThatDoNotLearn) {
  auto ones = [](const char* name) { return testing::tensor(name, epl::Tensor::from_floats({2}, {1, 1})); };
  auto findings = [&](int64_t training) {
    auto model =
        testing::load(testing::model({.nodes = {node("BatchNormalization", {"x", "scale", "bias", "mean", "var"}, {"y"},
                                                     {testing::attribute("training_mode", training)})},
                                      .initializers = {ones("scale"), ones("bias"), ones("mean"), ones("var")},
                                      .inputs = {port("x", {"n", "2"})},
                                      .outputs = {port("y", {"n", "2"})}}));
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    return model.ok() ? (*model)->findings() : std::vector<ModelFinding>();
  };
  EXPECT_TRUE(findings(1).empty());
  ASSERT_EQ(findings(0).size(), 1u);
  EXPECT_EQ(findings(0)[0].where, "node_y");
  EXPECT_NE(findings(0)[0].message.find("frozen"), std::string::npos);
}

TEST(Findings, OfWhatRoundsWhatTheModelComputes) {
  const auto model = testing::load(
      testing::model({.nodes = {node("QuantizeLinear", {"x", "s"}, {"a"}), node("DequantizeLinear", {"a", "s"}, {"b"}),
                                node("QuantizeLinear", {"b", "s"}, {"c"}), node("DequantizeLinear", {"c", "s"}, {"y"})},
                      .initializers = {testing::tensor("s", epl::Tensor::from_floats({}, {0.5F}))},
                      .inputs = {port("x", {"n", "2"})},
                      .outputs = {port("y", {"n", "2"})}}));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const std::vector<ModelFinding> findings = (*model)->findings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].where, "node_a");
  EXPECT_TRUE(findings[0].message.starts_with("2 QuantizeLinear node(s), this one the first, round"))
      << findings[0].message;
}

}  // namespace
}  // namespace epl::onnx::save_test
