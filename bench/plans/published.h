// Large models as their publishers have trained them, and what the search picks for the same model and machine.
#pragma once

#include <span>

#include "bench/plans/compare.h"

namespace epl::plans {

struct Published {
  const char* source;
  Pair pair;
  int64_t tensor = 1, stages = 1, experts = 1;
  const char* schedule = "";  // of several stages
  int chunks = 1;
  SearchShards shards = SearchShards::nothing;
  int64_t samples = 1;  // of a call
  int way = 0;          // of all layers' ways to compute again; -1: the one that keeps least
  double states = -1;   // bytes of an optimizer's states for each of a weight; -1: those of Adam
  SearchOffload offload = SearchOffload::nothing;
};
std::span<const Published> published();

struct Scaled {
  Tried theirs, picked;
  bool fits = false;              // theirs, by the search's own count of bytes
  double simulation_seconds = 0;  // of the processor, for each rank by itself with stragglers
  double with_stragglers = 0;     // of a step: one rank in a hundred is a fifth slower
  int64_t calls = 0;
};
Result<Scaled> compare_published(const Published& row, const std::string& folder);

}  // namespace epl::plans
