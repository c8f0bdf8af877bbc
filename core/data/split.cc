#include "core/data/split.h"

#include <cmath>

#include "core/base/shown.h"
#include "core/data/order.h"

namespace epl {
namespace {

constexpr uint64_t split_epoch = ~uint64_t{0};  // no epoch of training has this number
Permutation drawn(int64_t samples, uint64_t seed) { return {samples, seed, split_epoch}; }

// A run of the permutation that the seed makes; it takes no memory.
class Part : public Reader {
 public:
  Part(std::unique_ptr<Reader> full, int64_t first, int64_t count, uint64_t seed)
      : full_(std::move(full)), order_(drawn(full_->samples(), seed)), first_(first), count_(count) {}
  const std::vector<std::pair<std::string, TensorType>>& fields() const override { return full_->fields(); }
  int64_t samples() const override { return count_; }
  Status read(int64_t index, int field, void* target) const override {
    return full_->read(order_.at(first_ + index), field, target);
  }
  Status read_samples(std::span<const int64_t> samples, int field, void* target) const override {
    std::vector<int64_t> of_all;
    for (const int64_t index : samples) of_all.push_back(order_.at(first_ + index));
    return full_->read_samples(of_all, field, target);
  }
  bool repeatable() const override { return full_->repeatable(); }
  std::vector<int64_t> file_samples() const override { return {}; }
  std::vector<ClassNames> classes() const override { return full_->classes(); }
  std::vector<std::string> columns(int field) const override { return full_->columns(field); }
  std::string options_alike() const override { return full_->options_alike(); }
  int64_t row(int64_t index) const override { return full_->row(order_.at(first_ + index)); }
  std::string file(int64_t index) const override { return full_->file(order_.at(first_ + index)); }
  std::string_view unit() const override { return full_->unit(); }

 private:
  std::unique_ptr<Reader> full_;
  Permutation order_;
  int64_t first_, count_;
};

}  // namespace

Result<std::unique_ptr<Reader>> split_reader(std::unique_ptr<Reader> full, std::string_view part, double share,
                                             uint64_t seed) {
  if (!(share >= 0 && share < 1)) return invalid("held_out is ", share, "; it is a share from 0 to below 1");
  if (part == "all") return full;
  if (part != "train" && part != "held_out")
    return invalid("split is ", shown(part), "; there are all, train and held_out");
  const int64_t samples = full->samples(),
                held_out = static_cast<int64_t>(std::llround(static_cast<double>(samples) * share));
  const int64_t trained = samples - held_out, count = part == "train" ? trained : held_out;
  if (count <= 0) return invalid("the part ", part, " of ", samples, " samples is empty where held_out is ", share);
  const Permutation order = drawn(samples, seed);
  EPL_TRY(full->learn_from(trained, [&](int64_t i) { return order.at(i); }));
  return std::unique_ptr<Reader>(std::make_unique<Part>(std::move(full), part == "train" ? 0 : trained, count, seed));
}

}  // namespace epl
