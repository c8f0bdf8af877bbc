// The dynamic programming of search_stages.h.
#include "core/strategy/search_stages.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace epl {
namespace {

// Of one place and number of runs; there are rarely more than a few.
constexpr size_t most_labels = 64;

}  // namespace

StageSearch::StageSearch(const SearchProblem& problem, const SearchShape& shape, SearchFronts& fronts, size_t form,
                         int64_t& work)
    : problem_(problem),
      shape_(shape),
      fronts_(fronts),
      kinds_(problem.forms[form].kinds),
      work_(work),
      layers_(static_cast<int>(problem.layers.size())),
      speeds_(static_cast<size_t>(shape.runs()) + 1, 0) {
  for (int r = shape.runs(); r-- > 0;) speeds_[r] = speeds_[r + 1] + shape.speed(r) / shape.fastest();
}

// One run has at least its share of all weights, and one that of all experts, which may be another. The longest has no
// fewer seconds than the best cut gives it.
StageSearch::Label StageSearch::least() {
  const double runs = shape_.runs();
  const SearchRun weights{.weights = fronts_.weights() / runs},
      experts{.expert_weights = fronts_.expert_weights() / runs};
  return {.longest = std::max({fronts_.least_longest(shape_.runs()) / shape_.fastest(), shape_.least_seconds(weights),
                               shape_.least_seconds(experts)}),
          .tail = std::max(shape_.least_tail(weights), shape_.least_tail(experts))};
}

// All runs together may have no more than all ranks, of which each run's calls in flight take a multiple of what it
// keeps. Where the most are in flight a byte of weights takes the least from that.
double StageSearch::least_again(const SearchRun& all) const {
  if (problem_.bytes <= 0) return 0;
  double kept = 0, most = 0, room = 0;
  for (int r = 0; r < shape_.runs(); ++r) {
    const double of_run = bytes(r) - problem_.always;
    if (of_run < 0) return std::numeric_limits<double>::infinity();
    room += of_run;
    kept += of_run / shape_.times_kept(r);
    most = std::max(most, shape_.times_kept(r));
  }
  const double state = shape_.state(all);
  if (state > room) return std::numeric_limits<double>::infinity();
  return fronts_.least_again(kept - state / most) / shape_.fastest();
}

double StageSearch::bound() {
  const SearchRun all{.weights = fronts_.weights(), .expert_weights = fronts_.expert_weights()};
  const double again = least_again(all);
  if (std::isinf(again)) return again;
  // All runs together have no more in the other memory than all may.
  if (problem_.beside_bytes > 0 && shape_.bytes_beside(all) > shape_.runs() * problem_.beside_bytes)
    return std::numeric_limits<double>::infinity();
  Label label = least();
  label.all = rest(0) + again;
  label.longest = std::max(label.longest, label.all / speeds_.front());
  return step(label);
}

double StageSearch::least_after(const Label& label, int runs, int end) const {
  Label out = label;
  out.all += rest(end);
  if (runs < shape_.runs()) out.longest = std::max(out.longest, rest(end) / speeds_[runs]);
  return step(out);
}

std::optional<StageSearch::Cut> StageSearch::below(double seconds) {
  limit_ = seconds;
  pool_.assign(1, least());
  table_.assign(static_cast<size_t>(shape_.runs() + 1) * (layers_ + 1), {});
  labels(0, 0) = {0, 1};
  for (int runs = 1; runs <= shape_.runs(); ++runs) {
    const auto before = pool_.size();
    const int left = shape_.runs() - runs;
    for (int end = left == 0 ? layers_ : runs; end <= layers_ - left; ++end) reach(runs, end);
    if (pool_.size() == before) return {};
  }
  const Labels& ends = labels(shape_.runs(), layers_);
  const Label* best = nullptr;
  for (int i = ends.first; i < ends.first + ends.count; ++i) {
    if (!best || step(pool_[i]) < step(*best)) best = &pool_[i];
  }
  if (!best) return {};
  Cut cut{.seconds = step(*best), .again = std::vector<int>(static_cast<size_t>(layers_), 0)};
  int end = layers_;
  for (const Label* at = best; at->before >= 0; at = &pool_[at->before]) {
    cut.begins.push_back(at->begin);
    if (at->again >= 0) fronts_.write(at->begin, end, at->again, cut.again);
    end = at->begin;
  }
  std::ranges::reverse(cut.begins);
  return cut;
}

// Of the last run: the longer it is the more it computes and has, so the loop ends where it is too long.
void StageSearch::reach(int runs, int end) {
  here_.clear();
  SearchRun run{.leaves = enters(end)};
  for (int begin = end - 1; begin >= runs - 1 && work_ > 0; --begin) {
    run.add(kind(begin), shape_.samples());
    const double computing = (run.forward + run.backward) / shape_.speed(runs - 1);
    if (shape_.step(computing, rest(0), pool_.front().tail) >= limit_) break;
    if (labels(runs - 1, begin).count == 0) continue;
    --work_;
    run.enters = enters(begin);
    SearchRun fitted = run;
    int again = -1;
    if (!fits(fitted, begin, end, runs - 1, again)) break;
    extend(fitted, runs, begin, end, again);
  }
  if (here_.empty()) return;
  if (here_.size() > most_labels) {
    all_ = false;
    std::ranges::stable_sort(here_, {}, [](const auto& one) { return one.second; });
    here_.resize(most_labels);
  }
  labels(runs, end) = {static_cast<int>(pool_.size()), static_cast<int>(here_.size())};
  for (const auto& [label, least] : here_) pool_.push_back(label);
}

// Computes again what it has to. False: no way fits, and none of a longer run.
bool StageSearch::fits(SearchRun& run, int begin, int end, int number, int& again) {
  if (problem_.beside_bytes > 0 && shape_.bytes_beside(run) > problem_.beside_bytes) return false;
  if (problem_.bytes <= 0 || shape_.bytes(run, number) <= bytes(number)) return true;
  SearchRun without = run;
  without.kept = 0;
  without.computes_again = true;
  if (shape_.bytes(without, number) > bytes(number)) return false;
  const double room = bytes(number) - problem_.always - shape_.state(without) - shape_.of_call(without);
  SearchFronts::Choice choice;
  if (room < 0 || !fronts_.within(begin, end, room / shape_.times_kept(number), choice)) return false;
  again = choice.number;
  all_ = all_ && choice.all;
  run.again = choice.seconds;
  run.kept = choice.kept;
  run.computes_again = true;
  return true;
}

void StageSearch::extend(const SearchRun& run, int runs, int begin, int end, int again) {
  const double seconds = shape_.seconds(run, runs - 1), tail = shape_.tail(run, runs - 1);
  const Labels from = labels(runs - 1, begin);
  for (int i = from.first; i < from.first + from.count; ++i) {
    const Label& before = pool_[i];
    const Label label{.longest = std::max(before.longest, seconds),
                      .all = before.all + seconds,
                      .tail = std::max(before.tail, tail),
                      .begin = begin,
                      .again = again,
                      .before = i};
    const double least = least_after(label, runs, end);
    if (least < limit_) insert(label, least);
  }
}

void StageSearch::insert(const Label& label, double least) {
  const auto beats = [](const Label& a, const Label& b) {
    return a.longest <= b.longest && a.all <= b.all && a.tail <= b.tail;
  };
  for (const auto& known : here_) {
    if (beats(known.first, label)) return;
  }
  std::erase_if(here_, [&](const auto& known) { return beats(label, known.first); });
  here_.emplace_back(label, least);
}

}  // namespace epl
