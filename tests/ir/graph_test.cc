// Names of nodes, and what their random numbers follow from.
#include "core/ir/graph.h"

#include <gtest/gtest.h>

#include "core/ir/evaluate.h"
#include "core/ir/op.h"

namespace epl::graph_test {
namespace {

NodeId add_dropout(Graph& graph, Value x, const std::string& key = "") {
  Node node{.name = "drop", .op = &op_named("dropout")};
  EXPECT_TRUE(complete_attributes(*node.op, node.attributes).ok());
  node.inputs = {x, Value{}};
  node.key = key;
  const TensorType type = graph.type(x);
  return graph.add_node(std::move(node), {type, {DType::boolean, type.shape}}, {});
}

Tensor result(const std::vector<Tensor>& values, const Graph& graph, NodeId n) {
  return values[static_cast<size_t>(graph.node(n).outputs[0].index)];
}

struct Made {
  Graph graph;
  NodeId first, second, again;

  Made() {
    const Value x = graph.add_constant("x", [] {
      Tensor ones({DType::f32, {16}});
      for (int64_t i = 0; i < 16; ++i) ones.set(i, 1);
      return ones;
    }());
    first = add_dropout(graph, x);
    second = add_dropout(graph, x);
    again = add_dropout(graph, x, graph.node(first).key_name());
    for (const NodeId n : {first, second, again})
      graph.outputs.push_back({graph.node(n).name, graph.node(n).outputs[0]});
  }
};

TEST(GraphNames, OfNodesAreUnique) {
  Made made;
  EXPECT_EQ(made.graph.node(made.first).name, "drop");
  EXPECT_EQ(made.graph.node(made.second).name, "drop_1");
  EXPECT_EQ(made.graph.node(made.again).name, "drop_2");
  EXPECT_TRUE(verify(made.graph).ok());
  made.graph.node(made.again).name = "drop_1";
  const Status status = verify(made.graph);
  EXPECT_EQ(status.code(), Code::internal);
  EXPECT_NE(status.message().find("two nodes are named drop_1"), std::string::npos) << status.message();
}

TEST(GraphNames, ANodeDrawsItsOwnNumbersAndOneThatRepeatsItTheSame) {
  const Made made;
  const auto values = evaluate_graph(made.graph, {}, 7);
  ASSERT_TRUE(values.ok()) << values.status().to_string();
  const Tensor first = result(*values, made.graph, made.first);
  EXPECT_FALSE(identical(first, result(*values, made.graph, made.second)));
  EXPECT_TRUE(identical(first, result(*values, made.graph, made.again)));
}

TEST(GraphNames, KeysAreOfTheText) {
  const Made made;
  const std::string text = print_graph(made.graph);
  EXPECT_NE(text.find(" key drop\n"), std::string::npos) << text;
  auto parsed = parse_graph(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(print_graph(*parsed), text);
  EXPECT_EQ(parsed->node(made.again).key_name(), "drop");
}

}  // namespace
}  // namespace epl::graph_test
