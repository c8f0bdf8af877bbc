// How far numbers are off: over all elements, whatever the columns.
#include "core/train/metrics/common.h"

namespace epl {
namespace {

class AbsoluteError : public metrics::Mean {
 public:
  void add(const Scored& samples) override {
    const metrics::Elements output(samples.output), target(samples.target);
    for (int64_t i = 0; i < samples.output.elements(); ++i) count(std::fabs(output[i] - target[i]));
  }
};

class RootSquaredError : public metrics::Mean {
 public:
  void add(const Scored& samples) override {
    const metrics::Elements output(samples.output), target(samples.target);
    for (int64_t i = 0; i < samples.output.elements(); ++i) {
      const double difference = output[i] - target[i];
      count(difference * difference);
    }
  }
  double value() const override { return std::sqrt(Mean::value()); }
};

template <class T> Result<std::unique_ptr<Metric>> of_numbers(std::string_view name, const MetricSubject& subject) {
  if (subject.task != Task::numbers) return metrics::needs(name, "numbers", subject);
  return std::unique_ptr<Metric>(std::make_unique<T>());
}

}  // namespace

EPL_METRIC(mae) {
  return {
      .doc = "The mean of |output - target| over all elements. sklearn.metrics.mean_absolute_error, torch.nn.L1Loss.",
      .make = [](const Attributes&, const MetricSubject& subject) {
        return of_numbers<AbsoluteError>("mae", subject);
      }};
}

EPL_METRIC(rmse) {
  return {.doc =
              "The square root of the mean of (output - target)^2 over all elements. The root of torch.nn.MSELoss; of "
              "a single column "
              "sklearn.metrics.root_mean_squared_error.",
          .make = [](const Attributes&, const MetricSubject& subject) {
            return of_numbers<RootSquaredError>("rmse", subject);
          }};
}

}  // namespace epl
