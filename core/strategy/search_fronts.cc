// Fronts are made when they are asked for, and kept.
#include "core/strategy/search_fronts.h"

#include <algorithm>
#include <limits>

#include "core/base/check.h"

namespace epl {
namespace {

constexpr size_t most_points = 256;
constexpr int halvings = 40;  // of a range of seconds

// A number for a kind, so that the sum of several tells which kinds they are (the mixing of splitmix64: Steele, Lea,
// Flood, 2014).
uint64_t number_of_kind(int kind) {
  uint64_t z = (static_cast<uint64_t>(kind) + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

SearchFronts::SearchFronts(const SearchProblem& problem, size_t form, double samples)
    : problem_(problem), kinds_(problem.forms[form].kinds), samples_(samples), sums_(1, 0), computing_(1, 0) {
  for (const int kind : problem.layers) {
    sums_.push_back(sums_.back() + number_of_kind(kind));
    computing_.push_back(computing_.back() + kinds_[kind].forward.of(samples) + kinds_[kind].backward.of(samples));
    kept_ += kinds_[kind].kept;
    weights_ += kinds_[kind].weights;
    expert_weights_ += kinds_[kind].expert_weights;
  }
  find_slopes();
}

// Of each kind the ways on the lower convex hull.
void SearchFronts::find_slopes() {
  for (int k = 0; k < std::ssize(kinds_); ++k) {
    const SearchLayer& layer = kinds_[k];
    const auto count = static_cast<double>(std::ranges::count(problem_.layers, k));
    double seconds = 0, kept = layer.kept;
    while (count > 0) {
      const SearchLayer::Again* next = nullptr;
      double least = std::numeric_limits<double>::infinity();
      for (const SearchLayer::Again& way : layer.again) {
        if (way.kept >= kept) continue;
        const double price = (way.seconds.of(samples_) - seconds) / (kept - way.kept);
        if (price > least || (price == least && way.kept >= next->kept)) continue;
        least = price;
        next = &way;
      }
      if (!next) break;
      slopes_.push_back({least, count * (kept - next->kept)});
      seconds = next->seconds.of(samples_);
      kept = next->kept;
    }
  }
  std::ranges::stable_sort(slopes_, {}, &Slope::price);
}

double SearchFronts::least_again(double bytes) const {
  double missing = kept_ - bytes, seconds = 0;
  // Rounding makes no plan impossible.
  const double nothing = 1e-9 * kept_;
  for (const Slope& slope : slopes_) {
    if (missing <= nothing) break;
    seconds += std::max(0.0, slope.price) * std::min(missing, slope.bytes);
    missing -= slope.bytes;
  }
  return missing > nothing ? std::numeric_limits<double>::infinity() : seconds;
}

// Whether so many runs can all be no longer.
bool SearchFronts::divides(int runs, double longest) const {
  int used = 0;
  for (int begin = 0, end = 0; begin < std::ssize(problem_.layers); begin = end, ++used) {
    for (end = begin; end < std::ssize(problem_.layers) && computing(begin, end + 1) <= longest; ++end) {
    }
    if (end == begin) return false;
  }
  return used <= runs;
}

double SearchFronts::least_longest(int runs) {
  const auto [known, is_new] = least_longest_.emplace(runs, 0);
  if (!is_new) return known->second;
  double below = 0, above = computing_.back();
  for (int i = 0; i < halvings; ++i) {
    const double middle = (below + above) / 2;
    (divides(runs, middle) ? above : below) = middle;
  }
  return known->second = below;
}

// From the shortest run to the longest, so that long chains need no deep stack.
const SearchFronts::Front& SearchFronts::front(int begin, int end) {
  if (const auto known = fronts_.find(key(begin, end)); known != fronts_.end()) return known->second;
  int from = begin;
  while (from < end && !fronts_.contains(key(from, end))) ++from;
  if (from == end) fronts_.try_emplace(0, Front{.points = {Point{}}});
  for (; from > begin; --from) {
    Front made{.kind = problem_.layers[from - 1], .rest = key(from, end)};
    add(fronts_.at(made.rest), made);
    fronts_.emplace(key(from - 1, end), std::move(made));
  }
  return fronts_.at(key(begin, end));
}

void SearchFronts::add(const Front& rest, Front& made) {
  const SearchLayer& layer = kinds_[made.kind];
  std::vector<Point>& points = made.points;
  made.all = rest.all;
  std::vector<Point> drawn;
  for (int p = 0; p < std::ssize(rest.points); ++p) {
    const Point& before = rest.points[p];
    drawn.push_back({before.seconds, before.kept + layer.kept, 0, p});
    for (int w = 0; w < std::ssize(layer.again); ++w) {
      const SearchLayer::Again& way = layer.again[w];
      drawn.push_back({before.seconds + way.seconds.of(samples_), before.kept + way.kept, w + 1, p});
    }
  }
  std::ranges::stable_sort(drawn, [](const Point& a, const Point& b) {
    return a.seconds != b.seconds ? a.seconds < b.seconds : a.kept < b.kept;
  });
  for (const Point& point : drawn) {
    if (points.empty() || point.kept < points.back().kept) points.push_back(point);
  }
  if (points.size() <= most_points) return;
  made.all = false;
  // Both ends stay, and of the others about as many from everywhere.
  std::vector<Point> fewer;
  for (size_t i = 0; i < most_points; ++i) fewer.push_back(points[i * (points.size() - 1) / (most_points - 1)]);
  points = std::move(fewer);
}

bool SearchFronts::within(int begin, int end, double bytes, Choice& choice) {
  const Front& of_run = front(begin, end);
  const std::vector<Point>& points = of_run.points;
  const auto found = std::ranges::partition_point(points, [&](const Point& point) { return point.kept > bytes; });
  if (found == points.end()) return false;
  choice = {found->seconds, found->kept, static_cast<int>(found - points.begin()), of_run.all};
  return true;
}

void SearchFronts::write(int begin, int end, int number, std::vector<int>& again) const {
  std::vector<bool> written(static_cast<size_t>(end - begin), false);
  for (const Front* at = &fronts_.at(key(begin, end)); at->kind >= 0; at = &fronts_.at(at->rest)) {
    const Point& point = at->points[number];
    int layer = begin;
    while (layer < end && (written[layer - begin] || problem_.layers[layer] != at->kind)) ++layer;
    EPL_CHECK(layer < end, "no layer of kind ", at->kind, " from ", begin, " to ", end);
    written[layer - begin] = true;
    again[layer] = point.way;
    number = point.rest;
  }
}

}  // namespace epl
