// docs/ops.md says what the records say. Run with EPL_UPDATE_DOCS=1 to write it again.
#include "core/ops/documentation.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace epl {
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

}  // namespace
}  // namespace epl
