// Large weights stay in their file until they are wanted; a file that changes under a model is an error wherever it is
// met.
#include "frontends/onnx/model_bytes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/onnx/make_model.h"
#include "tests/temporary_folder.h"

namespace epl::onnx::model_bytes_test {
namespace {

namespace fs = std::filesystem;
using testing::node;
using testing::port;

epl::Tensor large(float factor) {
  epl::Tensor out(TensorType{DType::f32, {300, 300}});  // 360 kB
  for (int64_t i = 0; i < out.elements(); ++i) out.set(i, factor * static_cast<float>(i % 97));
  return out;
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Stored : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = (folder_ / "m.onnx").string();
    // A parameter, a constant by its name, and the value of a Constant node, each too large to be read with the rest.
    const testing::Parts parts{
        .nodes = {node("MatMul", {"x", "layer.w"}, {"h"}),
                  node("Constant", {}, {"k"}, {testing::attribute("value", large(3))}), node("Add", {"h", "k"}, {"i"}),
                  node("Add", {"i", "onnx::Add_7"}, {"y"})},
        .initializers = {testing::tensor("layer.w", large(1)), testing::tensor("onnx::Add_7", large(2)),
                         testing::tensor("layer.b", epl::Tensor::from_floats({1}, {5}))},
        .inputs = {port("x", {"300", "300"})},
        .outputs = {port("y", {"300", "300"})}};
    bytes_ = testing::model(parts);
    std::ofstream(path_, std::ios::binary) << bytes_;
  }
  std::shared_ptr<const Model> load() {
    auto loaded = load_model(path_);
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    return *loaded;
  }
  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  std::string path_, bytes_;
};

TEST_F(Stored, IsReadWhenItIsWanted) {
  auto model = load();
  auto graph = model->bind({});
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  const epl::Tensor& weight = graph->value(graph->find("layer.w")).data;
  EXPECT_FALSE(weight.in_memory());
  EXPECT_TRUE(identical(weight, large(1)));
  auto from_memory = testing::import(bytes_, {});
  ASSERT_TRUE(from_memory.ok());
  EXPECT_TRUE(from_memory->value(from_memory->find("layer.w")).data.in_memory());
  int constants = 0;
  for (int i = 0; i < graph->value_count(); ++i) {
    const auto& info = graph->value(Value{i});
    if (info.kind != ValueKind::constant) continue;
    ASSERT_TRUE(info.data.in_memory());
    constants += identical(info.data, large(2)) || identical(info.data, large(3));
  }
  EXPECT_EQ(constants, 2);
}

TEST_F(Stored, TakesNoMemoryForWhatItLeavesInTheFile) {
  auto bytes = ModelBytes::open(*ModelSource::of_file(path_));
  ASSERT_TRUE(bytes.ok());
  ASSERT_EQ((*bytes)->bytes().size(), bytes_.size());
  size_t here = 0, in_file = 0;
  for (size_t i = 0; i < bytes_.size(); ++i) {
    here += (*bytes)->bytes()[i] != std::byte(0);
    in_file += bytes_[i] != 0;
  }
  EXPECT_LT(here, in_file / 3);  // zeros for the rest
  std::string all;
  ASSERT_TRUE((*bytes)->append(all, {reinterpret_cast<const char*>((*bytes)->bytes().data()), bytes_.size()}).ok());
  EXPECT_TRUE(all == bytes_);
}

TEST_F(Stored, IsSavedAsItWas) {
  auto model = load();
  const std::string to = (folder_ / "to.onnx").string();
  ASSERT_TRUE(model->save(to, {}).ok());
  EXPECT_TRUE(read(to) == bytes_);
  ASSERT_TRUE(model->save(path_, {{"layer.b", epl::Tensor::from_floats({1}, {6})}}).ok());  // onto itself
  EXPECT_EQ(read(path_).size(), bytes_.size());
  ASSERT_TRUE(model->save(to, {}).ok());  // the file that was loaded is still there for it
  EXPECT_TRUE(read(to) == bytes_);
}

TEST_F(Stored, AFileThatShrinksIsAnErrorAndNoSignal) {
  auto model = load();
  auto graph = model->bind({});
  ASSERT_TRUE(graph.ok());
  fs::resize_file(path_, 100);
  const auto read = graph->value(graph->find("layer.w")).data.load();
  EXPECT_EQ(read.status().code(), Code::io);
  EXPECT_NE(read.status().message().find(path_), std::string::npos) << read.status().message();
  EXPECT_EQ(model->bind({}).status().code(), Code::io);
  EXPECT_EQ(model->save((folder_ / "to.onnx").string(), {}).code(), Code::io);
  EXPECT_FALSE(fs::exists(folder_ / "to.onnx"));
}

TEST_F(Stored, AFileThatIsOverwrittenInPlaceIsAnError) {
  auto model = load();
  ::usleep(20000);  // beyond the file system's grain of time
  std::ofstream(path_, std::ios::binary) << bytes_;
  EXPECT_EQ(model->bind({}).status().code(), Code::io);
}

TEST_F(Stored, TruncationsAndChangedLengthsAreRefusedAsFromMemory) {
  for (size_t size = 0; size < bytes_.size(); size += bytes_.size() / 200 + 1) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes_.substr(0, size);
    const auto from_file = load_model(path_), from_memory = testing::load(bytes_.substr(0, size));
    ASSERT_EQ(from_file.ok(), from_memory.ok()) << size;
    if (!from_file.ok()) {
      EXPECT_NE(from_file.status().message().find(from_memory.status().message()), std::string::npos);
    }
  }
  for (size_t at = 0; at < 120; ++at) {  // the lengths of the outer messages, and whatever follows from them
    std::string damaged = bytes_;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x41);
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << damaged;
    EXPECT_EQ(load_model(path_).ok(), testing::load(damaged).ok()) << at;
  }
}

}  // namespace
}  // namespace epl::onnx::model_bytes_test
