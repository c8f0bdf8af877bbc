// The fastest plan for many ranks by the cost model: over forms, copies, stages, schedules, micro-batches, what copies
// share out, what lies in another memory, and what is computed again.
//
// Each shape, which is all of that but the runs of layers, has a bound. Shapes are searched in full (search_stages.h),
// that of the least bound first, until no other can be faster. So the result is the best there is, or says how far it
// may be from that. It depends on the problem alone: no clock and no random number is in it, unless it is stopped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/stop.h"
#include "core/strategy/search_problem.h"

namespace epl {

// What may be chosen. An empty list: anything. What a user has set is the only one of its list. Forms are those of the
// problem.
struct SearchSpace {
  std::vector<const PipelineRow*> rows;  // of several stages; empty: those that can be the fastest
  std::vector<int> stages, chunks;
  std::vector<int64_t> micro_batches;
  std::vector<SearchShards> shards;
  std::vector<SearchOffload> offload;
};

struct SearchLimits {
  size_t count = 3;           // of the best that are wanted, each of other copies, stages, form or schedule
  bool by_memory = false;     // or of another way to share out and to place what copies have
  int64_t work = 20'000'000;  // runs of layers that are looked at, at most
  Stop stop;                  // then the best so far is taken
};

struct SearchFound {
  SearchCandidate candidate;
  SearchCost cost;
};

struct SearchResult {
  std::vector<SearchFound> best;  // the fastest first; empty: nothing fits
  double least_seconds = 0;       // that no candidate is below
  int64_t shapes = 0;             // that are possible
  int64_t searched = 0;           // of these, in full
  bool finished = true;           // false: it was stopped, or its work was over
};
SearchResult search_plans(const SearchProblem& problem, const SearchSpace& space = {}, const SearchLimits& limits = {});

// The fastest candidate without a limit of memory, then each time the fastest within four fifths of the one before:
// what less memory costs.
std::vector<SearchFound> time_over_memory(SearchProblem problem, const SearchSpace& space = {},
                                          const SearchLimits& limits = {}, size_t most = 16);

// What more units of the batch would give, where copies and micro-batches can share out no more than there are.
struct MoreUnits {
  int64_t units = 0;  // that are enough
  SearchFound found;
};
// By the same search, over all doubled numbers of units that divide the batch. None: no plan is clearly faster than so
// many seconds.
std::optional<MoreUnits> with_more_units(SearchProblem problem, const SearchSpace& space, SearchLimits limits,
                                         double seconds);

// "4 copies of 8 stages (1F1B), split of 2, 16 micro-batches, zero.level = v1, 12 of 96 layers computed again"
std::string print_candidate(const SearchProblem& problem, const SearchCandidate& candidate);
// Which part of a step makes one slower than the first: "it waits 12 % of its step for other stages, not 3 %".
std::string what_decides(const SearchCost& first, const SearchCost& other);

}  // namespace epl
