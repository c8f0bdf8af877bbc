// Which initialisers are parameters, over the training cases: those that the reference trains, freezes or leaves
// unused, and no mask, table or constant besides.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/onnx/make_model.h"

namespace epl::onnx::parameters_test {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

// The texts of the array `key` of a reference.
void add_names(const std::string& json, const std::string& key, Names& out) {
  const size_t at = json.find("\"" + key + "\"");
  if (at == std::string::npos) return;
  const size_t open = json.find('[', at), close = json.find(']', open);
  const std::string list = json.substr(open, close - open);
  const std::regex quoted("\"([^\"]*)\"");
  for (std::sregex_iterator it(list.begin(), list.end(), quoted), end; it != end; ++it) out.insert((*it)[1]);
}

void check(const fs::path& folder) {
  SCOPED_TRACE(folder.filename().string());
  std::stringstream text;
  text << std::ifstream(folder / "reference.json").rdbuf();
  Names trainable, known;
  add_names(text.str(), "trainable", trainable);
  for (const char* key : {"trainable", "frozen", "unused_params"}) add_names(text.str(), key, known);
  ASSERT_FALSE(trainable.empty());
  auto model = load_model((folder / "model.onnx").string());
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  Binding binding;
  for (const ModelPort& port : (*model)->inputs()) {
    for (const ModelDim& dim : port.dims) binding.symbols[dim.symbol] = 4;
  }
  auto graph = (*model)->bind(binding);
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  Names found;
  for (Value v : graph->leaves(ValueKind::parameter)) found.insert(graph->value(v).name);
  for (const std::string& name : trainable) EXPECT_TRUE(found.contains(name)) << name;
  for (const std::string& name : found) EXPECT_TRUE(known.contains(name)) << name << " should be no parameter";
}

TEST(OnnxParameters, AreThoseOfTheCases) {
  int count = 0;
  const fs::path source = EPL_SOURCE_DIR;
  for (const fs::path& root : {source / "tests/cases", source / "../shared/cases", source / "../../shared/cases"}) {
    if (!fs::is_directory(root)) continue;
    for (const auto& entry : fs::directory_iterator(root)) {
      if (!fs::exists(entry.path() / "reference.json")) continue;
      ++count;
      check(entry.path());
    }
  }
  EXPECT_GE(count, 10);
}

// The files of tests/onnx/parameters, with what PyTorch itself says of them (generate.py).
struct Exported {
  std::string file;
  Names parameters, buffers;
};
std::vector<Exported> exported_by_pytorch() {
  std::vector<Exported> out;
  std::ifstream list(fs::path(EPL_SOURCE_DIR) / "tests/onnx/parameters/parameters.txt");
  for (std::string line; std::getline(list, line);) {
    std::istringstream words(line);
    Exported one;
    words >> one.file;
    Names* into = nullptr;
    for (std::string word; words >> word;) {
      if (word == "parameters" || word == "buffers") {
        into = word == "parameters" ? &one.parameters : &one.buffers;
      } else if (word != ";") {
        into->insert(word);
      }
    }
    out.push_back(std::move(one));
  }
  return out;
}

TEST(OnnxParameters, AreThoseOfPyTorch) {
  const std::vector<Exported> all = exported_by_pytorch();
  EXPECT_GE(all.size(), 40u);
  for (const Exported& one : all) {
    SCOPED_TRACE(one.file);
    auto model = load_model((fs::path(EPL_SOURCE_DIR) / "tests/onnx/parameters" / one.file).string());
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    auto graph = (*model)->bind({});
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    Names found;
    for (Value v : graph->leaves(ValueKind::parameter)) found.insert(graph->value(v).name);
    for (const std::string& name : one.parameters) EXPECT_TRUE(found.contains(name)) << name << " is not trained";
    for (const std::string& name : one.buffers) EXPECT_FALSE(found.contains(name)) << name << " is trained";
    const bool whole = one.file.ends_with("_legacy.onnx") || one.file.ends_with("_dynamo.onnx");
    if (whole) {
      EXPECT_EQ(found, one.parameters);
    }
    std::string findings;
    for (const ModelFinding& finding : (*model)->findings())
      findings += cat(finding.where, ": ", finding.message, "\n");
    // What an optimising exporter has computed from parameters is told by their names.
    if (one.file == "vision_dynamo_optimized.onnx") {
      EXPECT_NE(findings.find("from the parameter class_token"), std::string::npos) << findings;
      EXPECT_NE(findings.find("from the parameter mix"), std::string::npos) << findings;
    }
    if (one.file == "contrastive_dynamo_optimized.onnx") {
      EXPECT_NE(findings.find("from the parameter logit_scale"), std::string::npos) << findings;
      EXPECT_NE(findings.find("from the parameter gate"), std::string::npos) << findings;
    }
    // So is what the older one has merged because it held the same numbers.
    EXPECT_EQ(findings.find("one.weight: it is a copy of blocks.0.slope, and 1 more") != std::string::npos,
              one.file == "gated_legacy_folded.onnx")
        << findings;
    // And what its module trains is not called left out.
    if (whole) {
      for (const std::string& name : one.parameters)
        EXPECT_EQ(findings.find(cat(name, ": ")), std::string::npos) << findings;
    }
  }
}

std::string findings_of(const testing::Message& bytes) {
  auto model = testing::load(bytes);
  if (!model.ok()) return model.status().to_string();
  std::string out;
  for (const ModelFinding& finding : (*model)->findings()) out += cat(finding.where, ": ", finding.message, "\n");
  return out;
}

// A file of another writer does not say what a single number is. It is left alone, with a finding for each that
// something computes with, and none for what only keeps a root from zero, sets a bound or has a tool's name.
TEST(OnnxParameters, SingleNumbersOfOtherWritersAreFindings) {
  const auto one = [](const std::string& name, double value) {
    return testing::tensor(name, epl::Tensor::scalar(DType::f32, value));
  };
  const std::vector<testing::Message> values = {one("k", 2),     one("temperature", 0.7), one("guard", 1e-6),
                                                one("low", 0),   one("power", 2),         one("const_fold_opt__12", 3),
                                                one("eps", 1e-6)};
  const std::string said = findings_of(testing::model(
      {.nodes = {testing::node("Mul", {"x", "k"}, {"a"}), testing::node("Div", {"a", "temperature"}, {"b"}),
                 testing::node("Pow", {"b", "power"}, {"c"}), testing::node("Add", {"c", "guard"}, {"d"}),
                 testing::node("Sqrt", {"d"}, {"e"}), testing::node("Clip", {"e", "low"}, {"f"}),
                 testing::node("Mul", {"f", "const_fold_opt__12"}, {"g"}), testing::node("Add", {"g", "eps"}, {"h"}),
                 testing::node("Reciprocal", {"h"}, {"y"})},
       .initializers = values,
       .inputs = {testing::port("x", {"n", "2"})},
       .outputs = {testing::port("y", {"n", "2"})}}));
  for (const char* name : {"k", "temperature"})
    EXPECT_NE(said.find(cat(name, ": f32[] is not trained: it has one element; --train-also '", name, "' trains it")),
              std::string::npos)
        << said;
  for (const char* name : {"guard", "low", "power", "const_fold_opt__12", "eps"})
    EXPECT_EQ(said.find(cat(name, ": ")), std::string::npos) << said;
}

// What a loss inside the model weighs its classes or terms with is a setting, whatever its name and whoever wrote the
// file: trained, the loss would go down without an end.
TEST(OnnxParameters, WeightsOfALossAreNone) {
  using testing::node;
  const epl::Tensor four = epl::Tensor::from_floats({4}, {1, 2, 0.5, 3});
  const epl::Tensor matrix = epl::Tensor::from_floats({4, 4}, {1, 2, 3, 4, 4, 3, 2, 1, 1, 3, 2, 4, 4, 2, 3, 1});
  const std::vector<testing::Message> terms = {node("Sigmoid", {"h"}, {"p"}), node("Log", {"p"}, {"l"}),
                                               node("Mul", {"l", "x"}, {"m"})};
  const auto trained = [&](std::vector<testing::Message> nodes, const std::string& name, const std::string& target) {
    nodes.insert(nodes.begin(), node("MatMul", {"x", "layer.weight"}, {"h"}));
    std::vector<testing::Message> inputs = {testing::port("x", {"4", "4"})};
    if (!target.empty()) inputs.push_back(testing::port(target, {"4"}, data_type_of(DType::i64)));
    auto graph = testing::import(
        testing::model({.nodes = nodes,
                        .initializers = {testing::tensor("layer.weight", matrix), testing::tensor(name, four)},
                        .inputs = inputs,
                        .outputs = {testing::port("y", {})}}));
    EXPECT_TRUE(graph.ok()) << graph.status().to_string();
    Names out;
    if (graph.ok())
      for (Value v : graph->leaves(ValueKind::parameter)) out.insert(graph->value(v).name);
    return out;
  };
  const auto then = [&](const testing::Message& a, const testing::Message& b) {
    std::vector<testing::Message> all = terms;
    all.insert(all.end(), {a, b});
    return all;
  };
  const Names layer = {"layer.weight"};
  EXPECT_EQ(trained({node("SoftmaxCrossEntropyLoss", {"h", "t", "crit.weight"}, {"y"})}, "crit.weight", "t"), layer);
  EXPECT_EQ(
      trained({node("LogSoftmax", {"h"}, {"l"}), node("NegativeLogLikelihoodLoss", {"l", "t", "crit.weight"}, {"y"})},
              "crit.weight", "t"),
      layer);
  EXPECT_EQ(trained(then(node("Mul", {"m", "crit.pos_weight"}, {"n"}), node("ReduceMean", {"n"}, {"y"})),
                    "crit.pos_weight", ""),
            layer);
  for (const char* reduce : {"ReduceMean", "ReduceSum"})
    EXPECT_EQ(trained(then(node("Mul", {"crit.weight", "m"}, {"n"}), node(reduce, {"n"}, {"y"})), "crit.weight", ""),
              layer);
  // A scale of what a layer gives is one, though its mean is all that the model tells.
  EXPECT_EQ(trained({node("Mul", {"h", "scale.weight"}, {"n"}), node("ReduceMean", {"n"}, {"y"})}, "scale.weight", ""),
            (Names{"layer.weight", "scale.weight"}));
}

// The loss that the terms are summed up to may be scaled, one of several, or a sum in steps.
TEST(OnnxParameters, WeightsOfALossInSteps) {
  using testing::node;
  const epl::Tensor matrix = epl::Tensor::from_floats({3, 3}, {1, 2, 3, 4, 3, 2, 1, 7, 3});
  epl::Tensor features(TensorType{DType::i64, {1}});
  features.set_int(0, 1);
  const auto trained = [&](const std::vector<testing::Message>& rest, bool targets) {
    std::vector<testing::Message> nodes = {node("MatMul", {"x", "layer.weight"}, {"h"}), node("Sigmoid", {"h"}, {"p"}),
                                           node("Log", {"p"}, {"l"}), node("Mul", {"l", targets ? "t" : "x"}, {"m"}),
                                           node("Mul", {"crit.weight", "m"}, {"n"})};
    nodes.insert(nodes.end(), rest.begin(), rest.end());
    auto graph = testing::import(
        testing::model({.nodes = nodes,
                        .initializers = {testing::tensor("layer.weight", matrix),
                                         testing::tensor("crit.weight", epl::Tensor::from_floats({3}, {1, 2, 0.5})),
                                         testing::tensor("half", epl::Tensor::from_floats({1}, {0.5}).reshaped({})),
                                         testing::tensor("features", features)},
                        .inputs = {testing::port("x", {"4", "3"}), testing::port("t", {"4", "3"})},
                        .outputs = {testing::port("y", {})}}));
    EXPECT_TRUE(graph.ok()) << graph.status().to_string();
    return graph.ok() ? graph->leaves(ValueKind::parameter).size() : 0;
  };
  const testing::Message mean = node("ReduceMean", {"n"}, {"a"}),
                         over_features = node("ReduceSum", {"n", "features"}, {"s"});
  const std::vector<std::vector<testing::Message>> losses = {
      {mean, node("Mul", {"a", "half"}, {"y"})},
      {mean, node("Mul", {"h", "h"}, {"q"}), node("ReduceMean", {"q"}, {"b"}), node("Add", {"a", "b"}, {"y"})},
      {node("ReduceSum", {"n"}, {"a"}), node("Div", {"a", "half"}, {"y"})},
      {over_features, node("ReduceMean", {"s"}, {"y"})},
      {over_features, node("Div", {"s", "half"}, {"d"}), node("ReduceMean", {"d"}, {"y"})}};
  for (size_t k = 0; k < losses.size(); ++k) {
    EXPECT_EQ(trained(losses[k], true), 1u) << k;
    EXPECT_EQ(trained(losses[k], false), 2u) << k << ": what is no loss against targets may learn what it weighs by";
  }
}

// What a model standardises its data by is of the data; a scale or a shift of another name or position is learnt.
TEST(OnnxParameters, StatisticsOfData) {
  using testing::node;
  const epl::Tensor matrix =
      epl::Tensor::from_floats({5, 5}, {1, 2, 3, 4, 3, 2, 1, 7, 3, 5, 6, 2, 8, 1, 4, 9, 5, 3, 2, 7, 6, 1, 8, 2, 5});
  const auto trained = [&](const std::vector<testing::Message>& nodes, const std::string& a, const std::string& b) {
    auto graph = testing::import(
        testing::model({.nodes = nodes,
                        .initializers = {testing::tensor("fc.weight", matrix),
                                         testing::tensor(a, epl::Tensor::from_floats({5}, {1, 7, 0.5, 2, 6})),
                                         testing::tensor(b, epl::Tensor::from_floats({5}, {2, 1, 4, 3, 5}))},
                        .inputs = {testing::port("x", {"6", "5"})},
                        .outputs = {testing::port("y", {"6", "5"})}}));
    EXPECT_TRUE(graph.ok()) << graph.status().to_string();
    return graph.ok() ? graph->leaves(ValueKind::parameter).size() : 0;
  };
  for (const auto& [a, b] :
       {std::pair{"scaler.mean", "scaler.std"}, {"scaler.mean_", "scaler.scale_"}, {"x_mu", "x_sd"}}) {
    EXPECT_EQ(
        trained({node("Sub", {"x", a}, {"c"}), node("Div", {"c", b}, {"z"}), node("MatMul", {"z", "fc.weight"}, {"y"})},
                a, b),
        1u)
        << a;
    EXPECT_EQ(trained({node("Sub", {"x", a}, {"c"}), node("Sqrt", {b}, {"r"}), node("Div", {"c", "r"}, {"z"}),
                       node("MatMul", {"z", "fc.weight"}, {"y"})},
                      a, b),
              1u)
        << a;
    // Of what a layer gives they may be learnt.
    EXPECT_EQ(
        trained({node("MatMul", {"x", "fc.weight"}, {"h"}), node("Sub", {"h", a}, {"c"}), node("Div", {"c", b}, {"y"})},
                a, b),
        3u)
        << a;
  }
  const auto back = [&](const char* spread, const char* centre) {
    return trained({node("MatMul", {"x", "fc.weight"}, {"h"}), node("Mul", {"h", spread}, {"c"}),
                    node("Add", {"c", centre}, {"y"})},
                   spread, centre);
  };
  EXPECT_EQ(back("out.y_std", "out.y_mean"), 1u);
  EXPECT_EQ(back("out.scale", "out.shift"), 3u);
  EXPECT_EQ(trained({node("Sub", {"x", "in.bias"}, {"c"}), node("Div", {"c", "in.gain"}, {"z"}),
                     node("MatMul", {"z", "fc.weight"}, {"y"})},
                    "in.bias", "in.gain"),
            3u);
}

// A name is as long as its writer likes; and what looks like an exporter's constant is not a parameter unless it is a
// weight.
TEST(OnnxParameters, NamesOfAnyLength) {
  const epl::Tensor two = epl::Tensor::from_floats({2}, {1, 2});
  const std::string nines(1 << 20, '9'), letters(1 << 20, 'a');
  const std::map<std::string, bool> parameter = {{"val_1", false},
                                                 {"val_", true},
                                                 {"12", false},
                                                 {"12a", true},
                                                 {"onnx::Add_3", false},
                                                 {"_to_copy_1", false},
                                                 {"/a/b", false},
                                                 {"_val_7", false},
                                                 {"a/Constant_1_output_0", false},
                                                 {"a/Constant_output_0", true},
                                                 {"aConstant_12_output_34", false},
                                                 {"Constant_1_output_", true},
                                                 {nines, false},
                                                 {letters, true},
                                                 {"x" + nines, true},
                                                 {"onnx::" + letters, false},
                                                 {"val_" + nines, false}};
  for (const auto& [name, wanted] : parameter) {
    auto graph = testing::import(testing::model({.nodes = {testing::node("Add", {"x", name}, {"y"})},
                                                 .initializers = {testing::tensor(name, two)},
                                                 .inputs = {testing::port("x", {"n", "2"})},
                                                 .outputs = {testing::port("y", {"n", "2"})}}));
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    EXPECT_EQ(graph->leaves(ValueKind::parameter).size(), wanted ? 1u : 0u) << name.substr(0, 40);
  }
}

}  // namespace
}  // namespace epl::onnx::parameters_test
