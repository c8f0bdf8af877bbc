// Operators where they have no derivative, forward and backward, against PyTorch in float64 (singular.txt, made by
// generate_singular.py). Every row of the importer, and every op that is written in others or has a gradient, is there.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "core/autodiff/gradient.h"
#include "core/ir/evaluate.h"
#include "core/ir/text.h"
#include "core/rewrite/rewrite.h"
#include "frontends/onnx/onnx_op.h"
#include "tests/onnx/make_model.h"

namespace epl::onnx::singular_test {
namespace {

struct SingularCase {
  int line = 0;
  int64_t opset = 0;
  bool rewritten = false;          // it means what PyTorch does once the rewrites have put it together
  std::vector<std::string> nodes;  // as they are written
  std::vector<std::pair<std::string, epl::Tensor>> inputs, gradients;
  epl::Tensor dy, out;
};
struct SingularTable {
  std::vector<SingularCase> cases;
  std::set<std::string> smooth;
};

epl::Tensor read_value(std::string_view text) {
  auto value = parse_attribute(text);
  EXPECT_TRUE(value.ok() && std::holds_alternative<epl::Tensor>(*value)) << text;
  return value.ok() ? std::get<epl::Tensor>(*value) : epl::Tensor();
}

SingularTable read_table() {
  std::ifstream file(std::string(EPL_SOURCE_DIR) + "/tests/onnx/singular.txt");
  SingularTable table;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line);
    std::string kind, name, value;
    words >> kind;
    if (kind == "case") {
      table.cases.push_back({.line = number,
                             .opset = std::stoll(line.substr(line.find('=') + 1)),
                             .rewritten = line.ends_with(" rewritten")});
    }
    if (kind == "node") table.cases.back().nodes.push_back(line.substr(5));
    if (kind == "dy") table.cases.back().dy = read_value(line.substr(3));
    if (kind == "out") table.cases.back().out = read_value(line.substr(4));
    if (kind == "in" || kind == "grad") {
      words >> name >> value;
      (kind == "in" ? table.cases.back().inputs : table.cases.back().gradients).emplace_back(name, read_value(value));
    }
    if (kind == "smooth") {
      words >> name;
      table.smooth.insert(name.substr(0, name.size() - 1));
    }
  }
  return table;
}

testing::Message attribute_message(const Attributes::Entry& entry) {
  if (const auto* value = std::get_if<int64_t>(&entry.value)) return testing::attribute(entry.name, *value);
  if (const auto* value = std::get_if<double>(&entry.value))
    return testing::attribute(entry.name, static_cast<float>(*value));
  if (const auto* value = std::get_if<Ints>(&entry.value)) return testing::attribute(entry.name, *value);
  return testing::attribute(entry.name, std::get<std::string>(entry.value));
}

std::string operator_of(const std::string& node) { return node.substr(0, node.find(' ')); }

// "Clip x _ high -> y {}"
testing::Message node_message(const std::string& line) {
  const size_t brace = line.find('{');
  std::istringstream words(line.substr(0, brace));
  std::string op, word;
  testing::Names inputs, results;
  words >> op;
  for (bool given = false; words >> word;) {
    if (word == "->") {
      given = true;
    } else {
      (given ? results : inputs).push_back(word == "_" ? "" : word);
    }
  }
  std::vector<testing::Message> messages;
  const std::string attributes = line.substr(brace);
  TextReader reader(attributes);
  reader.next_line();
  auto parsed = reader.attributes();
  EXPECT_TRUE(parsed.ok()) << line << ": " << parsed.status().to_string();
  if (parsed.ok())
    for (const Attributes::Entry& entry : parsed->entries()) messages.push_back(attribute_message(entry));
  return testing::node(op, inputs, results, messages);
}

// Those that are trained, and what comes with a batch, are inputs; other lists are of the file.
Result<epl::Graph> graph_of(const SingularCase& c) {
  testing::Parts parts;
  for (const std::string& line : c.nodes) parts.nodes.push_back(node_message(line));
  for (const auto& [name, value] : c.inputs) {
    const bool trained = std::ranges::any_of(c.gradients, [&](const auto& g) { return g.first == name; });
    std::vector<std::string> dims;
    for (int64_t size : value.shape()) dims.push_back(std::to_string(size));
    if (trained || name == "t") {
      parts.inputs.push_back(testing::port(name, dims, data_type_of(value.dtype())));
    } else {
      parts.initializers.push_back(testing::tensor(name, value));
    }
  }
  parts.outputs = {testing::port("y", {}, schema::TensorProto::DataType_DOUBLE)};
  return testing::import(testing::model(parts, {}, {.opset = c.opset}));
}

// A result as far as PyTorch has a number, a gradient as far as that is finite.
void expect_same(const epl::Tensor& got, const epl::Tensor& expected, bool is_gradient) {
  ASSERT_EQ(got.type(), expected.type());
  for (int64_t i = 0; i < got.elements(); ++i) {
    const double a = got.get(i), b = expected.get(i);
    if (is_gradient ? !std::isfinite(b) : std::isnan(b)) continue;
    const bool same = a == b || std::abs(a - b) <= 1e-12 * (1 + std::abs(b));
    EXPECT_TRUE(same) << "element " << i << ": " << a << ", PyTorch has " << b;
  }
}

void expect_pytorchs(epl::Graph graph, const SingularCase& c) {
  Builder b(graph);
  const Var y = b.var(graph.outputs[0].value);
  Ints axes;
  for (int d = 0; d < y.ndim(); ++d) axes.push_back(d);
  b.set_scope("loss");
  const Value dy = graph.add_input("dy", y.type());
  const Var weighted = y * b.var(dy), loss = axes.empty() ? weighted : b.sum(weighted, axes, false);
  ASSERT_TRUE(b.status().ok()) << b.status().to_string();
  std::map<Value, epl::Tensor> leaves = {{dy, c.dy.reshaped(y.shape())}};
  for (const auto& [name, value] : c.inputs)
    if (const Value v = graph.find(name); v && graph.value(v).kind == ValueKind::input) leaves[v] = value;
  std::vector<Value> wanted;
  for (const auto& [name, value] : c.gradients) wanted.push_back(graph.find(name));
  auto gradients = add_gradients(graph, loss.value(), wanted);
  ASSERT_TRUE(gradients.ok()) << gradients.status().to_string();
  auto all = evaluate_graph(graph, leaves);
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  {
    SCOPED_TRACE("the result");
    expect_same((*all)[y.value().index], c.out.reshaped(y.shape()), false);
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE(cat("the gradient of ", c.gradients[i].first));
    epl::Tensor zeros(c.gradients[i].second.type());
    expect_same(gradients->values[i] ? (*all)[gradients->values[i].index] : zeros, c.gradients[i].second, true);
  }
}

TEST(SingularPoints, HavePyTorchsGradients) {
  const SingularTable table = read_table();
  ASSERT_GT(table.cases.size(), 100u);
  for (const SingularCase& c : table.cases) {
    SCOPED_TRACE(cat("singular.txt:", c.line, ": ", join(c.nodes, "; ")));
    auto graph = graph_of(c);
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    if (!c.rewritten) expect_pytorchs(*graph, c);
    SCOPED_TRACE("after the rewrites");
    auto rewritten = rewrite_graph(*graph);
    ASSERT_TRUE(rewritten.ok()) << rewritten.status().to_string();
    expect_pytorchs(*std::move(rewritten), c);
  }
}

TEST(SingularPoints, OfEveryOperatorAreHere) {
  const SingularTable table = read_table();
  std::set<std::string> here = table.smooth;
  for (const SingularCase& c : table.cases) {
    for (const std::string& node : c.nodes) here.insert(operator_of(node));
    auto graph = graph_of(c);
    ASSERT_TRUE(graph.ok()) << c.line << ": " << graph.status().to_string();
    for (const epl::Node& node : graph->nodes()) here.insert(node.op->name);
    auto rewritten = rewrite_graph(*graph);
    ASSERT_TRUE(rewritten.ok()) << c.line << ": " << rewritten.status().to_string();
    for (const epl::Node& node : rewritten->nodes()) here.insert(node.op->name);
  }
  const char* told = " has neither a case nor a reason to have none; see tests/onnx/generate_singular.py";
  for (const OnnxOpRow& row : onnx_op_table().rows())
    EXPECT_TRUE(here.contains(row.name)) << "operator " << row.name << told;
  for (const OpDef* op : op_table().all()) {
    const bool asked = op->gradient || op->body;
    EXPECT_TRUE(!asked || here.contains(op->name)) << "op " << op->name << told;
  }
}

}  // namespace
}  // namespace epl::onnx::singular_test
