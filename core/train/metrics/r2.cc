#include "core/train/metrics/common.h"

namespace epl {
namespace {

// Of each column (an element of a sample): 1 - (what is left over) / (the spread of the targets).
class Determination : public Metric {
 public:
  explicit Determination(const MetricSubject& subject) {
    for (int d = 0; d < subject.output.ndim(); ++d) {
      const int64_t size = subject.output.shape[static_cast<size_t>(d)];
      if (d < subject.sample_dim) outer_ *= size;
      if (d > subject.sample_dim) inner_ *= size;
    }
    columns_.resize(static_cast<size_t>(outer_ * inner_));
  }
  void add(const Scored& samples) override {
    const metrics::Elements output(samples.output), target(samples.target);
    const int64_t rows = columns_.empty() ? 0 : samples.output.elements() / (outer_ * inner_);
    for (int64_t i = 0; i < samples.output.elements(); ++i) {
      Column& column = columns_[static_cast<size_t>(i / (rows * inner_) * inner_ + i % inner_)];
      const double y = target[i], difference = y - output[i];
      column.left.add(difference * difference);
      column.sum.add(y);
      column.squares.add(y * y);
      column.squares.add(std::fma(y, y, -(y * y)));  // what the product has lost
    }
    rows_ += rows;
  }
  void merge(const Metric& other) override {
    const auto& from = static_cast<const Determination&>(other);
    for (size_t i = 0; i < columns_.size(); ++i) {
      columns_[i].left.add(from.columns_[i].left);
      columns_[i].sum.add(from.columns_[i].sum);
      columns_[i].squares.add(from.columns_[i].squares);
    }
    rows_ += from.rows_;
  }
  // As scikit-learn: a constant target counts 1 where it is met and 0 where it is not.
  double value() const override {
    if (rows_ < 2) return metrics::no_value;
    ExactSum total;
    for (const Column& column : columns_) {
      const double left = column.left.value(), spread = spread_of(column);
      total.add(spread > 0 ? 1 - left / spread : left > 0 ? 0.0 : left == 0 ? 1.0 : metrics::no_value);
    }
    return total.value() / static_cast<double>(columns_.size());
  }

 private:
  struct Column {
    ExactSum left, sum, squares;
  };
  // The sum of (y - mean)^2 = (n * sum(y^2) - sum(y)^2) / n. The two terms nearly cancel for targets far from zero, so
  // they are subtracted in twice the precision.
  double spread_of(const Column& column) const {
    const double n = static_cast<double>(rows_), q = column.squares.value(), s = column.sum.value();
    const double nq = n * q, nq_rest = std::fma(n, q, -nq), ss = s * s, ss_rest = std::fma(s, s, -ss);
    const double difference = (nq - ss) + (nq_rest - ss_rest) + n * column.squares.rest() - 2 * s * column.sum.rest();
    return difference / n;
  }

  int64_t outer_ = 1, inner_ = 1, rows_ = 0;
  std::vector<Column> columns_;
};

}  // namespace

EPL_METRIC(r2) {
  return {.doc =
              "1 - sum((target - output)^2) / sum((target - mean)^2), the mean of this over the columns of a sample. "
              "sklearn.metrics.r2_score.",
          .higher_is_better = true,
          .make = [](const Attributes&, const MetricSubject& subject) -> Result<std::unique_ptr<Metric>> {
            if (subject.task != Task::numbers) return metrics::needs("r2", "numbers", subject);
            return std::unique_ptr<Metric>(std::make_unique<Determination>(subject));
          }};
}

}  // namespace epl
