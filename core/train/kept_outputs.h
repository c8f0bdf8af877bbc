// A train step that gives outputs of the model beside its loss.
#pragma once

#include <string>
#include <vector>

#include "core/train/train_step.h"

namespace epl {

// As build_train_step, with those of the model's outputs that are named. What only they need is not trained.
Result<TrainStep> build_train_step(const Graph& forward, const TrainOptions& options,
                                   const std::vector<std::string>& kept);

}  // namespace epl
