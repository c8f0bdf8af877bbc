// docs/ops.md says what the records say. Run with EPL_UPDATE_DOCS=1 to write it again.
#include "core/ops/documentation.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/ir/op.h"

namespace epl::documentation_test {
namespace {

TEST(Documentation, IsUpToDate) {
  const std::string path = std::string(EPL_SOURCE_DIR) + "/docs/ops.md";
  const std::string expected = op_documentation();
  if (std::getenv("EPL_UPDATE_DOCS")) {
    std::ofstream(path) << expected;
    return;
  }
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == expected) << "docs/ops.md is stale: run test_ops with EPL_UPDATE_DOCS=1";
}

// An op that can be cut counts its factors; one that cannot says why.
TEST(Documentation, CountsTheFactorsOfEveryOp) {
  std::istringstream lines(op_documentation());
  int counted = 0, none = 0;
  for (std::string line, op; std::getline(lines, line);) {
    if (line.starts_with("## ")) op = line.substr(3);
    if (!line.starts_with("- Cuts: ")) continue;
    const std::string cuts = line.substr(8);
    EXPECT_FALSE(cuts.starts_with("0 of ")) << op << " cannot be cut, and does not say why";
    ++(cuts.starts_with("none: ") ? none : counted);
  }
  EXPECT_EQ(static_cast<size_t>(counted + none), op_table().all().size());
  EXPECT_LT(none, counted);
}

}  // namespace
}  // namespace epl::documentation_test
