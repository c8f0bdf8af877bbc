// Exported files: each says in the JSON beside it how many of which meaning must be found. The rewritten graph computes
// what the file says, in float64.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "core/frontend/model.h"
#include "tests/rewrite/checked.h"

namespace epl::fixtures_test {
namespace {

namespace fs = std::filesystem;

fs::path fixtures() { return fs::path(EPL_SOURCE_DIR) / "tests/rewrite/fixtures"; }

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(fixtures())) {
    if (entry.path().extension() == ".onnx") all.push_back(entry.path().stem().string());
  }
  std::ranges::sort(all);
  return all;
}

// "attention": 2 and so on, of the object "find".
std::map<std::string, int> wanted(const std::string& name) {
  std::stringstream text;
  text << std::ifstream(fixtures() / (name + ".json")).rdbuf();
  std::string find = text.str();
  find.erase(0, find.find("\"find\""));
  find.erase(0, find.find('{'));
  std::map<std::string, int> counts;
  const std::regex entry("\"(\\w+)\":\\s*(\\d+)");
  for (std::sregex_iterator at(find.begin(), find.end(), entry), end; at != end; ++at)
    counts[(*at)[1]] = std::stoi((*at)[2]);
  return counts;
}

Tensor in_double(const Tensor& data) {
  if (data.empty() || data.dtype() != DType::f32) return data;
  Tensor wide({DType::f64, data.shape()});
  for (int64_t i = 0; i < data.elements(); ++i) wide.set(i, data.get(i));
  return wide;
}

// The same graph with float64 for float32.
Graph in_double(const Graph& graph) {
  Graph wide;
  std::vector<Value> now(graph.value_count());
  for (int i = 0; i < graph.value_count(); ++i) {
    const ValueInfo& info = graph.value(Value{i});
    if (info.kind == ValueKind::result) continue;
    TensorType type = info.type;
    if (type.dtype == DType::f32) type.dtype = DType::f64;
    now[i] = wide.add_leaf(info.kind, info.name, type, in_double(info.data));
  }
  for (const Node& old : graph.nodes()) {
    Node node = old;
    std::vector<const TensorType*> types;
    for (Value& input : node.inputs) {
      input = input ? now[input.index] : Value{};
      types.push_back(input ? &wide.type(input) : nullptr);
    }
    for (const Attributes::Entry& entry : old.attributes.entries()) {
      const DType* type = std::get_if<DType>(&entry.value);
      if (type && *type == DType::f32) node.attributes.set(entry.name, DType::f64);
    }
    auto outputs = infer_types(*node.op, node.attributes, types);
    if (!outputs.ok()) {
      ADD_FAILURE() << old.name << ": " << outputs.status().to_string();
      return wide;
    }
    outputs->resize(old.outputs.size());
    const NodeId made = wide.add_node(std::move(node), *std::move(outputs));
    for (size_t i = 0; i < old.outputs.size(); ++i) {
      if (old.outputs[i]) now[old.outputs[i].index] = wide.node(made).outputs[i];
    }
  }
  for (const Graph::Output& output : graph.outputs) wide.outputs.push_back({output.name, now[output.value.index]});
  return wide;
}

class Fixture : public testing::TestWithParam<std::string> {};

// As the counts are meant: a linear layer is one that carries a bias.
int count_meaning(const Graph& graph, const std::string& op) {
  if (op != "linear") return count_op(graph, op);
  int count = 0;
  for (const Node& node : graph.nodes()) count += node.op->name == op && node.inputs.size() > 2 && node.inputs[2];
  return count;
}

bool has_frontend() { return !frontend_table().rows.empty(); }

TEST_P(Fixture, HasWhatItMustHaveAndKeepsItsNumbers) {
  if (!has_frontend()) GTEST_SKIP() << "no frontend is built in";
  auto model = load_model((fixtures() / (GetParam() + ".onnx")).string());
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  auto graph = (*model)->bind({});
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  auto made = rewrite_graph(*graph);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  for (const auto& [op, count] : wanted(GetParam())) {
    EXPECT_EQ(count_meaning(*made, op), count) << op << " in\n" << print_graph(*made);
  }
  const Graph wide = in_double(*graph);
  auto again = rewrite_graph(wide);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  expect_equal(wide, *again, 1e-6);  // constants of a pattern came through float32
}

INSTANTIATE_TEST_SUITE_P(Files, Fixture, testing::ValuesIn(names()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace epl::fixtures_test
