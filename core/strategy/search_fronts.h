// What runs of layers take and can keep, for calls of so many samples.
//
// Of what can be kept, and of the seconds that it takes to compute the rest again, each run has the ways that no other
// beats in both.
//
// The front of a run is that of the run without its first layer, with each way of that layer. Runs that have the same
// layers share one, in whatever order the layers come.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "core/strategy/search_problem.h"

namespace epl {

class SearchFronts {
 public:
  // Of one form, for calls of so many samples.
  SearchFronts(const SearchProblem& problem, size_t form, double samples);

  struct Choice {
    double seconds = 0, kept = 0;  // of a call, and bytes of a sample
    int number = 0;                // in the front of the run
    bool all = true;               // no way of the run was left out
  };
  // The fastest way of layers [begin, end) that keeps no more bytes of a sample; false: there is none.
  bool within(int begin, int end, double bytes, Choice& choice);
  // SearchCandidate::again of these layers.
  void write(int begin, int end, int number, std::vector<int>& again) const;

  // Seconds of a call of these layers, with nothing computed again.
  double computing(int begin, int end) const { return computing_[end] - computing_[begin]; }
  // Bytes of the weights of all layers, and of those of experts.
  double weights() const { return weights_; }
  double expert_weights() const { return expert_weights_; }
  // What the longest of so many runs takes at least.
  double least_longest(int runs);
  // What all layers take at least to keep no more bytes of a sample, if parts of layers could be computed again;
  // infinite: they cannot keep so little.
  double least_again(double bytes) const;

 private:
  struct Point {
    double seconds = 0, kept = 0;
    int way = 0;   // of the layer that was added last
    int rest = 0;  // in the front without it
  };
  struct Front {
    std::vector<Point> points;  // from the fastest to the smallest
    int kind = -1;              // of the layer that was added last
    uint64_t rest = 0;          // which front is without it
    bool all = true;
  };
  uint64_t key(int begin, int end) const { return sums_[end] - sums_[begin]; }
  const Front& front(int begin, int end);
  void add(const Front& rest, Front& made);
  void find_slopes();
  bool divides(int runs, double longest) const;

  const SearchProblem& problem_;  // outlives it
  const std::vector<SearchLayer>& kinds_;
  const double samples_;
  std::vector<uint64_t> sums_;  // of numbers that stand for kinds, before each layer
  std::unordered_map<uint64_t, Front> fronts_;
  std::vector<double> computing_;        // before each layer
  std::map<int, double> least_longest_;  // by the number of runs
  // Seconds for a byte, and how many bytes of all layers are to be had for that: the cheapest first.
  struct Slope {
    double price = 0, bytes = 0;
  };
  std::vector<Slope> slopes_;
  double kept_ = 0;  // by all layers, with nothing computed again
  double weights_ = 0, expert_weights_ = 0;
};

}  // namespace epl
