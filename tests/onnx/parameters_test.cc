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
  auto model = OnnxModel::load((folder / "model.onnx").string());
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  Binding binding;
  for (const ModelPort& port : (*model)->inputs()) {
    for (const ModelDim& dim : port.dims) binding.symbols[dim.symbol] = 4;
  }
  // Those that only their owner can tell from constants; named, they are parameters.
  const Names unlike = folder.filename().string().starts_with("scorer") ? Names{"scale", "temperature"} : Names{};
  Names found;
  for (bool named : {true, false}) {
    binding.parameters = named ? unlike : Names{};
    auto graph = (*model)->bind(binding);
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    found.clear();
    for (Value v : graph->leaves(ValueKind::parameter)) found.insert(graph->value(v).name);
    for (const std::string& name : trainable) EXPECT_EQ(found.contains(name), named || !unlike.contains(name)) << name;
  }
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
