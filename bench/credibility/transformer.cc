// Counts of products, bytes and sums.
#include "bench/credibility/transformer.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace epl::credibility {
namespace {

// A rank sends to one side while it receives from the other, so that two messages take the time of one.
constexpr double both_ways = 2;

// The host issues kernels while the device works. The later of both ends a pass, and near a tie each waits for the
// other now and then.
double together(double device, double host) { return std::pow(std::pow(device, 4) + std::pow(host, 4), 0.25); }

class Layers {
 public:
  Layers(const Transformer& model, const Software& software, const Training& training, const CostModel& cost,
         double samples, int64_t ranks)
      : model_(model),
        software_(software),
        training_(training),
        cost_(cost),
        ranks_(static_cast<double>(ranks)),
        tokens_(samples * static_cast<double>(model.sequence)),
        samples_(samples),
        group_(RankGroup::of_first(ranks)) {}

  SearchLayer embedding() const {
    SearchLayer layer;
    layer.forward.once = cost_.memory(4 * width_of(model_.hidden));
    layer.backward.once = layer.forward.once;
    layer.weights = training_.weight * static_cast<double>(model_.hidden) *
                    (static_cast<double>(model_.vocabulary) / ranks_ + static_cast<double>(model_.sequence));
    return layer;
  }

  SearchLayer block() const {
    const double hidden = static_cast<double>(model_.hidden), sequence = static_cast<double>(model_.sequence);
    const double scores = samples_ * heads() * sequence * sequence / ranks_;
    const double passed = software_.passes * width_of(hidden) / ranks_;
    const double moved = cost_.memory(passed + software_.scores * training_.element * scores);
    double forward = moved, backward = 2 * moved;
    const auto add = [&](const std::vector<ProductShape>& products, double times) {
      for (const ProductShape& one : products) {
        forward += times * product(one);
        // Gradients of both operands.
        backward += times * (product({one.m, one.k, one.n, one.count}) + product({one.k, one.n, one.m, one.count}));
      }
    };
    add(products(), 1);
    add(attention(), software_.attention);
    const double kernel = cost_.launch();
    forward = together(forward, software_.forward_kernels * kernel);
    backward = together(backward, software_.backward_kernels * kernel);
    double sum = 0;
    if (group_.size > 1) sum = kernel + cost_.collective(Collective::Kind::all_reduce, group_, width_of(hidden));
    SearchLayer layer;
    layer.forward.once = forward + 2 * sum;
    layer.backward.once = backward + 2 * sum + training_.again * layer.forward.once;
    layer.weights = training_.weight * weights() / ranks_;
    const double row = sequence * hidden;
    const double of_16_bits =
        row * (10 + 24 / ranks_) + (software_.scores > 0 ? 5 * heads() * sequence * sequence / ranks_ : 0);
    const double all = of_16_bits * training_.element / 2;
    layer.kept = training_.again * training_.element * row + (1 - training_.again) * all;
    layer.working = all;
    layer.enters = training_.element * row / ranks_ / both_ways;
    return layer;
  }

  SearchLayer head() const {
    const double hidden = static_cast<double>(model_.hidden);
    const double logits = static_cast<double>(model_.vocabulary) / ranks_;
    const double product = this->product({tokens_, logits, hidden, 1});
    SearchLayer layer;
    layer.forward.once = product + cost_.memory(software_.logits / 3 * training_.element * tokens_ * logits);
    layer.backward.once = 2 * layer.forward.once;
    layer.weights = model_.tied ? 0 : training_.weight * hidden * logits;
    // Once as they are, and in float32 with their gradient.
    layer.working = (training_.element + 8) * static_cast<double>(model_.sequence) * logits;
    layer.enters = training_.element * static_cast<double>(model_.sequence) * hidden / ranks_ / both_ways;
    return layer;
  }

 private:
  double heads() const { return static_cast<double>(model_.heads); }
  double inner() const { return static_cast<double>(model_.inner > 0 ? model_.inner : 4 * model_.hidden); }
  // Of keys and values, beside `hidden` of queries.
  double shared() const {
    const int64_t of = model_.shared_heads > 0 ? model_.shared_heads : model_.heads;
    return static_cast<double>(model_.hidden * of / model_.heads);
  }
  double weights() const {
    const double hidden = static_cast<double>(model_.hidden);
    return hidden * (2 * hidden + 2 * shared() + (model_.gated ? 3 : 2) * inner());
  }
  double width_of(double hidden) const { return training_.element * tokens_ * hidden; }
  double product(const ProductShape& shape) const { return cost_.product(training_.dtype, shape) / training_.rate; }

  std::vector<ProductShape> products() const {
    const double hidden = static_cast<double>(model_.hidden);
    return {{tokens_, (hidden + 2 * shared()) / ranks_, hidden, 1},
            {tokens_, hidden, hidden / ranks_, 1},
            {tokens_, (model_.gated ? 2 : 1) * inner() / ranks_, hidden, 1},
            {tokens_, hidden, inner() / ranks_, 1}};
  }

  std::vector<ProductShape> attention() const {
    // Kernels that keep no scores skip those that a causal mask hides.
    const double seen = software_.scores > 0 ? 1 : 0.5;
    const double sequence = static_cast<double>(model_.sequence), head = static_cast<double>(model_.hidden) / heads();
    const double each = seen * samples_ * heads() / ranks_;
    return {{sequence, sequence, head, each}, {sequence, head, sequence, each}};
  }

  const Transformer& model_;
  const Software& software_;
  const Training& training_;
  const CostModel& cost_;
  const double ranks_, tokens_, samples_;
  const RankGroup group_;
};

}  // namespace

double Transformer::parameters() const {
  const int64_t of = shared_heads > 0 ? shared_heads : heads, width = inner > 0 ? inner : 4 * hidden;
  const int64_t layer = hidden * (2 * hidden + 2 * (hidden * of / heads) + (gated ? 3 : 2) * width);
  return static_cast<double>(layers * layer + (tied ? 1 : 2) * vocabulary * hidden);
}

SearchProblem problem_of(const Transformer& model, const Software& software, const Training& training,
                         const Machine& machine, double samples, std::span<const int64_t> tensor_ranks) {
  SearchProblem problem{.cost = CostModel(machine)};
  problem.layers.assign(static_cast<size_t>(model.layers) + 2, 1);
  problem.layers.front() = 0;
  problem.layers.back() = 2;
  for (const int64_t ranks : tensor_ranks) {
    const Layers layers(model, software, training, problem.cost, samples, ranks);
    problem.forms.push_back({.name = cat("split of ", ranks),
                             .ranks = ranks,
                             .kinds = {layers.embedding(), layers.block(), layers.head()}});
  }
  problem.gradients = training.gradient / training.weight;
  problem.states = training.states / training.weight;
  problem.buckets = training.buckets;
  return problem;
}

}  // namespace epl::credibility
