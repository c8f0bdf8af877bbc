// Sizes of templates that nobody means are refused before anything is made.
#include "core/frontend/template.h"

#include <gtest/gtest.h>

namespace epl::template_test {
namespace {

Status written(const std::string& name, const std::string& option, Attribute value) {
  EPL_ASSIGN(const ModelTemplate* row, find_named(template_table(), name, "template"));
  Attributes options;
  for (const Option& spec : row->options) options.set(spec.name, spec.value);
  options.set(option, std::move(value));
  return row->write(options, "/nonexistent/model.onnx", nullptr);
}

TEST(Template, HasABound) {
  for (const char* option : {"layers", "vocab", "context", "width"}) {
    const Status status = written("gpt2", option, int64_t{1} << 30);
    EXPECT_EQ(status.code(), Code::invalid_argument) << option << ": " << status.to_string();
    EXPECT_NE(status.message().find("a template has up to"), std::string::npos) << status.to_string();
  }
  EXPECT_EQ(written("mlp", "sizes", Ints(20'000, 4)).code(), Code::invalid_argument);
  EXPECT_EQ(written("mlp", "sizes", Ints{1 << 30, 1 << 30}).code(), Code::invalid_argument);
  // A size that is fine gets as far as the file.
  EXPECT_EQ(written("gpt2", "layers", int64_t{2}).code(), Code::not_found);
}

}  // namespace
}  // namespace epl::template_test
