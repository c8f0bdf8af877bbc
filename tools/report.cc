#include "tools/report.h"

#include <algorithm>
#include <cmath>

namespace epl::tools {

// tools/report.html and tools/plan.html, made strings by the build.
extern const char report_template[];
extern const char plan_template[];

namespace {
constexpr std::string_view kPlace = "/*EPL_DATA*/";
}

namespace {

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
  return page.replace(page.find(kPlace), kPlace.size(), safe);
}

}  // namespace

std::string render_report(const Json& data) { return filled(report_template, data); }
std::string render_plan(const Json& data) { return filled(plan_template, data); }

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
