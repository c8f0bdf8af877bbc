// Which layers each stage has, and what it computes again: for one shape, in full.
//
// Dynamic programming over runs: of all ways to divide the first layers into so many runs those are left that no other
// beats in the longest run, in the sum of all runs, and in the longest tail. What cannot be below a limit is left out.
#pragma once

#include <optional>
#include <vector>

#include "core/strategy/search_fronts.h"

namespace epl {

class StageSearch {
 public:
  // `work`: how many runs it may look at yet.
  StageSearch(const SearchProblem& problem, const SearchShape& shape, SearchFronts& fronts, size_t form, int64_t& work);

  struct Cut {
    double seconds = 0;  // of a step
    std::vector<int> begins, again;
  };
  // The fastest that fits and is below so many seconds; none: there is none.
  std::optional<Cut> below(double seconds);
  // Seconds of a step that no cut is below, whatever is computed again; infinite: nothing fits.
  double bound();
  // Whether no way was left out.
  bool all() const { return all_; }

 private:
  // Layers up to a place, divided into runs.
  struct Label {
    double longest = 0, all = 0, tail = 0;
    int begin = 0, again = -1;  // of the last run; -1: it keeps all
    int before = -1;            // the label without it
  };
  struct Labels {
    int first = 0, count = 0;
  };
  Labels& labels(int runs, int end) { return table_[static_cast<size_t>(runs) * (layers_ + 1) + end]; }
  double step(const Label& label) const { return shape_.step(label.longest, label.all, label.tail); }
  // What the layers from this one on compute, in seconds of the fastest run.
  double rest(int from) const { return fronts_.computing(from, layers_) / shape_.fastest(); }
  // The bytes that a rank with this run may have.
  double bytes(int number) const { return problem_.bytes * shape_.memory(number); }
  Label least();
  double least_again(const SearchRun& all) const;
  double least_after(const Label& label, int runs, int end) const;
  bool fits(SearchRun& run, int begin, int end, int number, int& again);
  void reach(int runs, int end);
  void extend(const SearchRun& run, int runs, int begin, int end, int again);
  void insert(const Label& label, double least);
  double enters(int layer) const { return layer > 0 && layer < layers_ ? kind(layer).enters : 0; }
  const SearchLayer& kind(int layer) const { return kinds_[problem_.layers[layer]]; }

  const SearchProblem& problem_;  // all outlive it
  const SearchShape& shape_;
  SearchFronts& fronts_;
  const std::vector<SearchLayer>& kinds_;
  int64_t& work_;
  const int layers_;
  std::vector<double> speeds_;  // of all runs from each one on, the fastest one's being 1
  double limit_ = 0;
  std::vector<Label> pool_;                     // the first is in front of all layers
  std::vector<std::pair<Label, double>> here_;  // with seconds that a step of them is not below
  std::vector<Labels> table_;
  bool all_ = true;
};

}  // namespace epl
