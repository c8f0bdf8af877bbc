#include <algorithm>

#include "core/base/shown.h"
#include "core/train/metrics/common.h"

namespace epl {
namespace {

enum class Average : uint8_t { binary, macro, micro };

class F1 : public Metric {
 public:
  F1(const MetricSubject& subject, Average average, int64_t positive)
      : subject_(subject), average_(average), positive_(positive) {
    counts_.resize(static_cast<size_t>(subject.task == Task::classes ? subject.classes() : columns()));
  }
  void add(const Scored& samples) override {
    if (subject_.task == Task::classes) {
      const metrics::Positions positions(samples, subject_);
      for (int64_t i = 0; i < positions.count(); ++i) {
        if (positions.counts(i)) count(positions.target(i), positions.best(i));
      }
      return;
    }
    // Probabilities: every column is a label of its own.
    const metrics::Elements output(samples.output), target(samples.target);
    for (int64_t i = 0; i < samples.output.elements(); ++i) {
      Counts& own = counts_[static_cast<size_t>(i % columns())];
      const bool is = target[i] > 0.5, said = output[i] > 0;
      own.hits += is && said;
      own.missed += is && !said;
      own.wrong += said && !is;
    }
  }
  void merge(const Metric& other) override {
    const auto& from = static_cast<const F1&>(other);
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i].add(from.counts_[i]);
  }
  double value() const override {
    Counts all;
    double sum = 0;
    int64_t present = 0;
    for (const Counts& one : counts_) {
      all.add(one);
      // A class that neither side names has no part in the mean; a label of its own always has one.
      if (one.total() == 0 && subject_.task == Task::classes) continue;
      sum += one.f1();
      ++present;
    }
    if (average_ == Average::binary)
      return counts_[static_cast<size_t>(subject_.task == Task::classes ? positive_ : 0)].f1();
    if (average_ == Average::micro) return all.f1();
    return present > 0 ? sum / static_cast<double>(present) : metrics::no_value;
  }

 private:
  struct Counts {
    int64_t hits = 0, wrong = 0, missed = 0;
    int64_t total() const { return hits + wrong + missed; }
    void add(const Counts& other) {
      hits += other.hits;
      wrong += other.wrong;
      missed += other.missed;
    }
    double f1() const {
      const double all = static_cast<double>(2 * hits + wrong + missed);
      return all > 0 ? 2 * static_cast<double>(hits) / all : 0.0;
    }
  };
  int64_t columns() const {
    const TensorType& type = subject_.output;
    return type.ndim() > 1 ? std::max<int64_t>(type.dim(-1), 1) : 1;
  }
  void count(int64_t target, int64_t said) {
    if (target == said) {
      ++counts_[static_cast<size_t>(said)].hits;
      return;
    }
    if (said >= 0) ++counts_[static_cast<size_t>(said)].wrong;
    if (target >= 0 && target < subject_.classes()) ++counts_[static_cast<size_t>(target)].missed;
  }

  MetricSubject subject_;
  Average average_;
  int64_t positive_;
  std::vector<Counts> counts_;
};

Result<std::unique_ptr<Metric>> make(const Attributes& options, const MetricSubject& subject) {
  if (subject.task == Task::numbers) return metrics::needs("f1", "classes or probabilities", subject);
  const bool several =
      subject.task == Task::classes ? subject.classes() != 2 : subject.output.ndim() > 1 && subject.output.dim(-1) != 1;
  const std::string& wanted = options.text("average");
  Average average = several ? Average::macro : Average::binary;
  if (wanted == "binary" || wanted == "macro" || wanted == "micro") {
    average = wanted == "binary" ? Average::binary : wanted == "macro" ? Average::macro : Average::micro;
  } else if (!wanted.empty()) {
    return invalid("metric f1: average is ", shown(wanted), "; there are binary, macro and micro");
  }
  const int64_t positive = options.integer("positive");
  if (average == Average::binary && several)
    return invalid("metric f1: average binary is of two classes; take macro or micro");
  if (positive < 0 || positive > 1)
    return invalid("metric f1: positive is ", positive, "; of two classes it is 0 or 1");
  return std::unique_ptr<Metric>(std::make_unique<F1>(subject, average, positive));
}

}  // namespace

EPL_METRIC(f1) {
  return {.doc =
              "The harmonic mean of precision and recall, 0 where both are 0. `average`: binary, of class `positive` "
              "of two (the default "
              "there); macro, the mean over classes that occur or were predicted (the default for more); micro. For "
              "probabilities "
              "each column is a label, predicted where its logit > 0. sklearn.metrics.f1_score.",
          .options = {{"average", std::string()}, {"positive", int64_t{1}}},
          .higher_is_better = true,
          .make = make};
}

}  // namespace epl
