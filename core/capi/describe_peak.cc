// What holds the memory of a rank at its peak, and what was planned for a budget, as JSON.
#include "core/capi/describe.h"
#include "core/compile/budget.h"
#include "core/compile/peak.h"

namespace epl::capi {

Json describe_peak(const Peak& peak) {
  Json kinds = Json::array(), largest = Json::array();
  for (const MemoryItem& item : peak.kinds) kinds.push_back({{"kind", item.what}, {"bytes", item.bytes}});
  for (const Peak::Value& value : peak.largest) {
    largest.push_back({{"name", value.name},
                       {"node", value.node},
                       {"phase", value.phase},
                       {"kind", value.kind},
                       {"bytes", value.bytes},
                       {"values", value.values}});
  }
  return {{"entry", peak.entry}, {"kinds", kinds}, {"largest", largest}};
}

Json describe_trials(const std::vector<BudgetTrial>& tried) {
  Json out = Json::array();
  for (const BudgetTrial& trial : tried) {
    out.push_back({{"keys", trial.keys},
                   {"recomputes", trial.again},
                   {"stays_percent", trial.stays},
                   {"peak_bytes", trial.peak},
                   {"seconds", trial.seconds},
                   {"outcome", outcome_name(trial.outcome)}});
  }
  return out;
}

}  // namespace epl::capi
