// A train step as a graph: forward, loss, gradients, clipping, optimizer.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/train/loss.h"
#include "core/train/optimizer.h"
#include "core/train/schedule.h"

namespace epl {

// Parameters whose names match share options; the first group that matches a parameter has it.
struct ParameterGroup {
  std::vector<std::string> patterns;  // globs over parameter names
  Attributes options;                 // over the optimizer's, for example {weight_decay=0.0, lr=0.001}
  bool frozen = false;
};

struct TrainOptions {
  LossSpec loss;
  std::string optimizer = "sgd";
  Attributes optimizer_options;  // lr and what the row declares
  std::vector<ParameterGroup> groups;
  std::vector<std::string> train_only;  // globs; where there are any, a parameter that none matches is frozen
  std::vector<std::string> adapters;  // names of parameters that are trained whatever else is said; with any, the rest
                                      // is frozen but for `train_only`
  LearningRateSchedule schedule;
  DType precision = DType::f32;        // f64: the float32 of the model is computed as float64 (core/train/precision.h)
  double clip_norm = 0;                // global gradient norm, 0 for none (torch.nn.utils.clip_grad_norm_)
  bool report_gradient_norms = false;  // adds an output "gradient_norm:<parameter>" for each
  bool keep_gradients = false;         // each is a state "<parameter>.gradient" as well, which the update may be given
  double gradient_factor = 1;          // that gradients are multiplied with behind their reduction
  bool scales_loss = false;            // gradients begin with StepFacts::loss_scale, and are divided by it in the end
  bool freezable = false;              // parameters can be left alone, each by itself, while a session runs
  // A step takes the means of several runs of the graph, each of its own samples.
  bool independent_micro_batches = false;
};

// Why these options freeze a parameter; empty where they train it.
std::string frozen_by(const TrainOptions& options, const std::string& parameter);

// What the host knows before a step.
struct StepFacts {
  int64_t step = 0;                      // from 0
  uint64_t seed = 0;                     // of all random numbers
  double rate_scale = 1;                 // that the learning rate is multiplied by
  double loss_scale = 1;                 // where options say `scales_loss`
  std::span<const double> rates = {};    // by group, those outside any first, instead of their option lr; empty: that
  std::span<const uint8_t> frozen = {};  // by TrainStep::trained, where options say `freezable`; empty: none
  bool updates = true;                   // false: gradients alone, where options say `keep_gradients`
  bool gradients_given = false;          // the update takes the gradients that the state has
  bool last_applied = true;              // whether the step before changed the state
  // An output of the step before, by its name; null where there is none.
  std::function<const Tensor*(std::string_view name)> last_output = [](std::string_view) { return nullptr; };
};

// A scalar leaf that the host sets before each step.
struct HostScalar {
  Value value;
  std::function<double(const StepFacts& facts)> at;
};

// The output that says whether the step may be applied: -1 where it may, 0 where the loss is NaN or infinite, else the
// number, from 1 on, of the first of `TrainStep::trained` whose gradient holds a NaN or an infinity.
inline constexpr std::string_view verdict_output = "first_not_finite_value";

// The output that says how much counts in the batch, where all that is trained goes through means of what counts: at 0
// the loss is NaN, because it is over nothing.
inline constexpr std::string_view counted_output = "loss.counted";

struct TrainStep {
  Graph graph;                       // outputs: "loss", the verdict, what counts, "gradient_norm" where it clips,
                                     // "gradient_norm:<parameter>" on request
  std::vector<std::string> trained;  // names of the parameters that have an update
  std::vector<std::pair<std::string, std::string>> untrained;  // name, reason
  std::vector<HostScalar> scalars;
  std::vector<double> rates;       // the option lr of each group, those outside any first
  int first_group = 0;             // in `rates`, of the first trained parameter
  std::vector<std::string> notes;  // what the owner of the model should know: of its loss, of what it does not reach
  Schedule schedule;
  LossFacts loss;
};

// Behind a parameter's name: the state with its gradient.
inline constexpr std::string_view gradient_suffix = ".gradient";
// The scalar that makes an update take the gradients that the state has.
inline constexpr std::string_view gradients_given_scalar = "epl.gradients_given";

// `forward` as a frontend binds it in train mode. Names of optimizer state: "<parameter>.<state>".
Result<TrainStep> build_train_step(const Graph& forward, const TrainOptions& options);

}  // namespace epl
