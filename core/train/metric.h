// Metrics: rows that turn what a model said and what was right into one number, over any number of batches.
//
// A metric keeps counts, exact sums or the pairs themselves, so that its number is that of all the samples together: it
// depends neither on the batches nor on their order, and two metrics merge into one. It runs on the host.
//
//   EPL_METRIC(accuracy) {
//     return {.doc = "...", .higher_is_better = true, .make = [](const Attributes&, const MetricSubject&) { ... }};
//   }
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/train/loss.h"

namespace epl {

// What a metric compares. The number of samples is not fixed, the size of the class dimension is.
struct MetricSubject {
  Task task = Task::numbers;
  TensorType output;               // of a batch
  int class_axis = -1;             // of `output`, where the task is classes
  std::optional<int64_t> ignored;  // a class index that does not count
  int sample_dim = 0;              // of `output`, for metrics that treat the columns of a sample apart
  int64_t classes() const { return task == Task::classes ? output.shape[static_cast<size_t>(class_axis)] : 2; }
};

// Some samples: the output and the target, row-major, of the same number of samples. Their shapes are the same except
// for the class dimension, which the target lacks.
struct Scored {
  Tensor output, target;
  // -log p(target) of every position in the order of `target`, where the loss has it already; else empty.
  Tensor log_loss;
};

class Metric {
 public:
  virtual ~Metric() = default;
  virtual void add(const Scored& samples) = 0;
  // `other` was made by the same row with the same options.
  virtual void merge(const Metric& other) = 0;
  virtual double value() const = 0;  // NaN where nothing counted
};

struct MetricRow {
  std::string name;
  std::string doc;  // what it is and of which tasks
  std::vector<Option> options;
  bool higher_is_better = false;
  Result<std::unique_ptr<Metric>> (*make)(const Attributes& options, const MetricSubject& subject) = nullptr;
};
using MetricTable = TableOf<MetricRow>;
const MetricTable& metric_table();  // generated

// One metric as it was asked for: "top_k(k=5)". Besides the row's own options: `output` and `target` name an output of
// the model and an input of the plan to compare, instead of the loss's; `ignore_index` is that of a target of class
// indices.
struct MetricSpec {
  const MetricRow* row = nullptr;
  std::string label;   // as results are called
  Attributes options;  // the row's, complete
  std::string output, target;
  std::optional<int64_t> ignored;
};
// "accuracy, top_k(k=5)"; errors name the nearest metric or option.
Result<std::vector<MetricSpec>> parse_metrics(std::string_view text);

#define EPL_METRIC(row_name) EPL_ROW(EPL_METRIC, row_name, ::epl::MetricTable, ::epl::MetricRow)

}  // namespace epl
