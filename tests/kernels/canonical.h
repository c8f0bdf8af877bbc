// The canonical order of reductions (backends/cpu/kernels/reduce_order.h), word for word, with scalars.
#pragma once

#include <algorithm>
#include <vector>

#include "backends/cpu/kernels/reduce_order.h"

namespace epl::cpu {

struct ReductionOp {
  const char* name;
  float identity;
  float (*join)(float, float);
};
inline const ReductionOp canonical_sum = {"sum", 0, [](float a, float b) { return a + b; }};

inline float tree(std::vector<float> v, const ReductionOp& op) {
  while (v.size() > 1) {
    std::vector<float> next;
    for (size_t i = 0; i < v.size(); i += 2) next.push_back(i + 1 < v.size() ? op.join(v[i], v[i + 1]) : v[i]);
    v = next;
  }
  return v[0];
}

inline float canonical(const std::vector<float>& values, int64_t units, const ReductionOp& op) {
  int64_t run = static_cast<int64_t>(values.size()) / units;
  std::vector<float> runs;
  for (int64_t u = 0; u < units; ++u) {
    std::vector<float> segments;
    for (int64_t s = 0; s < run; s += reduce_segment) {
      std::vector<float> lanes(reduce_lanes, op.identity);
      for (int64_t i = s; i < std::min(run, s + reduce_segment); ++i) {
        float& lane = lanes[(i - s) % reduce_lanes];
        lane = op.join(lane, values[u * run + i]);
      }
      for (int half = 8; half > 0; half /= 2) {
        for (int l = 0; l < half; ++l) lanes[l] = op.join(lanes[l], lanes[l + half]);
      }
      segments.push_back(lanes[0]);
    }
    runs.push_back(tree(segments, op));
  }
  return tree(runs, op);
}

}  // namespace epl::cpu
