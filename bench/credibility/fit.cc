// Nelder and Mead's simplex, 1965, over logarithms of constants. It draws nothing, so it always ends alike.
#include <algorithm>
#include <cmath>
#include <functional>

#include "bench/credibility/judge.h"

namespace epl::credibility {
namespace {

using Point = std::vector<double>;
using Loss = std::function<double(const Point&)>;

struct Corner {
  Point at;
  double loss = 0;
};

Point mix(const Point& a, double of_a, const Point& b, double of_b) {
  Point out(a.size());
  for (size_t i = 0; i < a.size(); ++i) out[i] = of_a * a[i] + of_b * b[i];
  return out;
}

// One step of the simplex, whose corners are sorted.
void step(std::vector<Corner>& corners, const Loss& loss) {
  Point middle(corners[0].at.size(), 0);
  const double share = 1 / static_cast<double>(corners.size() - 1);
  for (size_t c = 0; c + 1 < corners.size(); ++c) middle = mix(middle, 1, corners[c].at, share);
  Corner& worst = corners.back();
  const auto tried = [&](double away) {
    const Point at = mix(middle, 1 + away, worst.at, -away);
    return Corner{at, loss(at)};
  };
  const Corner mirrored = tried(1);
  if (mirrored.loss < corners[0].loss) {
    const Corner farther = tried(2);
    worst = farther.loss < mirrored.loss ? farther : mirrored;
  } else if (mirrored.loss < corners[corners.size() - 2].loss) {
    worst = mirrored;
  } else if (const Corner nearer = tried(-0.5); nearer.loss < worst.loss) {
    worst = nearer;
  } else {
    for (size_t c = 1; c < corners.size(); ++c) {
      corners[c].at = mix(corners[0].at, 0.5, corners[c].at, 0.5);
      corners[c].loss = loss(corners[c].at);
    }
  }
}

Point least(const Loss& loss, size_t dimensions, int tries) {
  constexpr double reach = 0.25;
  std::vector<Corner> corners(dimensions + 1, Corner{Point(dimensions, 0), 0});
  for (size_t d = 0; d < dimensions; ++d) corners[d + 1].at[d] = reach;
  for (Corner& corner : corners) corner.loss = loss(corner.at);
  for (int t = 0; t < tries; ++t) {
    std::ranges::stable_sort(corners, {}, &Corner::loss);
    step(corners, loss);
  }
  return std::ranges::min_element(corners, {}, &Corner::loss)->at;
}

}  // namespace

Status fit(Book& book, const std::vector<std::string>& constants, const std::vector<std::string>& sets, int tries) {
  std::vector<double*> changed;
  Point before;
  for (const std::string& name : constants) {
    const auto found = book.constants.find(name);
    if (found == book.constants.end()) return invalid("there is no constant ", name);
    if (!(*found->second > 0)) return invalid("the constant ", name, " is 0, which no factor changes");
    changed.push_back(found->second);
    before.push_back(*found->second);
  }
  // Sets weigh alike, however many rows they have.
  std::map<std::string, double> number;
  std::vector<const Row*> rows;
  for (const Row& row : book.rows) {
    if (!row.fitted || std::ranges::find(sets, row.set) == sets.end()) continue;
    rows.push_back(&row);
    ++number[row.set];
  }
  if (rows.empty()) return invalid("none of these sets has rows to fit on");
  Status status;
  const Loss loss = [&](const Point& at) {
    for (size_t i = 0; i < at.size(); ++i) *changed[i] = before[i] * std::exp(at[i]);
    double sum = 0;
    for (const Row* row : rows) {
      const auto predicted = predict(book, *row);
      if (!predicted.ok()) {
        status = predicted.status();
        return HUGE_VAL;
      }
      sum += std::pow(std::abs(std::log(predicted->seconds / row->seconds)), 3) / std::sqrt(number[row->set]);
    }
    return sum;
  };
  // Again from where it ended, because a simplex may collapse.
  Point at(changed.size(), 0);
  for (int again = 0; again < 3; ++again) {
    at = least(loss, changed.size(), tries);
    loss(at);
    for (size_t i = 0; i < changed.size(); ++i) before[i] = *changed[i];
  }
  return status;
}

}  // namespace epl::credibility
