// The report page: well-formed, escaped, of bounded size, and true to its data.
#include "tools/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>

namespace epl::tools {
namespace {

// Every opened element is closed in order; enough of XML for what the page uses.
std::string first_unbalanced(const std::string& html) {
  std::vector<std::string> open;
  static const std::regex tag(R"(<(/?)([a-zA-Z0-9]+)([^>]*)>)");
  for (std::sregex_iterator it(html.begin(), html.end(), tag), end; it != end; ++it) {
    const std::string name = (*it)[2], rest = (*it)[3];
    if (name == "meta" || rest.ends_with("/")) continue;
    if ((*it)[1].length() == 0) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return "</" + name + ">";
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : "<" + open.back() + ">";
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

Report example() {
  Report report;
  report.title = "GPT <3M> & friends";
  report.facts = {{"parameters", "3,240,000"}, {"held-out", "1.98 nats per byte"}};
  report.loss_unit = "nats per byte";
  report.curves = {{"training", {{0, 5.6}, {10, 3.1}, {20, 2.4}}}, {"held out", {{0, 5.6}, {20, 2.5}}}};
  report.levels = {{"unigram", 3.01}, {"bigram", 2.3}};
  report.arena_bytes = 4096;
  report.instruction_count = 10;
  report.memory = {{"w", "parameter", 0, 2048, 0, 9}, {"h", "activation", 2048, 1024, 1, 3}, {"dh", "gradient", 3072, 1024, 4, 6}};
  report.sample = "In the <beginning>\n\xff\x01";
  return report;
}

TEST(Report, PageIsBalancedAndEscaped) {
  const std::string page = render_report(example());
  EXPECT_EQ(first_unbalanced(page), "");
  EXPECT_NE(page.find("GPT &lt;3M&gt; &amp; friends"), std::string::npos);
  EXPECT_NE(page.find("In the &lt;beginning&gt;\n\\xff\\x01"), std::string::npos);
  EXPECT_NE(page.find("unigram 3.01"), std::string::npos);
  EXPECT_EQ(count(page, "<polyline"), 2u);
  EXPECT_EQ(count(page, "<svg"), 2u);
  EXPECT_EQ(count(page, "<script") + count(page, "src=") + count(page, "href="), 0u);
}

TEST(Report, CurveGoesThroughItsPoints) {
  const std::string svg = render_curves({{"a", {{0, 1}, {100, 0}}}}, {}, "nats");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(svg, match, std::regex(R"(points="([\d.]+),([\d.]+) ([\d.]+),([\d.]+) ")")));
  EXPECT_LT(std::stod(match[1]), std::stod(match[3]));  // later steps to the right
  EXPECT_LT(std::stod(match[2]), std::stod(match[4]));  // a larger loss further up
}

TEST(Report, CurvesOfNothingAndOfNonsenseAreDrawn) {
  EXPECT_NE(render_curves({}, {}, "nats").find("no step was recorded"), std::string::npos);
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const std::string svg = render_curves({{"a", {{0, nan}, {1, 2}, {2, inf}, {3, 2}}}}, {}, "nats");
  EXPECT_EQ(count(svg, "nan") + count(svg, "inf"), 0u);
  EXPECT_EQ(first_unbalanced(svg), "");
  EXPECT_EQ(first_unbalanced(render_curves({{"one", {{5, 5}}}}, {}, "nats")), "");
}

TEST(Report, LargeSteadyLossHasAnEnd) {
  const std::string steady = render_curves({{"a", {{1, 2.9e18}, {2, 2.9e18}, {3, 2.9e18}}}}, {}, "loss");
  EXPECT_EQ(count(steady, "<polyline"), 1u);
  EXPECT_LT(steady.size(), 10'000u);
  EXPECT_EQ(count(steady, "nan") + count(steady, "inf"), 0u);
  EXPECT_LT(render_curves({{"a", {{1e16, -1e300}, {1e16 + 2, -1e300}}}}, {}, "loss").size(), 10'000u);
  EXPECT_LT(render_curves({{"a", {{0x1p60, 1}}}}, {}, "loss").size(), 10'000u);
}

TEST(Report, LongRunsStaySmall) {
  Curve curve{"a", {}};
  for (int i = 0; i < 1'000'000; ++i) curve.points.push_back({i, 3 - 1e-6 * i});
  EXPECT_LT(render_curves({curve}, {}, "nats").size(), 100'000u);
  std::vector<MemoryRange> memory;
  for (int i = 0; i < 100'000; ++i) memory.push_back({"v" + std::to_string(i), i % 2 ? "activation" : "gradient", i * 64, 64, i, i + 3});
  EXPECT_LT(render_memory(memory, 6'400'000, 100'003).size(), 200'000u);
}

TEST(Report, MemoryShowsEveryLargeRangeInItsPlace) {
  const Report report = example();
  const std::string svg = render_memory(report.memory, report.arena_bytes, report.instruction_count);
  EXPECT_NE(svg.find("w: parameter, 2,048 bytes at 0, instructions 0 to 9"), std::string::npos);
  EXPECT_NE(svg.find("dh: gradient, 1,024 bytes at 3,072, instructions 4 to 6"), std::string::npos);
  EXPECT_NE(render_memory({}, 0, 0).find("no memory to show"), std::string::npos);
}

TEST(Report, NumbersAreReadable) {
  EXPECT_EQ(with_thousands(0), "0");
  EXPECT_EQ(with_thousands(999), "999");
  EXPECT_EQ(with_thousands(-1234567), "-1,234,567");
  EXPECT_EQ(with_thousands(-123), "-123");
  EXPECT_EQ(readable_bytes(1023), "1023 bytes");
  EXPECT_EQ(readable_bytes(1536), "1.5 KiB");
  EXPECT_EQ(readable_bytes(int64_t{3} << 30), "3.0 GiB");
}

}  // namespace
}  // namespace epl::tools
