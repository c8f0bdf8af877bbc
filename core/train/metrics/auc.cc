#include <algorithm>

#include "core/train/metrics/common.h"

namespace epl {
namespace {

// Keeps every score with its label, because no summary of them is exact.
class Auc : public Metric {
 public:
  explicit Auc(const MetricSubject& subject) : subject_(subject) {
    const TensorType& type = subject.output;
    const bool labels = subject.task == Task::probabilities && type.ndim() > 1;
    columns_.resize(static_cast<size_t>(labels ? std::max<int64_t>(type.dim(-1), 1) : 1));
  }
  void add(const Scored& samples) override {
    if (subject_.task == Task::classes) {
      const metrics::Positions positions(samples, subject_);
      for (int64_t i = 0; i < positions.count(); ++i) {
        if (positions.counts(i))
          columns_[0].push_back({positions.score(i, 1) - positions.score(i, 0), positions.target(i) == 1});
      }
      return;
    }
    const metrics::Elements output(samples.output), target(samples.target);
    for (int64_t i = 0; i < samples.output.elements(); ++i) {
      columns_[static_cast<size_t>(i) % columns_.size()].push_back({output[i], target[i] > 0.5});
    }
  }
  void merge(const Metric& other) override {
    const auto& from = static_cast<const Auc&>(other);
    for (size_t i = 0; i < columns_.size(); ++i)
      columns_[i].insert(columns_[i].end(), from.columns_[i].begin(), from.columns_[i].end());
  }
  double value() const override {
    double sum = 0;
    for (const auto& column : columns_) sum += area(column);
    return sum / static_cast<double>(columns_.size());
  }

 private:
  struct Pair {
    double score;
    bool positive;
  };
  // The share of (positive, negative) pairs that the scores put in the right order, half for equal ones: the area under
  // the curve. Integers until the division.
  static double area(std::vector<Pair> pairs) {
    if (std::ranges::any_of(pairs, [](const Pair& p) { return std::isnan(p.score); })) return metrics::no_value;
    std::ranges::sort(pairs, {}, &Pair::score);
    uint64_t below = 0, positives = 0;
    unsigned __int128 twice_right = 0;
    for (size_t first = 0; first < pairs.size();) {
      size_t last = first;
      uint64_t here = 0;
      while (last < pairs.size() && pairs[last].score == pairs[first].score) here += pairs[last++].positive;
      const uint64_t negatives = static_cast<uint64_t>(last - first) - here;
      twice_right += static_cast<unsigned __int128>(here) * (2 * below + negatives);
      below += negatives;
      positives += here;
      first = last;
    }
    if (below == 0 || positives == 0) return metrics::no_value;
    return static_cast<double>(twice_right) / (2 * static_cast<double>(positives) * static_cast<double>(below));
  }

  MetricSubject subject_;
  std::vector<std::vector<Pair>> columns_;
};

}  // namespace

EPL_METRIC(auc) {
  return {.doc =
              "The area under the receiver operating characteristic: how often a positive has a higher score than a "
              "negative, equal ones "
              "counting half. Of two classes (score: the second's less the first's) or of probabilities, the mean over "
              "their "
              "columns; not a number where a column has one kind alone. Keeps 16 bytes a sample. "
              "sklearn.metrics.roc_auc_score.",
          .higher_is_better = true,
          .make = [](const Attributes&, const MetricSubject& subject) -> Result<std::unique_ptr<Metric>> {
            if (subject.task == Task::numbers || subject.classes() != 2)
              return metrics::needs("auc", "two classes or probabilities", subject);
            return std::unique_ptr<Metric>(std::make_unique<Auc>(subject));
          }};
}

}  // namespace epl
