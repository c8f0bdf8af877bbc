// What metrics share: a view of class scores, sums over elements, and the refusal of what they do not apply to.
#pragma once

#include <cmath>
#include <limits>

#include "core/base/exact_sum.h"
#include "core/train/metric.h"

namespace epl::metrics {

inline constexpr double no_value = std::numeric_limits<double>::quiet_NaN();

inline Status needs(std::string_view metric, std::string_view what, const MetricSubject& subject) {
  const char* task = subject.task == Task::classes         ? "class indices"
                     : subject.task == Task::probabilities ? "probabilities"
                                                           : "numbers";
  return invalid("metric ", metric, " is of ", what, "; the targets here are ", task, " (output ",
                 subject.output.text(), ")");
}

// Elements as doubles, without a switch on the type for each of the common ones.
class Elements {
 public:
  explicit Elements(const Tensor& tensor)
      : tensor_(tensor), floats_(tensor.dtype() == DType::f32 ? static_cast<const float*>(tensor.data()) : nullptr) {}
  double operator[](int64_t i) const { return floats_ ? static_cast<double>(floats_[i]) : tensor_.get(i); }

 private:
  const Tensor& tensor_;
  const float* floats_;
};

// Scores of classes with their targets, position by position in the order of the target.
class Positions {
 public:
  Positions(const Scored& samples, const MetricSubject& subject)
      : target_(samples.target), scores_(samples.output), ignored_(subject.ignored), classes_(subject.classes()) {
    const Shape& shape = samples.output.shape();
    for (size_t d = static_cast<size_t>(subject.class_axis) + 1; d < shape.size(); ++d) inner_ *= shape[d];
  }
  int64_t count() const { return target_.elements(); }
  int64_t classes() const { return classes_; }
  int64_t target(int64_t position) const { return target_.get_int(position); }
  // A target that is not a class counts, as a miss.
  bool counts(int64_t position) const { return !ignored_ || target(position) != *ignored_; }
  double score(int64_t position, int64_t k) const { return scores_[first(position) + k * inner_]; }
  bool has_class(int64_t position) const { return target(position) >= 0 && target(position) < classes_; }
  // The first of the largest scores; -1 where one is not a number.
  int64_t best(int64_t position) const {
    const int64_t begin = first(position);
    int64_t found = 0;
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t k = 0; k < classes_; ++k) {
      const double one = scores_[begin + k * inner_];
      if (std::isnan(one)) return -1;
      if (one > largest) {
        largest = one;
        found = k;
      }
    }
    return found;
  }
  // -log softmax(scores)[target].
  double log_loss(int64_t position) const {
    if (!has_class(position)) return no_value;
    const int64_t top = best(position);
    if (top < 0) return no_value;
    const int64_t begin = first(position);
    const double largest = score(position, top);
    double sum = 0;
    for (int64_t k = 0; k < classes_; ++k) sum += std::exp(scores_[begin + k * inner_] - largest);
    return largest + std::log(sum) - score(position, target(position));
  }

 private:
  int64_t first(int64_t position) const { return position / inner_ * classes_ * inner_ + position % inner_; }
  const Tensor& target_;
  Elements scores_;
  std::optional<int64_t> ignored_;
  int64_t classes_, inner_ = 1;
};

// The share of positions (or elements) that hit.
class Share : public Metric {
 public:
  void merge(const Metric& other) override {
    const auto& from = static_cast<const Share&>(other);
    hits_ += from.hits_;
    total_ += from.total_;
  }
  double value() const override {
    return total_ > 0 ? static_cast<double>(hits_) / static_cast<double>(total_) : no_value;
  }

 protected:
  void count(bool hit) {
    hits_ += hit;
    ++total_;
  }

 private:
  int64_t hits_ = 0, total_ = 0;
};

// The mean of a number over all elements, from an exact sum.
class Mean : public Metric {
 public:
  void merge(const Metric& other) override {
    const auto& from = static_cast<const Mean&>(other);
    sum_.add(from.sum_);
    total_ += from.total_;
  }
  double value() const override { return total_ > 0 ? sum_.value() / static_cast<double>(total_) : no_value; }

 protected:
  void count(double term) {
    sum_.add(term);
    ++total_;
  }

 private:
  ExactSum sum_;
  int64_t total_ = 0;
};

}  // namespace epl::metrics
