// What the field runs where nobody searches: rules that give one plan for a model on a machine.
#pragma once

#include <optional>
#include <span>

#include "core/strategy/search_problem.h"

namespace epl::plans {

struct Default {
  const char* name;
  const char* source;
  bool splits = false;        // over all ranks of a host, or as many as may be
  const char* schedule = "";  // of the fewest stages that fit, from two on; empty: one stage
  int chunks = 1;
  SearchShards shards = SearchShards::nothing;
  SearchOffload offload = SearchOffload::nothing;
  bool again = false;    // every layer is computed again from what comes in
  bool experts = false;  // shared out over as many ranks as may be
};
std::span<const Default> defaults();

// Copies have what splits and stages leave. A call has as many samples as fit, where that leaves four micro-batches for
// each stage. None: it fits with no number of stages, or the model has no experts or the ranks no hosts.
std::optional<SearchCandidate> plan_of(const Default& row, const SearchProblem& problem, int64_t host);

// As many layers for each run, the first one the embedding too, and the last one the head.
std::vector<int> even_begins(int64_t layers, int64_t runs);

}  // namespace epl::plans
