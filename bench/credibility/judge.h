// Predictions of published results, and how good they are.
#pragma once

#include <string>
#include <vector>

#include "bench/credibility/rows.h"

namespace epl::credibility {

struct Prediction {
  double seconds = 0, bytes = 0;
};
// By the cost model of the search, for the published plan.
Result<Prediction> predict(const Book& book, const Row& row);

struct Errors {
  size_t count = 0;
  double median = 0, p90 = 0, bias = 0;  // shares of what was measured; bias: the median with its sign
};
Errors errors_of(std::vector<double> relative);

// Spearman's rank correlation.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

// Rows of one model, on as many ranks with the same batch.
struct Choice {
  std::string set, model;
  int64_t ranks = 0, batch = 0;
  size_t count = 0;
  bool fitted = false;
  const Row* best = nullptr;    // measured
  const Row* picked = nullptr;  // the first of the searched plans that was measured
  double distance = 0;          // of the picked from the best, by what was measured
};

struct Judgement {
  std::vector<double> predicted;  // by row
  std::vector<Choice> choices;
};
Result<Judgement> judge(const Book& book);

// Constants by name, changed until the errors of fitted rows of these sets are smallest: the sum of their third powers,
// so that large ones count more.
Status fit(Book& book, const std::vector<std::string>& constants, const std::vector<std::string>& sets, int tries);

}  // namespace epl::credibility
