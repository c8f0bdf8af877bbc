// The page that a training run leaves behind, in one self-contained HTML file: tools/report.html, the template, with
// the data put in as JSON. No font, script or address is fetched: the page opens from a disk without a network, on a
// phone and in the dark.
//
// The data: `title`, `about`, `cards` and `facts` (pairs of texts), `series` (name, group, points [[step, value], ...],
// smooth, markers; the groups are charts, "loss" the first), `levels` (name, value: drawn across the losses),
// `loss_unit`, `smoothing`, `memory` (about, parts, arena_bytes, instructions, backward_from, update_from, ranges,
// left_out), `command`, `sample`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/json.h"
#include "tools/text.h"

namespace epl::tools {

// The complete page. Names and texts of any bytes are safe in it.
std::string render_report(const Json& data);
// The page of a plan, tools/plan.html. The data: what epl_plan_describe says of "overview", and `title`, `about`,
// `cards`, `command`.
std::string render_plan(const Json& data);

// (step, value), steps ascending.
using Points = std::vector<std::pair<double, double>>;

// The same curve in at most about `most` points: of each stretch the smallest and the largest value, and the ends; what
// is not finite stays as a gap. For a page of bounded size that looks the same.
Points thinned(const Points& points, size_t most);

}  // namespace epl::tools
