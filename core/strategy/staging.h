// Stages of a pipeline that are not scopes with ranks of their own: those that are found by their cost
// (pipeline.num_stages), and those of schedules that give each rank several.
#pragma once

#include <string>
#include <vector>

#include "core/strategy/pass.h"

namespace epl {

struct Staging {
  Strategy of_ranks;  // what the ranks are laid out by: a scope for each class of them
  // By stage: its class, and what it is called; empty: each scope is a stage.
  std::vector<int> class_of;
  std::vector<std::string> names;
  bool by_cost = false;
  ByNode<int> node_stage;          // of the forward pass; -1: that of its operands
  std::vector<std::string> notes;  // for Plan::notes
};
Result<Staging> find_staging(const PlanRequest& request);
// By node: the first scope of the strategy that matches it; -1: none does.
ByNode<int> first_matches(const Strategy& strategy, const Graph& graph);

}  // namespace epl
