// The report page: its data is whole, safe and of bounded size. What it looks like is tested in a browser
// (tests/tools/browser.py).
#include "tools/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tools/words.h"

namespace epl::tools::report_test {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

// The data of a page, as its script reads it.
Json data_of(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const size_t first = page.find(open) + open.size();
  return parse_json(page.substr(first, page.find("</script>", first) - first));
}

TEST(Report, TheDataIsInThePageAndCannotLeaveIt) {
  const Json data = {{"title", "GPT </script><script>alert(1)</script> & friends"},
                     {"sample", "In the <beginning>\n\xff\x01"},
                     {"command", "epl train \"x\""}};
  const std::string page = render_report(data);
  EXPECT_EQ(count(page, "<script"), 2u);  // the data and the page's own
  EXPECT_EQ(count(page, "/*EPL_DATA*/"), 0u);
  const Json read = data_of(page);
  EXPECT_EQ(read.at("title"), data.at("title"));
  EXPECT_EQ(read.at("sample"), "In the <beginning>\n\xEF\xBF\xBD\x01");  // what is not UTF-8 is replaced
  EXPECT_EQ(read.at("command"), data.at("command"));
  EXPECT_EQ(count(page, "src=") + count(page, "href=") + count(page, "@import") + count(page, "url("),
            0u);  // nothing is fetched
  EXPECT_EQ(count(page, "viewport"), 1u);
}

TEST(Report, ThePageOfAPlanIsAsSafe) {
  const std::string page = render_plan({{"title", "</script><script>alert(1)</script>"}});
  EXPECT_EQ(count(page, "<script"), 2u);
  EXPECT_EQ(data_of(page).at("title"), "</script><script>alert(1)</script>");
  EXPECT_EQ(count(page, "src=") + count(page, "href=") + count(page, "@import") + count(page, "url("), 0u);
}

TEST(Report, ThinnedCurvesKeepTheirEndsAndExtremes) {
  Points points;
  for (int i = 0; i < 1'000'000; ++i) points.emplace_back(i, 3 - 1e-6 * i);
  points[123'456].second = 77;
  points[654'321].second = -5;
  points[777'777].second = std::numeric_limits<double>::quiet_NaN();
  const Points thin = thinned(points, 2000);
  EXPECT_LE(thin.size(), 2002u);
  EXPECT_GT(thin.size(), 1000u);
  EXPECT_EQ(thin.front().first, 0);
  EXPECT_EQ(thin.back().first, 999'999);
  double low = 0, high = 0;
  for (size_t i = 0; i < thin.size(); ++i) {
    if (i > 0) {
      EXPECT_LT(thin[i - 1].first, thin[i].first);
    }
    low = std::min(low, thin[i].second);
    high = std::max(high, thin[i].second);
  }
  EXPECT_EQ(low, -5);
  EXPECT_EQ(high, 77);
  const Points few = {{1, 2}, {2, 3}};
  EXPECT_EQ(thinned(few, 100), few);
  // A stretch of nothing but NaN is not a reason to lose the rest.
  for (auto& [step, value] : points) value = std::numeric_limits<double>::quiet_NaN();
  points.back().second = 1;
  EXPECT_EQ(thinned(points, 100).back().second, 1);
}

TEST(Text, NumbersAreReadable) {
  EXPECT_EQ(with_thousands(0), "0");
  EXPECT_EQ(with_thousands(999), "999");
  EXPECT_EQ(with_thousands(-1234567), "-1,234,567");
  EXPECT_EQ(with_thousands(-123), "-123");
  EXPECT_EQ(readable_bytes(1023), "1023 bytes");
  EXPECT_EQ(readable_bytes(1536), "1.5 KiB");
  EXPECT_EQ(readable_bytes(int64_t{3} << 30), "3.0 GiB");
}

TEST(Words, TheNearestIsASlipOfTheFingers) {
  const std::vector<std::string> commands = {"train", "evaluate", "plan", "inspect"};
  EXPECT_EQ(nearest("trian", commands), "train");
  EXPECT_EQ(nearest("inspct", commands), "inspect");
  EXPECT_EQ(nearest("dance", commands), "");
  EXPECT_EQ(nearest("", commands), "");
  EXPECT_EQ(did_you_mean("plna", commands), "; did you mean plan?");
  EXPECT_EQ(listed({"a", "b", "c"}), "a, b and c");
}

}  // namespace
}  // namespace epl::tools::report_test
