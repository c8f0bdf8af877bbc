// The average cost of a position, in the two measures by which language models are compared.
#include "core/train/metrics/common.h"

namespace epl {
namespace {

class LogLoss : public metrics::Mean {
 public:
  explicit LogLoss(const MetricSubject& subject) : subject_(subject) {}
  void add(const Scored& samples) override {
    const metrics::Positions positions(samples, subject_);
    for (int64_t i = 0; i < positions.count(); ++i) {
      if (positions.counts(i)) count(samples.log_loss.empty() ? positions.log_loss(i) : samples.log_loss.get(i));
    }
  }

 private:
  MetricSubject subject_;
};

class Perplexity : public LogLoss {
 public:
  using LogLoss::LogLoss;
  double value() const override { return std::exp(LogLoss::value()); }
};

class BitsPerByte : public LogLoss {
 public:
  BitsPerByte(const MetricSubject& subject, double bytes) : LogLoss(subject), bytes_(bytes) {}
  double value() const override { return LogLoss::value() / (std::log(2.0) * bytes_); }

 private:
  double bytes_;
};

}  // namespace

EPL_METRIC(perplexity) {
  return {.doc =
              "exp of the mean of -log softmax(output)[target] over the positions that count. Label smoothing and "
              "class weights of the "
              "loss have no part in it. torch.exp of torch.nn.functional.cross_entropy.",
          .make = [](const Attributes&, const MetricSubject& subject) -> Result<std::unique_ptr<Metric>> {
            if (subject.task != Task::classes) return metrics::needs("perplexity", "classes", subject);
            return std::unique_ptr<Metric>(std::make_unique<Perplexity>(subject));
          }};
}

EPL_METRIC(bits_per_byte) {
  return {.doc =
              "The mean of -log2 softmax(output)[target] over the positions that count, divided by the bytes that a "
              "position stands for, "
              "`bytes`: 1 for a model of bytes, the mean length of a token for one of tokens.",
          .options = {{"bytes", 1.0}},
          .make = [](const Attributes& options, const MetricSubject& subject) -> Result<std::unique_ptr<Metric>> {
            if (subject.task != Task::classes) return metrics::needs("bits_per_byte", "classes", subject);
            const double bytes = options.number("bytes");
            if (!(bytes > 0)) return invalid("metric bits_per_byte: bytes = ", bytes, " is not positive");
            return std::unique_ptr<Metric>(std::make_unique<BitsPerByte>(subject, bytes));
          }};
}

}  // namespace epl
