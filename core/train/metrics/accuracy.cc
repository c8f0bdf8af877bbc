#include "core/train/metrics/common.h"

namespace epl {
namespace {

class Accuracy : public metrics::Share {
 public:
  explicit Accuracy(const MetricSubject& subject) : subject_(subject) {}
  void add(const Scored& samples) override {
    if (subject_.task == Task::classes) {
      const metrics::Positions positions(samples, subject_);
      for (int64_t i = 0; i < positions.count(); ++i) {
        if (positions.counts(i)) count(positions.best(i) == positions.target(i));
      }
      return;
    }
    const metrics::Elements output(samples.output), target(samples.target);
    for (int64_t i = 0; i < samples.output.elements(); ++i) {
      count(!std::isnan(output[i]) && (output[i] > 0) == (target[i] > 0.5));
    }
  }

 private:
  MetricSubject subject_;
};

}  // namespace

EPL_METRIC(accuracy) {
  return {.doc =
              "The share of positions whose largest score is the target's class (the first of equal ones), or, for "
              "probabilities, of "
              "elements where logit > 0 and target > 0.5 agree. sklearn.metrics.accuracy_score.",
          .higher_is_better = true,
          .make = [](const Attributes&, const MetricSubject& subject) -> Result<std::unique_ptr<Metric>> {
            if (subject.task == Task::numbers) return metrics::needs("accuracy", "classes or probabilities", subject);
            return std::unique_ptr<Metric>(std::make_unique<Accuracy>(subject));
          }};
}

}  // namespace epl
