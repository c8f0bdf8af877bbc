// One training case: trained through the C API and compared with its known answers.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/job.h"
#include "tools/reference.h"

namespace epl::tools {

struct CheckOptions {
  JobOptions job;
  std::vector<std::string> cases;
  std::string precision = "f32";
  bool details = false, layouts = false, texts = false;
  bool without_state = false;           // train with the optimizer that keeps none
  std::string strategies;               // file of a list
  std::string options;                  // of another one, to stand beside those strategies
  int64_t every = 1;                    // of the pairs of case and strategy
  int64_t phase = 0;                    // pairs that count as gone by before the first
  bool exact = false;                   // each strategy is compared with itself on the CPU, to the bit
  std::vector<std::string> may_refuse;  // parts of reasons for which the device may refuse what the CPU takes
  int64_t processes = 1;                // of this host, over which the ranks are spread
};

// A way to cut the work, and its result.
struct LayoutResult {
  int threads = 1;
  int64_t micro_batches = 1, ranks = 1;
  std::string hash, refused;  // one of them
  int64_t planned = 0, measured = 0;
};

struct Outcome {
  double loss_error = 0, gradient_error = 0, parameter_error = 0;
  std::string worst_gradient, worst_parameter;
  std::vector<std::string> notes;
  bool pass = true;
  int64_t planned = 0, measured = 0;
  std::string hash;
  std::vector<LayoutResult> layouts;
  std::vector<double> losses, step_seconds;  // by step
  int64_t processes = 1;                     // that have found this
  double seconds_per_step() const;           // the median
};

// Trains the case of a folder (model.onnx, train.safetensors, reference.json) and compares every number; with
// `layouts`, trains it in each of them again and compares the weights' hashes. Throws where it cannot run.
Outcome run_case(const CheckOptions& o, const std::string& folder);

// What a case is trained with, for those who train it in other ways.
struct OpenedCase {
  Engine engine;
  Model model;
  Dataset data;
  Trainer trainer;
};
OpenedCase open_case(const CheckOptions& o, const std::string& folder);
// The nodes of its forward pass, which scopes match.
std::vector<std::string> case_nodes(const CheckOptions& o, const std::string& folder);
// The peak of its plan's fullest rank, in bytes.
int64_t case_peak(const CheckOptions& o, const std::string& folder);
// What the kernels of its plan are compiled from: lines of JSON (epl_plan_print, "texts").
std::string case_texts(const CheckOptions& o, const std::string& folder);

}  // namespace epl::tools
