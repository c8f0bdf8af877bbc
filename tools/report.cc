#include "tools/report.h"

#include <algorithm>
#include <cmath>

namespace epl::tools {

// tools/report.html, tools/plan.html with a part of its script, and what pages share: made strings by the build.
extern const char report_template[];
extern const char plan_template[];
extern const char plan_costs[];
extern const char page_style[];
extern const char page_script[];

namespace {

void fill(std::string& page, std::string_view place, std::string_view text) {
  page.replace(page.find(place), place.size(), text);
}

std::string filled(std::string page, const Json& data) {
  std::string json = print_json(data), safe;
  safe.reserve(json.size());
  // "</script>" in a name would end the element that the data lies in.
  for (char c : json) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  fill(page, "/*EPL_STYLE*/", page_style);
  fill(page, "/*EPL_SCRIPT*/", page_script);
  fill(page, "/*EPL_DATA*/", safe);
  return page;
}

}  // namespace

std::string render_report(const Json& data) { return filled(report_template, data); }
std::string render_plan(const Json& data) {
  std::string page = plan_template;
  fill(page, "/*EPL_COSTS*/", plan_costs);
  return filled(std::move(page), data);
}

Points thinned(const Points& points, size_t most) {
  if (points.size() <= most || most < 4) return points;
  Points out;
  const size_t stretches = most / 2;
  for (size_t i = 0; i < stretches; ++i) {
    const size_t first = points.size() * i / stretches, last = points.size() * (i + 1) / stretches;
    size_t low = first, high = first;
    for (size_t at = first; at < last; ++at) {
      if (!std::isfinite(points[at].second)) continue;
      if (!std::isfinite(points[low].second) || points[at].second < points[low].second) low = at;
      if (!std::isfinite(points[high].second) || points[at].second > points[high].second) high = at;
    }
    if (i == 0) out.push_back(points[first]);
    for (const size_t at : {std::min(low, high), std::max(low, high)}) {
      if (out.empty() || points[at].first > out.back().first) out.push_back(points[at]);
    }
  }
  if (points.back().first > out.back().first) out.push_back(points.back());
  return out;
}

}  // namespace epl::tools
