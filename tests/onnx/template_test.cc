// Templates: what they are made of raises no doubt, and sizes that nobody means are refused before anything is made.
#include "core/frontend/template.h"

#include <gtest/gtest.h>

#include "core/frontend/model.h"
#include "tests/temporary_folder.h"

namespace epl::template_test {
namespace {

Status written(const std::string& name, const std::string& option, Attribute value) {
  EPL_ASSIGN(const ModelTemplate* row, find_named(template_table(), name, "template"));
  Attributes options;
  for (const Option& spec : row->options) options.set(spec.name, spec.value);
  options.set(option, std::move(value));
  return row->write(options, "/nonexistent/model.onnx", nullptr);
}

TEST(Template, NoneIsWarnedOf) {
  const TemporaryFolder folder;
  for (const ModelTemplate& row : template_table().rows) {
    const std::string path = folder / (row.name + ".onnx");
    Attributes options;
    for (const Option& spec : row.options) options.set(spec.name, spec.value);
    for (int64_t seed = 1; seed <= (row.name == "random" ? 40 : 1); ++seed) {
      options.set("seed", seed);
      const Status status = row.write(options, path, nullptr);
      ASSERT_TRUE(status.ok()) << row.name << ": " << status.to_string();
      auto model = load_model(path);
      ASSERT_TRUE(model.ok()) << row.name << ": " << model.status().to_string();
      for (const ModelFinding& finding : (*model)->findings()) {
        EXPECT_EQ(finding.level, ModelFinding::Level::note)
            << row.name << " of seed " << seed << ": " << finding.where << ": " << finding.message;
      }
    }
  }
}

TEST(Template, HasABound) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> sizes = {
      {"gpt2", {"layers", "vocab", "context", "width"}},
      {"bert", {"layers", "vocab", "context", "width", "classes"}},
      {"t5", {"layers", "vocab", "context", "target", "width", "heads", "inner"}},
      {"cnn", {"width", "channels", "blocks", "classes"}},
      {"gru", {"layers", "width", "hidden", "classes"}},
      {"two_tower", {"width"}}};
  for (const auto& [name, options] : sizes) {
    for (const std::string& option : options) {
      const Status status = written(name, option, int64_t{1} << 30);
      EXPECT_EQ(status.code(), Code::invalid_argument) << name << " " << option << ": " << status.to_string();
      EXPECT_NE(status.message().find("a template has up to"), std::string::npos) << status.to_string();
    }
  }
  EXPECT_EQ(written("mlp", "sizes", Ints(20'000, 4)).code(), Code::invalid_argument);
  EXPECT_EQ(written("mlp", "sizes", Ints{1 << 30, 1 << 30}).code(), Code::invalid_argument);
  // A size that is fine gets as far as the file.
  EXPECT_EQ(written("gpt2", "layers", int64_t{2}).code(), Code::not_found);
}

}  // namespace
}  // namespace epl::template_test
