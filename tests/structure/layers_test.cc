// core/layers.txt holds: every #include goes to the folder's own layer or one that is listed for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "tests/structure/source_tree.h"

namespace epl::structure::layers_test {
namespace {

using Layers = std::map<std::string, std::set<std::string>>;

Layers parse_layers(const std::string& text) {
  Layers layers;
  for (std::string line : lines_of(text)) {
    line = line.substr(0, line.find('#'));
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::set<std::string>& allowed = layers[line.substr(0, colon)];
    std::stringstream rest(line.substr(colon + 1));
    for (std::string layer; rest >> layer;) allowed.insert(layer);
  }
  return layers;
}

// The longest listed folder that holds the path, or "".
std::string layer_of(const Layers& layers, const std::string& path) {
  std::string best;
  for (const auto& [layer, allowed] : layers) {
    if (path.starts_with(layer + "/") && layer.size() > best.size()) best = layer;
  }
  return best;
}

// What is wrong with one file's includes, one sentence each. Permissions that it uses are noted in `used`.
std::vector<std::string> violations(const Layers& layers, const SourceFile& file, Layers* used = nullptr) {
  std::vector<std::string> found;
  const std::string from = layer_of(layers, file.path);
  if (from.empty()) return {file.path + ": its folder is not in core/layers.txt"};
  static const std::regex include(R"re(^\s*#\s*include\s+(?:"([^"]+)"|<(epl\.h)>))re");
  int number = 0;
  for (const std::string& line : lines_of(file.text)) {
    ++number;
    std::smatch match;
    if (!std::regex_search(line, match, include)) continue;
    std::string target = match[1].matched ? match[1] : match[2];
    if (target == "epl.h") target = "include/epl.h";
    // A header beside the file, or one of its own folder's parts.
    const std::string folder = file.path.substr(0, file.path.rfind('/') + 1);
    if (target.find('/') == std::string::npos &&
        std::filesystem::exists(std::filesystem::path(EPL_SOURCE_DIR) / folder / target))
      continue;
    if (target.starts_with("generated/") || target.ends_with("_generated.h")) continue;  // made in the build folder
    if (target.starts_with("hwy/")) continue;  // Highway's own way to include itself
    const std::string to = layer_of(layers, target);
    const std::string where = file.path + ":" + std::to_string(number) + ": ";
    if (used) (*used)[from].insert(to);
    if (to.empty()) {
      found.push_back(where + "\"" + target + "\" is in no layer; include by the path from the top of the checkout");
    } else if (to != from && !layers.at(from).count(to)) {
      found.push_back(where + from + " may not include " + to + " (\"" + target + "\")");
    }
  }
  return found;
}

TEST(Layers, EveryIncludeIsAllowed) {
  const Layers layers = parse_layers(read_text(std::string(EPL_SOURCE_DIR) + "/core/layers.txt"));
  ASSERT_GT(layers.size(), 10u);
  const auto files = files_below({"core", "frontends", "backends", "include", "tools", "samples", "bench"},
                                 {".cc", ".h", ".c", ".inc"});
  ASSERT_GT(files.size(), 25u);
  Layers used;
  for (const SourceFile& file : files) {
    for (const std::string& violation : violations(layers, file, &used)) ADD_FAILURE() << violation;
  }
  for (const auto& [from, allowed] : layers) {
    for (const std::string& to : allowed)
      EXPECT_TRUE(used[from].count(to)) << "core/layers.txt: " << from << " may include " << to << ", and does not";
  }
}

TEST(Layers, ListIsWithoutCyclesAndNamesOnlyLayers) {
  const Layers layers = parse_layers(read_text(std::string(EPL_SOURCE_DIR) + "/core/layers.txt"));
  std::map<std::string, int> state;  // 1: on the path, 2: done
  std::function<void(const std::string&)> visit = [&](const std::string& layer) {
    state[layer] = 1;
    for (const std::string& next : layers.at(layer)) {
      ASSERT_TRUE(layers.count(next)) << layer << " names " << next << ", which is not listed";
      ASSERT_NE(state[next], 1) << layer << " and " << next << " include each other";
      if (state[next] == 0) visit(next);
    }
    state[layer] = 2;
  };
  for (const auto& [layer, allowed] : layers) {
    if (state[layer] == 0) visit(layer);
  }
}

TEST(Layers, AForbiddenIncludeIsFound) {
  const Layers layers = parse_layers("core/base:\ncore/ir: core/base # comment\nbackends/cpu: core/base\n");
  EXPECT_TRUE(violations(layers, {"core/ir/a.cc", "#include \"core/base/b.h\"\n#include <vector>\n"}).empty());
  EXPECT_EQ(violations(layers, {"core/base/a.cc", "\n  #  include \"core/ir/b.h\"\n"}).at(0),
            "core/base/a.cc:2: core/base may not include core/ir (\"core/ir/b.h\")");
  EXPECT_EQ(violations(layers, {"core/ir/a.cc", "#include \"backends/cpu/b.h\"\n"}).size(), 1u);
  EXPECT_EQ(violations(layers, {"core/ir/a.cc", "#include \"elsewhere/b.h\"\n"}).size(), 1u);
  EXPECT_EQ(violations(layers, {"extra/a.cc", ""}).size(), 1u);
}

}  // namespace
}  // namespace epl::structure::layers_test
