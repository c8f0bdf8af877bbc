// The train step by the reference of its graph in float64, against PyTorch's own optimizers (see reference.py).
#include "core/train/train_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/base/math.h"
#include "core/ir/evaluate.h"

namespace epl::train_step_test {
namespace {

constexpr int64_t steps = 20, batch = 4;

Tensor series(Shape shape, int64_t seed, double offset = 0) {
  Tensor data({DType::f64, std::move(shape)});
  for (int64_t i = 0; i < data.elements(); ++i) {
    data.set(i, static_cast<double>((i * 37 + seed * 11 + 5) % 101) / 101 - 0.5 + offset);
  }
  return data;
}

// x[4,3] -> tanh(x w1 + b1) w2 + b2, [4,4].
Graph mlp() {
  Graph graph;
  Builder b(graph);
  const auto parameter = [&](const char* name, Shape shape, int64_t seed) {
    Tensor data = series(std::move(shape), seed);
    return b.var(graph.add_leaf(ValueKind::parameter, name, data.type(), data));
  };
  Var x = b.var(graph.add_input("x", {DType::f64, {batch, 3}}, 0));
  Var w1 = parameter("first.weight", {3, 5}, 1), b1 = parameter("first.bias", {5}, 2);
  Var w2 = parameter("second.weight", {5, 4}, 3), b2 = parameter("second.bias", {4}, 4);
  Var y = b.matmul(b.tanh(b.matmul(x, w1) + b1), w2) + b2;
  EXPECT_TRUE(b.status().ok()) << b.status().to_string();
  graph.outputs = {{"logits", y.value()}, {"twice", (y + y).value()}};
  return graph;
}

double norm(const Tensor& t) {
  double sum = 0;
  for (int64_t i = 0; i < t.elements(); ++i) sum += t.get(i) * t.get(i);
  return std::sqrt(sum);
}

Tensor target_of(const std::string& loss, int64_t step) {
  if (loss == "mse") return series({batch, 4}, 50 + step);
  if (loss == "bce_with_logits") return series({batch, 4}, 50 + step, 0.5);
  Tensor target({DType::i64, {batch}});
  for (int64_t i = 0; i < batch; ++i) target.set_int(i, i == step % batch ? -100 : (i * 3 + step) % 4);
  return target;
}

Tensor output_of(const Graph& graph, const std::vector<Tensor>& values, std::string_view name) {
  for (const Graph::Output& output : graph.outputs) {
    if (output.name == name) return values[output.value.index];
  }
  ADD_FAILURE() << "no output " << name;
  return Tensor::scalar(DType::f64, NAN);
}

// Losses of steps 0, 9, 19, norms of the final parameters, and the gradient's norm at steps 0 and 19 where clipped.
std::vector<double> train(const TrainOptions& options) {
  auto made = build_train_step(mlp(), options);
  if (!made.ok()) {
    ADD_FAILURE() << made.status().to_string();
    return {};
  }
  const Graph& graph = made->graph;
  EXPECT_TRUE(verify(graph).ok()) << verify(graph).to_string();
  std::map<Value, Tensor> leaves;
  for (Value state : graph.leaves(ValueKind::state)) leaves[state] = Tensor(graph.type(state));
  std::vector<double> losses, norms;
  for (int64_t step = 0; step < steps; ++step) {
    leaves[graph.find("x")] = series({batch, 3}, 7 + step);
    leaves[graph.find("target")] = target_of(options.loss.name, step);
    for (const HostScalar& scalar : made->scalars) {
      leaves[scalar.value] = Tensor::scalar(graph.type(scalar.value).dtype, scalar.at({.step = step}));
    }
    auto values = evaluate_graph(graph, leaves);
    if (!values.ok()) {
      ADD_FAILURE() << values.status().to_string();
      return {};
    }
    losses.push_back(output_of(graph, *values, "loss").get(0));
    if (options.clip_norm > 0) norms.push_back(output_of(graph, *values, "gradient_norm").get(0));
    for (const Graph::Update& update : graph.updates) leaves[update.state] = (*values)[update.next.index];
  }
  std::vector<double> numbers = {losses[0], losses[9], losses[19]};
  for (const char* name : {"first.weight", "first.bias", "second.weight", "second.bias"}) {
    numbers.push_back(norm(leaves[graph.find(name)]));
  }
  if (options.clip_norm > 0) numbers.insert(numbers.end(), {norms[0], norms[19]});
  return numbers;
}

struct Case {
  TrainOptions options;
  std::vector<double> expected;
};

std::map<std::string, Case> cases() {
  std::map<std::string, Case> all;
  const auto add = [&](const char* name, const char* optimizer, Attributes options, const char* loss,
                       std::vector<double> expected) -> TrainOptions& {
    Case& made = all[name];
    made.options.optimizer = optimizer;
    made.options.optimizer_options = std::move(options);
    made.options.loss.name = loss;
    made.expected = std::move(expected);
    return made.options;
  };
  const char* classes = "softmax_cross_entropy";
  add("sgd", "sgd", {{"lr", 0.3}, {"weight_decay", 0.01}}, classes,
      {1.390498275032687, 1.259244675559775, 1.1822029613551945, 1.010426377222307, 0.844969032256531,
       1.308137256975533, 0.9525192338409029});
  add("momentum", "momentum", {{"lr", 0.1}, {"momentum", 0.9}, {"weight_decay", 0.001}}, classes,
      {1.390498275032687, 1.2038328121921127, 1.1336249691251114, 1.0277977442110429, 1.1100944065425646,
       1.625180036830034, 1.7520161509516807});
  add("damped", "momentum", {{"lr", 0.1}, {"momentum", 0.8}, {"dampening", 0.3}}, classes,
      {1.390498275032687, 1.2664375260929444, 1.1609901842480126, 1.077291483426199, 0.8749274166033784,
       1.4035235215259896, 1.0791892963174479});
  add("nesterov", "momentum", {{"lr", 0.1}, {"momentum", 0.9}, {"nesterov", true}}, "mse",
      {0.09870522603217806, 0.08636733899678305, 0.09136887579692324, 1.0409755768298008, 0.5763910283482813,
       1.1609394337202092, 0.4098365317629511});
  add("adam", "adam", {{"lr", 0.02}, {"betas", Doubles{0.9, 0.99}}, {"eps", 1e-6}, {"weight_decay", 0.02}},
      "bce_with_logits",
      {0.6908945076166013, 0.688684980188297, 0.6896004490533519, 0.309817708430614, 0.3297770122770878,
       0.4452043398083529, 0.29621887143851816});
  add("adamw", "adamw", {{"lr", 0.02}, {"betas", Doubles{0.8, 0.95}}, {"weight_decay", 0.1}}, classes,
      {1.390498275032687, 1.2545830994515133, 1.1721051705228085, 1.0413798240088135, 1.098554192886314,
       1.5879752629124957, 0.852974800704646});
  add("rmsprop", "rmsprop", {{"lr", 0.02}, {"alpha", 0.9}, {"eps", 1e-6}, {"weight_decay", 0.02}}, classes,
      {1.390498275032687, 1.196228861553755, 1.1645180292718502, 0.7710199589154918, 1.16241255882598,
       1.4592231593868534, 0.830501137086832});
  add("adagrad", "adagrad", {{"lr", 0.1}, {"lr_decay", 0.05}, {"weight_decay", 0.01}}, "mse",
      {0.09870522603217806, 0.07374220498725773, 0.08864672383560018, 0.6668522939123148, 0.439709019122593,
       0.85234148215114, 0.313856658290938});
  add("clipped", "adamw", {{"lr", 0.05}}, classes,
      {1.390498275032687, 1.110268593462477, 1.1748667270958382, 1.1573522242017202, 1.672895745336088,
       2.417995110130471, 1.4411946266868099, 0.4270065326273157, 0.2251246448913627})
      .clip_norm = 0.2;
  add("cosine", "sgd", {{"lr", 0.5}}, classes,
      {1.390498275032687, 1.2667693421016477, 1.1812960115625686, 1.1052502446106809, 0.841125776650972,
       1.3847549860366013, 0.9091148923458378})
      .schedule = {"cosine", 5, {{"total_steps", int64_t{20}}}};
  add("linear", "adam", {{"lr", 0.05}}, classes,
      {1.390498275032687, 1.174714085322036, 1.154459353748286, 1.0877184743628958, 1.335499984464802,
       1.907163291428734, 1.0789359866131294})
      .schedule = {"linear", 4, {{"total_steps", int64_t{25}}}};
  add("groups", "adamw", {{"lr", 0.02}}, classes,
      {1.390498275032687, 1.1368635147768804, 1.1454064957303607, 1.0080609918155703, 1.8860093801556934,
       1.4487286811936948, 2.3459745334865376})
      .groups = {{.patterns = {"*.weight"}, .options = {{"weight_decay", 0.2}}},
                 {.patterns = {"first.bias", "second.bi?s"}, .options = {{"weight_decay", 0.0}, {"lr", 0.1}}}};
  return all;
}

class AgainstPyTorch : public testing::TestWithParam<std::string> {};

TEST_P(AgainstPyTorch, TwentySteps) {
  const Case test = cases().at(GetParam());
  const std::vector<double> got = train(test.options);
  ASSERT_EQ(got.size(), test.expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], test.expected[i], 1e-11) << "number " << i;
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& [name, unused] : cases()) names.push_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Cases, AgainstPyTorch, testing::ValuesIn(case_names()),
                         [](const auto& info) { return info.param; });

TEST(TrainStep, FreezesGroupsAndSaysWhy) {
  TrainOptions options{.groups = {{.patterns = {"first.*"}, .frozen = true}}};
  auto made = build_train_step(mlp(), options);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->trained, (std::vector<std::string>{"second.weight", "second.bias"}));
  ASSERT_EQ(made->untrained.size(), 2u);
  EXPECT_EQ(made->untrained[0].first, "first.weight");
  EXPECT_NE(made->untrained[0].second.find("frozen"), std::string::npos);
  EXPECT_EQ(made->graph.updates.size(), 2u);
  for (const Node& node : made->graph.nodes()) EXPECT_NE(node.op->name, "tanh_grad");
}

// PyTorch's gradient of them is None, and the others train.
TEST(TrainStep, ParametersToWhichNoGradientComesAreANote) {
  Graph forward = mlp();
  Builder b(forward);
  const auto leaf = [&](const char* name) {
    return b.var(forward.add_leaf(ValueKind::parameter, name, {DType::f64, {3}}, series({3}, 1)));
  };
  leaf("alone");
  forward.outputs.push_back({"beside", b.exp(leaf("aside")).value()});
  forward.outputs.push_back({"further", b.exp(leaf("kept")).value()});
  // Groups and options that name them hold for them as for others.
  TrainOptions options{
      .optimizer = "adamw",
      .groups = {{.patterns = {"alone", "first.*"}, .options = {{"lr", 0.5}}}, {.patterns = {"kept"}, .frozen = true}},
      .clip_norm = 1,
      .report_gradient_norms = true,
      .keep_gradients = true,
      .freezable = true};
  auto made = build_train_step(forward, options);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->trained, (std::vector<std::string>{"first.weight", "first.bias", "second.weight", "second.bias"}));
  ASSERT_EQ(made->untrained.size(), 3u);
  EXPECT_EQ(made->notes,
            (std::vector<std::string>{
                "no gradient comes to alone, aside, so they stay as they are: no path leads to the loss"}));
  for (const Graph::Update& update : made->graph.updates) {
    const std::string& name = made->graph.value(update.state).name;
    EXPECT_FALSE(name.starts_with("alone") || name.starts_with("aside") || name.starts_with("kept")) << name;
  }
  options.train_only = {"aside", "second.bias"};
  options.groups.clear();
  made = build_train_step(forward, options);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->trained, (std::vector<std::string>{"second.bias"}));
  EXPECT_EQ(made->notes.size(), 1u) << "what is frozen is no finding";
  options.train_only = {"aside"};
  made = build_train_step(forward, options);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("no parameter can be trained"), std::string::npos);
}

TEST(TrainStep, KeepsTheModelsOwnUpdatesAndPutsItsOwnLast) {
  Graph forward = mlp();
  Builder b(forward);
  Value count = forward.add_leaf(ValueKind::buffer, "seen", {DType::f64, {}}, Tensor::scalar(DType::f64, 0));
  forward.updates.push_back({count, (b.var(count) + 1.0).value()});
  auto made = build_train_step(forward, {.optimizer = "adam", .report_gradient_norms = true});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->graph.updates.size(), 1u + 3 * 4);
  EXPECT_TRUE(made->graph.find("first.weight.mean"));
  EXPECT_EQ(made->graph.leaves(ValueKind::scalar).size(), 3u);
  ASSERT_EQ(made->graph.outputs.size(), 7u);
  EXPECT_EQ(made->graph.outputs[0].name, "loss");
  EXPECT_EQ(made->graph.outputs[1].name, counted_output);
  EXPECT_EQ(made->graph.outputs[2].name, verdict_output);
  EXPECT_EQ(made->graph.outputs[3].name, "gradient_norm:first.weight");
  for (const Node& node : made->graph.nodes()) {
    if (node.op->name == "adam") {
      EXPECT_EQ(node.phase, Phase::update);
    }
  }
}

// The rate of each may be set while it trains.
TEST(TrainStep, GroupsHaveScalarsOfTheirOwn) {
  TrainOptions options{.optimizer = "adamw",
                       .groups = {{.patterns = {"first.*"}, .options = {{"weight_decay", 0.01}}},
                                  {.patterns = {"second.weight"}, .options = {{"lr", 0.5}}}}};
  auto made = build_train_step(mlp(), options);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  ASSERT_EQ(made->scalars.size(), 9u);
  EXPECT_EQ(made->scalars[0].at({}), 1e-3);
  EXPECT_EQ(made->scalars[3].at({.step = 7}), 0.5);
  EXPECT_EQ(made->scalars[6].at({}), 1e-3);
  const double rates[] = {3, 5, 7};
  EXPECT_EQ(made->scalars[0].at({.rates = rates}), 5);  // of the first group; those outside any come last here
  EXPECT_EQ(made->scalars[3].at({.rates = rates}), 7);
  EXPECT_EQ(made->scalars[6].at({.rates = rates}), 3);
}

// The message of the error, or nothing.
std::string refused(const TrainOptions& options) {
  auto made = build_train_step(mlp(), options);
  return made.ok() ? "" : made.status().message();
}

TEST(TrainStep, RefusesWhatItDoesNotKnow) {
  EXPECT_NE(refused({.optimizer = "adamm"}).find("adam"), std::string::npos);
  EXPECT_NE(refused({.optimizer_options = {{"wieght_decay", 0.1}}}).find("did you mean weight_decay"),
            std::string::npos);
  EXPECT_NE(refused({.optimizer_options = {{"lr", std::string("fast")}}}).find("lr"), std::string::npos);
  EXPECT_NE(refused({.optimizer_options = {{"lr", -1.0}}}).find("0 or more"), std::string::npos);
  EXPECT_NE(refused({.optimizer = "adam", .optimizer_options = {{"betas", Doubles{0.9, 1.0}}}}).find("betas"),
            std::string::npos);
  EXPECT_NE(refused({.groups = {{.patterns = {"third.*"}}}}).find("third.*"), std::string::npos);
  EXPECT_NE(refused({.groups = {{.patterns = {"*"}, .frozen = true}}}).find("frozen"), std::string::npos);
  EXPECT_NE(refused({.schedule = {"cosine", 5, {{"total_steps", int64_t{5}}}}}).find("total_steps"), std::string::npos);
  EXPECT_NE(refused({.loss = {.name = "output:logit"}}).find("did you mean logits"), std::string::npos);
  EXPECT_NE(refused({.loss = {.name = "output:logits"}}).find("one floating-point number"), std::string::npos);
}

}  // namespace
}  // namespace epl::train_step_test
