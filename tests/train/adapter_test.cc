// Low-rank adapters by the reference of their graph in float64, against PyTorch (see adapter_reference.py).
#include "core/train/adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/base/json.h"
#include "core/ir/builder.h"
#include "core/ir/evaluate.h"
#include "core/train/train_step.h"

namespace epl::adapter_test {
namespace {

constexpr int64_t batch = 4, rank = 2;

Tensor series(Shape shape, int64_t seed) {
  Tensor data({DType::f64, std::move(shape)});
  for (int64_t i = 0; i < data.elements(); ++i)
    data.set(i, static_cast<double>((i * 37 + seed * 11 + 5) % 101) / 101 - 0.5);
  return data;
}

// A convolution, a layer whose weight is PyTorch's [out, in] behind a transpose, and one whose weight is [in, out]
// without a name.
Graph model() {
  Graph graph;
  Builder b(graph);
  const auto parameter = [&](const char* name, Shape shape, int64_t seed) {
    Tensor data = series(std::move(shape), seed);
    return b.var(graph.add_leaf(ValueKind::parameter, name, data.type(), data));
  };
  Var x = b.var(graph.add_input("x", {DType::f64, {batch, 2, 5, 5}}, 0));
  b.set_scope("/net/conv/Conv");
  Var h =
      b.emit("conv", {x, parameter("net.conv.weight", {3, 2, 3, 3}, 1)},
             {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}, {"dilations", Ints{1, 1}}, {"groups", int64_t{1}}});
  h = b.reshape(b.unary("relu", h), {batch, 27});
  b.set_scope("/net/first/MatMul");
  h = b.tanh(b.matmul(h, b.transpose(parameter("net.first.weight", {6, 27}, 2), {1, 0})) +
             parameter("net.first.bias", {6}, 3));
  b.set_scope("/net/last/MatMul");
  h = b.matmul(h, parameter("onnx::MatMul_31", {6, 4}, 4));
  EXPECT_TRUE(b.status().ok()) << b.status().to_string();
  graph.outputs = {{"logits", h.value()}};
  return graph;
}

AdapterOptions options(std::vector<std::string> patterns) {
  AdapterOptions out;
  for (std::string& pattern : patterns) out.specs.push_back({std::move(pattern), rank, 3.0, 0});
  return out;
}

const std::vector<std::string> modules = {"net.conv", "net.first", "net.last"};

std::map<Value, Tensor> leaves_of(const Graph& graph) {
  std::map<Value, Tensor> out;
  for (Value state : graph.leaves(ValueKind::state)) out[state] = Tensor(graph.type(state));
  for (Value p : graph.leaves(ValueKind::parameter))
    out[p] = graph.value(p).data.empty() ? Tensor(graph.type(p)) : graph.value(p).data;
  return out;
}
// Neither half of an adapter zero, so that everything has a gradient.
void set_adapters(const std::vector<Adapter>& adapters, const Graph& graph, std::map<Value, Tensor>& leaves) {
  int64_t seed = 5;
  for (const Adapter& one : adapters) {
    for (const std::string& name : {one.a, one.b})
      leaves[graph.find(name)] = series(graph.type(graph.find(name)).shape, seed++);
  }
}
Tensor run(const Graph& graph, const std::map<Value, Tensor>& leaves) {
  auto values = evaluate_graph(graph, leaves);
  EXPECT_TRUE(values.ok()) << values.status().to_string();
  return values.ok() ? (*values)[graph.outputs[0].value.index] : Tensor();
}
double norm(const Tensor& t) {
  double sum = 0;
  for (int64_t i = 0; i < t.elements(); ++i) sum += t.get(i) * t.get(i);
  return std::sqrt(sum);
}
double difference(const Tensor& a, const Tensor& b) {
  double most = 0;
  for (int64_t i = 0; i < a.elements(); ++i) most = std::max(most, std::fabs(a.get(i) - b.get(i)));
  return most;
}

TEST(Adapters, TrainToTheNumbersOfPyTorch) {
  auto adapted = insert_adapters(model(), options({"net.conv", "first", "*last"}), true);
  ASSERT_TRUE(adapted.ok()) << adapted.status().to_string();
  ASSERT_EQ(adapted->adapters.size(), 3u);
  TrainOptions how;
  how.optimizer = "sgd";
  how.optimizer_options = {{"lr", 0.5}};
  how.report_gradient_norms = true;
  for (const Adapter& one : adapted->adapters) how.adapters.insert(how.adapters.end(), {one.a, one.b});
  auto step = build_train_step(adapted->graph, how);
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_EQ(step->trained.size(), 6u);
  EXPECT_EQ(step->untrained.size(), 4u);  // weights and a bias
  const Graph& graph = step->graph;
  std::map<Value, Tensor> leaves = leaves_of(graph);
  set_adapters(adapted->adapters, graph, leaves);
  const double losses[] = {1.4541250015113514, 1.4816521653885926, 1.3696615568945738};
  const double gradients[] = {0.13255750889220583,  0.12594098777718726, 0.21710610883892101,
                              0.071707000846616964, 0.15333695420314597, 0.1360393350330813};
  const double norms[] = {1.7341939066928662, 0.66664845246745474, 2.1265993552987821,
                          1.0479370313152847, 1.0657565583585351,  0.8099771843455208};
  for (int64_t s = 0; s < 3; ++s) {
    leaves[graph.find("x")] = series({batch, 2, 5, 5}, 20 + s);
    Tensor target({DType::i64, {batch}});
    for (int64_t i = 0; i < batch; ++i) target.set_int(i, (i * 3 + s) % 4);
    leaves[graph.find("target")] = target;
    for (const HostScalar& scalar : step->scalars)
      leaves[scalar.value] = Tensor::scalar(graph.type(scalar.value).dtype, scalar.at({.step = s}));
    auto values = evaluate_graph(graph, leaves);
    ASSERT_TRUE(values.ok()) << values.status().to_string();
    for (const Graph::Output& output : graph.outputs) {
      const double got = (*values)[output.value.index].get(0);
      if (output.name == "loss") {
        EXPECT_NEAR(got, losses[s], 1e-12);
      }
      for (size_t i = 0; s == 0 && i < 6; ++i) {
        const Adapter& one = adapted->adapters[i / 2];
        if (output.name == "gradient_norm:" + (i % 2 == 0 ? one.a : one.b)) {
          EXPECT_NEAR(got, gradients[i], 1e-12) << output.name;
        }
      }
    }
    for (const Graph::Update& update : graph.updates) leaves[update.state] = (*values)[update.next.index];
  }
  for (size_t i = 0; i < 6; ++i) {
    const Adapter& one = adapted->adapters[i / 2];
    EXPECT_NEAR(norm(leaves[graph.find(i % 2 == 0 ? one.a : one.b)]), norms[i], 1e-12) << i;
  }
}

TEST(Adapters, BeginAsNoChangeAndMergeIntoTheirWeights) {
  const Graph plain = model();
  auto adapted = insert_adapters(plain, options({"net.*"}), false);
  ASSERT_TRUE(adapted.ok()) << adapted.status().to_string();
  std::map<Value, Tensor> base = leaves_of(plain), leaves = leaves_of(adapted->graph);
  base[plain.find("x")] = leaves[adapted->graph.find("x")] = series({batch, 2, 5, 5}, 20);
  EXPECT_EQ(difference(run(plain, base), run(adapted->graph, leaves)), 0);
  set_adapters(adapted->adapters, adapted->graph, leaves);
  const Tensor beside = run(adapted->graph, leaves);
  EXPECT_GT(difference(run(plain, base), beside), 0.1);
  for (size_t i = 0; i < 3; ++i) {
    const Adapter& one = adapted->adapters[i];
    EXPECT_EQ(one.module, modules[i]);
    EXPECT_EQ(one.a, "base_model.model." + modules[i] + ".lora_A.weight");
    Tensor& weight = base[plain.find(one.weight)];
    weight = *merge_adapter(one, weight, leaves[adapted->graph.find(one.a)], leaves[adapted->graph.find(one.b)]).load();
  }
  EXPECT_LT(difference(run(plain, base), beside), 1e-12);
}

// A weight that an exporter has renamed belongs to the layer of the bias beside it; its node's path may lack part of
// the module's name.
TEST(Adapters, FindTheModuleOfAWeightByItsBias) {
  Graph graph;
  Builder b(graph);
  Var x = b.var(graph.add_input("x", {DType::f64, {batch, 3}}, 0));
  b.set_scope("/layer/MatMul");
  Var y = b.emit("linear", {x, b.var(graph.add_leaf(ValueKind::parameter, "onnx::MatMul_9", {DType::f64, {3, 5}})),
                            b.var(graph.add_leaf(ValueKind::parameter, "net.1.layer.bias", {DType::f64, {5}}))});
  graph.outputs = {{"y", y.value()}};
  auto made = insert_adapters(graph, options({"*"}), false);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  ASSERT_EQ(made->adapters.size(), 1u);
  EXPECT_EQ(made->adapters[0].module, "net.1.layer");
  EXPECT_TRUE(made->adapters[0].transposed);
}

TEST(Adapters, BeginAtTheirSeedAsPeftDoes) {
  const auto start = [](uint64_t seed, const std::string& name) {
    AdapterOptions how = options({"*"});
    how.seed = seed;
    auto made = insert_adapters(model(), how, true);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made->graph.value(made->graph.find(name)).data;
  };
  const std::string first = "base_model.model.net.first.lora_A.weight";
  const Tensor a = start(1, first);
  EXPECT_EQ(a.shape(), (Shape{rank, 27}));
  EXPECT_TRUE(identical(a, start(1, first)));
  EXPECT_FALSE(identical(a, start(2, first)));
  double most = 0;
  for (int64_t i = 0; i < a.elements(); ++i) most = std::max(most, std::fabs(a.get(i)));
  EXPECT_LE(most, 1 / std::sqrt(27.0));  // kaiming_uniform_(a=sqrt(5))
  EXPECT_GT(most, 0.9 / std::sqrt(27.0));
  EXPECT_TRUE(start(1, "base_model.model.net.first.lora_B.weight").empty());  // zeros
}

TEST(Adapters, APatternThatAdaptsNothingSaysWhy) {
  const auto refused = [](const Graph& graph, std::vector<std::string> patterns) {
    auto made = insert_adapters(graph, options(std::move(patterns)), true);
    return made.ok() ? std::string("accepted") : made.status().message();
  };
  EXPECT_EQ(refused(model(), {"net.conv", "frist"}),
            "the adapters \"frist\" match no layer; did you mean first? There are 3 with a matrix or a convolution, "
            "such as net.conv, net.first, net.last");
  EXPECT_NE(refused(model(), {"fir*"}).find("match no layer; *.fir* would. There are 3"), std::string::npos)
      << refused(model(), {"fir*"});
  EXPECT_NE(refused(model(), {"other"}).find("match no layer; there are 3"), std::string::npos)
      << refused(model(), {"other"});
  EXPECT_NE(refused(model(), {"net.first.bias"}).find("match no layer: net.first.bias is not the second operand"),
            std::string::npos)
      << refused(model(), {"net.first.bias"});
  Graph tied = model();  // the weight of a layer is an output besides
  tied.outputs.push_back({"table", tied.find("net.first.weight")});
  EXPECT_NE(refused(tied, {"first"}).find("it is the output table"), std::string::npos) << refused(tied, {"first"});
  EXPECT_EQ(refused(tied, {"net.*"}), "accepted");
}

TEST(Adapters, WhatAPatternMeansAndLeavesOutIsTold) {
  Graph graph = model();
  Builder b(graph);
  b.set_scope("/net/apart/Conv");
  const TensorType type{DType::f64, {2, 1, 3, 3}};
  Var y =
      b.emit("conv", {b.var(graph.find("x")), b.var(graph.add_leaf(ValueKind::parameter, "net.apart.weight", type))},
             {{"strides", Ints{1, 1}}, {"pads", Ints{0, 0, 0, 0}}, {"dilations", Ints{1, 1}}, {"groups", int64_t{2}}});
  ASSERT_TRUE(b.status().ok()) << b.status().to_string();
  graph.outputs.push_back({"apart", y.value()});
  auto made = insert_adapters(graph, options({"net.*"}), true);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->adapters.size(), 3u);
  EXPECT_EQ(
      made->notes,
      (std::vector<std::string>{"the adapters \"net.*\" leave out net.apart.weight: it is a convolution in groups"}));
  made = insert_adapters(graph, options({"apart"}), true);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("net.apart.weight: it is a convolution in groups"), std::string::npos)
      << made.status().message();
  AdapterOptions high = options({"last"});
  high.specs[0].rank = 3;  // 3 * (6 + 4) numbers beside 24
  made = insert_adapters(model(), high, true);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(
      made->notes,
      (std::vector<std::string>{
          "an adapter with more numbers than its weight saves nothing: onnx::MatMul_31 f64[6,4] has 24, rank 3 30"}));
}

TEST(Adapters, RefuseNumbersThatMeanNothing) {
  for (const auto& [rank, alpha, dropout] : {std::tuple(int64_t{0}, 1.0, 0.0),
                                             {int64_t{-1}, 1.0, 0.0},
                                             {INT64_MAX, 1.0, 0.0},
                                             {int64_t{1}, 0.0, 0.0},
                                             {int64_t{1}, -1.0, 0.0},
                                             {int64_t{1}, NAN, 0.0},
                                             {int64_t{1}, INFINITY, 0.0},
                                             {int64_t{1}, 1.0, 1.0},
                                             {int64_t{1}, 1.0, -0.1},
                                             {int64_t{1}, 1.0, NAN}}) {
    AdapterOptions how;
    how.specs = {{"*", rank, alpha, dropout}};
    EXPECT_FALSE(insert_adapters(model(), how, true).ok()) << rank << " " << alpha << " " << dropout;
  }
}

// What is trained beside adapters goes with them as whole modules; PEFT has no place for the bias of an adapted layer
// or a weight without a name.
TEST(Adapters, NameTheModulesTrainedBesideThem) {
  auto made = insert_adapters(model(), options({"first"}), true);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const TrainedModules found =
      trained_modules(made->adapters,
                      {made->adapters[0].a, made->adapters[0].b, "net.head.weight", "net.head.bias", "net.first.bias",
                       "onnx::MatMul_31", "net.last.bias", "table"},
                      {"net.head.weight", "net.head.bias", "net.first.weight", "net.first.bias", "onnx::MatMul_31",
                       "net.last.bias", "table"});
  EXPECT_EQ(found.modules, std::vector<std::string>{"net.head"});
  EXPECT_EQ(found.left_out, (std::vector<std::string>{"net.first.bias", "onnx::MatMul_31", "net.last.bias", "table"}));
}

TEST(Adapters, HaveTheConfigurationThatPeftReads) {
  AdapterOptions how = options({"first", "*"});
  how.specs[1].rank = 4;
  auto made = insert_adapters(model(), how, true);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  auto read = parse_json(adapter_config(made->adapters, {"head"}));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  const Json& config = *read;
  EXPECT_EQ(config.at("peft_type"), "LORA");
  EXPECT_EQ(config.at("target_modules"), Json(modules));
  EXPECT_EQ(config.at("r"), 4);
  EXPECT_EQ(config.at("rank_pattern"), Json({{"net.first", 2}}));
  EXPECT_EQ(config.at("fan_in_fan_out"), false);
  EXPECT_EQ(config.at("modules_to_save"), Json(std::vector<std::string>{"head"}));
}

TEST(TrainOnly, FreezesTheRestAndRefusesPatternsThatMatchNothing) {
  TrainOptions how;
  how.optimizer = "sgd";
  how.train_only = {"net.*.bias", "onnx::*"};
  auto step = build_train_step(model(), how);
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_EQ(step->trained, (std::vector<std::string>{"net.first.bias", "onnx::MatMul_31"}));
  EXPECT_EQ(step->untrained.size(), 2u);
  how.train_only.push_back("net.frist.bias");
  step = build_train_step(model(), how);
  ASSERT_FALSE(step.ok());
  EXPECT_NE(step.status().message().find(
                "\"net.frist.bias\" is to be trained, but matches no parameter; did you mean net.first.bias?"),
            std::string::npos)
      << step.status().to_string();
}

}  // namespace
}  // namespace epl::adapter_test
