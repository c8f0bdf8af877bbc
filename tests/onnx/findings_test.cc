// What a file's weights tell before training: tables, weights that are left out, numbers of a mask, 16 bits.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "frontends/onnx/weight_findings.h"
#include "tests/onnx/make_model.h"

namespace epl::onnx::findings_test {
namespace {

using namespace testing;

epl::Tensor filled(const Shape& shape, const std::function<double(int64_t row, int64_t column)>& value) {
  epl::Tensor out({DType::f32, shape});
  const int64_t columns = shape.back();
  for (int64_t i = 0; i < out.elements(); ++i) out.set(i, value(i / columns, i % columns));
  return out;
}
constexpr double pi = std::numbers::pi;
double hann(int64_t i, int64_t n) {
  return 0.5 - 0.5 * std::cos(2 * pi * static_cast<double>(i) / static_cast<double>(n));
}
double noise(int64_t row, int64_t column) {
  const double v = std::sin(static_cast<double>(row * 61 + column) * 12.9898) * 43758.5453;
  return v - std::floor(v) - 0.5;
}

TEST(WeightFindings, TablesAreToldFromWeights) {
  EXPECT_EQ(table_kind(filled({64}, [](int64_t, int64_t i) { return hann(i, 64); })), "a window");
  EXPECT_EQ(table_kind(filled({1, 65}, [](int64_t, int64_t i) { return hann(i, 64); })), "a window");
  EXPECT_EQ(table_kind(filled(
                {33, 1, 64},
                [](int64_t f, int64_t i) { return hann(i, 64) * std::cos(2 * pi * static_cast<double>(f * i) / 64); })),
            "a transform");
  EXPECT_EQ(table_kind(filled(
                {64, 33},
                [](int64_t i, int64_t f) { return hann(i, 64) * std::cos(2 * pi * static_cast<double>(f * i) / 64); })),
            "sinusoids");
  EXPECT_EQ(table_kind(filled({33, 64},
                              [](int64_t f, int64_t i) { return std::sin(2 * pi * static_cast<double>(f * i) / 64); })),
            "sinusoids");
  EXPECT_EQ(table_kind(filled({1, 100, 16},
                              [](int64_t p, int64_t c) {
                                return std::sin(static_cast<double>(p) * std::pow(10000, -static_cast<double>(c) / 16) +
                                                static_cast<double>(c % 2));
                              })),
            "sinusoids");
  EXPECT_EQ(table_kind(filled({10, 80},
                              [](int64_t f, int64_t i) {
                                return std::max(0.0, 1 - std::fabs(static_cast<double>(i - 7 * f - 4)) / 6);
                              })),
            "a bank of filters");

  EXPECT_EQ(table_kind(filled({4, 4}, [](int64_t r, int64_t c) { return c <= r ? 1.0 : 0.0; })), "a mask");
  EXPECT_EQ(
      table_kind(filled({1, 1, 8, 8},
                        [](int64_t r, int64_t c) { return c > r % 8 ? -std::numeric_limits<double>::infinity() : 0; })),
      "a mask");
  EXPECT_EQ(table_kind(filled({16}, [](int64_t, int64_t i) { return static_cast<double>(i); })),
            "evenly spaced numbers");
  EXPECT_EQ(table_kind(filled({1, 8}, [](int64_t, int64_t i) { return std::pow(2.0, static_cast<double>(-i)); })),
            "evenly spaced numbers");

  EXPECT_EQ(table_kind(filled({64}, noise)), "");
  EXPECT_EQ(table_kind(filled({32, 64}, noise)), "");
  EXPECT_EQ(table_kind(filled({64}, [](int64_t, int64_t) { return 1.0; })), "") << "a scale at its start";
  EXPECT_EQ(table_kind(filled({64}, [](int64_t, int64_t) { return 0.0; })), "") << "a bias at its start";
  EXPECT_EQ(table_kind(filled({32, 32}, [](int64_t, int64_t) { return 0.0; })), "");
  EXPECT_EQ(table_kind(filled({32, 32}, [](int64_t r, int64_t c) { return r == c ? 1.0 : 0.0; })), "") << "an identity";
}

std::string all_findings(const Message& bytes) {
  auto model = load(bytes);
  if (!model.ok()) return model.status().to_string();
  std::string out;
  for (const ModelFinding& finding : (*model)->findings()) out += cat(finding.where, ": ", finding.message, "\n");
  return out;
}

Message with(const std::vector<Message>& initializers, const std::vector<Message>& nodes) {
  Parts parts;
  parts.nodes = nodes;
  parts.initializers = initializers;
  parts.inputs = {port("x", {"n", "64"})};
  parts.outputs = {port("y", {})};
  return model(parts, {}, {.opset = 17});
}

TEST(WeightFindings, SayWhichOptionHelps) {
  // Under the name of a weight a table is trained, and under any other it is a constant.
  for (const std::string name : {"stft.weight", "stft.basis"}) {
    const std::string table = all_findings(with(
        {tensor(name, filled({64, 33},
                             [](int64_t i, int64_t f) { return std::cos(2 * pi * static_cast<double>(f * i) / 64); }))},
        {node("MatMul", {"x", name}, {"y"})}));
    EXPECT_NE(table.find(cat(name, ": it looks like a table, a transform")), std::string::npos) << table;
    EXPECT_NE(table.find(cat(name == "stft.weight" ? "--freeze '" : "--train-also '", name, "'")), std::string::npos)
        << table;
  }

  const std::string left_out =
      all_findings(with({tensor("fc.weight", filled({64, 8}, noise)), tensor("val_3", filled({8}, noise)),
                         tensor("val_4", filled({8}, noise))},
                        {node("MatMul", {"x", "fc.weight"}, {"h"}), node("Mul", {"h", "val_3"}, {"s"}),
                         node("Add", {"s", "val_4"}, {"y"})}));
  EXPECT_NE(left_out.find("2 tensors (16 numbers)"), std::string::npos) << left_out;
  EXPECT_NE(left_out.find("--train-also 'val_3'"), std::string::npos) << left_out;

  epl::Tensor damaged = filled({64, 8}, noise);
  damaged.set(5, std::numeric_limits<double>::quiet_NaN());
  const std::string mask = all_findings(with({tensor("W", damaged)}, {node("MatMul", {"x", "W"}, {"y"})}));
  EXPECT_NE(mask.find("W: it is used as a weight, but holds NaN"), std::string::npos) << mask;

  epl::Tensor half({DType::f16, {64, 8}});
  const std::string bits = all_findings(with({tensor("fc.weight", half)}, {node("MatMul", {"x", "fc.weight"}, {"y"})}));
  EXPECT_NE(bits.find("1 weights are f16"), std::string::npos) << bits;

  EXPECT_EQ(
      all_findings(with({tensor("fc.weight", filled({64, 8}, noise))}, {node("MatMul", {"x", "fc.weight"}, {"y"})})),
      "");
}

// A buffer of PyTorch's older exporter that stands last in its module, and so looks like a parameter.
TEST(WeightFindings, NameWhatMayBeFixed) {
  const auto findings = [](const std::string& producer) {
    Parts parts;
    parts.nodes = {node("MatMul", {"x", "fc.weight"}, {"h"}), node("MatMul", {"h", "blur.kernel"}, {"b"}),
                   node("MatMul", {"b", "vq.codebook"}, {"c"}), node("Mul", {"c", "head.gain"}, {"y"})};
    parts.initializers = {tensor("fc.weight", filled({64, 8}, noise)), tensor("blur.kernel", filled({8, 8}, noise)),
                          tensor("vq.codebook", filled({8, 8}, noise)), tensor("head.gain", filled({8}, noise))};
    parts.inputs = {port("x", {"n", "64"})};
    parts.outputs = {port("y", {})};
    return all_findings(model(parts, {}, {.opset = 17, .producer = producer}));
  };
  const std::string found = findings("pytorch");
  EXPECT_NE(found.find("blur.kernel: it and 1 more are trained, but called as what a module keeps fixed"),
            std::string::npos)
      << found;
  EXPECT_NE(found.find("--freeze 'blur.kernel' --freeze 'vq.codebook' leave them alone"), std::string::npos) << found;
  EXPECT_EQ(findings(""), "") << "of other files it is not known that names are those of a module";
}

// All that the module has was computed away.
TEST(WeightFindings, NothingLeftToTrainIsTold) {
  Parts parts;
  parts.nodes = {node("Mul", {"x", "val_0"}, {"h"}), node("Add", {"h", "val_1"}, {"y"})};
  parts.initializers = {tensor("val_0", filled({64}, noise)), tensor("val_1", filled({64}, noise))};
  parts.inputs = {port("x", {"n", "64"})};
  parts.outputs = {port("y", {})};
  parts.signature = "p_fc_weight: PARAMETER target='fc.weight'\np_fc_bias: PARAMETER target='fc.bias'";
  const std::string found = all_findings(model(parts, {}, {.opset = 17, .producer = "pytorch"}));
  EXPECT_NE(found.find("fc.weight: nothing is left to train: the module has 2 parameters, this one the first, and the "
                       "file stores none of them"),
            std::string::npos)
      << found;
  EXPECT_NE(found.find("optimize=False"), std::string::npos) << found;

  // What still stands where weights do is trained, under the exporter's name.
  parts.nodes = {node("MatMul", {"x", "val_0"}, {"h"}), node("Add", {"h", "val_1"}, {"y"})};
  parts.initializers = {tensor("val_0", filled({64, 8}, noise)), tensor("val_1", filled({8}, noise))};
  const std::string nameless = all_findings(model(parts, {}, {.opset = 17, .producer = "pytorch"}));
  EXPECT_NE(nameless.find("val_0: 1 weights (512 numbers) have lost their names"), std::string::npos) << nameless;
}

}  // namespace
}  // namespace epl::onnx::findings_test
