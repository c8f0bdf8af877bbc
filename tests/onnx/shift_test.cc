// BitShift by any amount, against the operator's definition; the official tests have no uint64 with its highest bit
// set.
#include <gtest/gtest.h>

#include "core/ir/evaluate.h"
#include "tests/onnx/make_model.h"

namespace epl::onnx::shift_test {
namespace {

using namespace testing;

// What an input of one type shifted to the right by another becomes.
epl::Tensor shifted_right(const epl::Tensor& x, const epl::Tensor& by) {
  const int32_t type = data_type_of(x.dtype());
  const std::string n = std::to_string(x.elements());
  const Message bytes = model({.nodes = {node("BitShift", {"x", "by"}, {"y"}, {attribute("direction", "RIGHT")})},
                               .inputs = {port("x", {n}, type), port("by", {n}, type)},
                               .outputs = {port("y", {n}, type)}});
  auto loaded = OnnxModel::load_bytes(std::as_bytes(std::span(bytes.data(), bytes.size())));
  EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
  auto graph = (*loaded)->bind({});
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  auto values = evaluate_graph(*graph, {{graph->find("x"), x}, {graph->find("by"), by}});
  EXPECT_TRUE(values.ok()) << values.status().to_string();
  return (*values)[graph->outputs[0].value.index];
}

epl::Tensor integers(DType type, const std::vector<int64_t>& values) {
  epl::Tensor made({type, {static_cast<int64_t>(values.size())}});
  for (size_t i = 0; i < values.size(); ++i) made.set_int(static_cast<int64_t>(i), values[i]);
  return made;
}

const std::vector<int64_t> amounts = {0, 1, 5, 62, 63, 64, 100, -1};

TEST(BitShift, BringsTheSignOfAnInt64In) {
  for (int64_t value : {int64_t{-8}, int64_t{8}, INT64_MIN, int64_t{-1}}) {
    const epl::Tensor y =
        shifted_right(integers(DType::i64, std::vector<int64_t>(amounts.size(), value)), integers(DType::i64, amounts));
    for (size_t i = 0; i < amounts.size(); ++i) {
      const bool beyond = amounts[i] < 0 || amounts[i] > 63;
      EXPECT_EQ(y.get_int(static_cast<int64_t>(i)), beyond ? (value < 0 ? -1 : 0) : value >> amounts[i])
          << value << " by " << amounts[i];
    }
  }
}

TEST(BitShift, BringsZerosIntoAUint64) {
  for (uint64_t value : {uint64_t{0xf000000000000001}, uint64_t{1} << 63, uint64_t{12345}}) {
    const epl::Tensor x = integers(DType::u64, std::vector<int64_t>(amounts.size(), static_cast<int64_t>(value)));
    const epl::Tensor y = shifted_right(x, integers(DType::u64, amounts));  // the last amount is 2^64 - 1
    for (size_t i = 0; i < amounts.size(); ++i) {
      const bool beyond = amounts[i] < 0 || amounts[i] > 63;
      EXPECT_EQ(static_cast<uint64_t>(y.get_int(static_cast<int64_t>(i))), beyond ? 0 : value >> amounts[i])
          << value << " by " << amounts[i];
    }
  }
}

}  // namespace
}  // namespace epl::onnx::shift_test
