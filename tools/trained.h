// What some steps of training gave, so that two ways to carry them out can be compared number by number.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/job.h"

namespace epl::tools {

struct Trained {
  int32_t code = 0;     // of the error that ended it
  std::string message;  // of that error
  bool planned = false;
  std::vector<double> numbers;                        // the loss of each step, then that of an evaluation
  std::map<std::string, std::vector<double>> values;  // parameters, buffers, optimizer state, predictions
  int64_t planned_bytes = 0, measured_bytes = 0;      // of the fullest rank

  bool ran() const { return code == 0; }
  bool refused() const { return code != 0 && !planned; }
};

// The elements of a tensor, each exactly.
std::vector<double> elements_of(const epl_tensor* tensor);

// One tensor for each input of the train entry.
using Inputs = std::vector<TensorHandle>;

// A step with each of the batches, then an evaluation and a prediction with the last. The library's errors are part of
// the result.
Trained train_steps(const Model& model, const Trainer& trainer, const Strategy& strategy, const JobOptions& job,
                    const std::vector<Inputs>& batches);
// The types of the inputs of the train entry under the default strategy.
std::vector<Port> train_inputs(const Plan& plan);

// In what `b` differs from `a`, "" where it does not: in a bit, or by more than rounding.
std::string difference(const Trained& a, const Trained& b, bool bits);

}  // namespace epl::tools
