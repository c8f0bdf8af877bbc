// How plans are made, from options or with the decisions of a file.
#pragma once

#include <memory>

#include "core/capi/objects.h"

namespace epl::capi {

// What a caller asks for; ranks are 0 where nothing is said.
struct PlanWish {
  PlanOptions options;
  uint64_t seed = 0;
};
Result<PlanWish> plan_wish(const epl_model& model, const epl_trainer* trainer, const epl_strategy* strategy,
                           const epl_plan_options* options);
Result<std::unique_ptr<epl_plan>> made_plan(const epl_model& model, const PlanWish& wish);

}  // namespace epl::capi
