// Pages and parts of pages that are made from the tables of the sources. With EPL_UPDATE_DOCS in the environment they
// are written instead of compared. Paths are from the top of the checkout; `program` is the test to run for that.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace epl {

inline std::string read_page(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(std::string(EPL_SOURCE_DIR) + "/" + path).rdbuf();
  return text.str();
}

inline void expect_page(const std::string& path, const std::string& text, const std::string& program) {
  if (std::getenv("EPL_UPDATE_DOCS")) {
    std::ofstream(std::string(EPL_SOURCE_DIR) + "/" + path) << text;
    return;
  }
  EXPECT_TRUE(read_page(path) == text) << path << " is stale: run " << program << " with EPL_UPDATE_DOCS=1";
}

// The same for what stands between two marks.
inline void expect_part_of_page(const std::string& path, std::string_view begin_mark, std::string_view end_mark,
                                const std::string& text, const std::string& program) {
  const std::string page = read_page(path);
  const size_t begin = page.find(begin_mark), end = page.find(end_mark);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos && begin < end) << path << " lacks its marks";
  expect_page(path, page.substr(0, begin + begin_mark.size()) + text + page.substr(end), program);
}

}  // namespace epl
