#include "core/train/metrics/common.h"

namespace epl {
namespace {

class TopK : public metrics::Share {
 public:
  TopK(const MetricSubject& subject, int64_t k) : subject_(subject), k_(k) {}
  void add(const Scored& samples) override {
    const metrics::Positions positions(samples, subject_);
    for (int64_t i = 0; i < positions.count(); ++i) {
      if (positions.counts(i)) count(positions.has_class(i) && rank(positions, i) < k_);
    }
  }

 private:
  // How many classes stand before the target's: those with more, and of those with as much the ones of lower index. A
  // position with a NaN has no ranks.
  int64_t rank(const metrics::Positions& positions, int64_t i) const {
    const int64_t target = positions.target(i);
    const double own = positions.score(i, target);
    int64_t before = 0;
    for (int64_t c = 0; c < positions.classes(); ++c) {
      const double one = positions.score(i, c);
      if (std::isnan(one)) return k_;
      before += one > own || (one == own && c < target);
    }
    return before;
  }

  MetricSubject subject_;
  int64_t k_;
};

}  // namespace

EPL_METRIC(top_k) {
  return {.doc =
              "The share of positions whose target's class is among the `k` largest scores (of equal ones the lower "
              "index stands first). "
              "sklearn.metrics.top_k_accuracy_score.",
          .options = {{"k", int64_t{5}}},
          .higher_is_better = true,
          .make = [](const Attributes& options, const MetricSubject& subject) -> Result<std::unique_ptr<Metric>> {
            if (subject.task != Task::classes) return metrics::needs("top_k", "classes", subject);
            const int64_t k = options.integer("k");
            if (k < 1 || k > subject.classes())
              return invalid("metric top_k: k = ", k, "; there are ", subject.classes(), " classes");
            return std::unique_ptr<Metric>(std::make_unique<TopK>(subject, k));
          }};
}

}  // namespace epl
