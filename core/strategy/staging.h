// Stages of a pipeline that are not scopes with ranks of their own: those that are found by their cost
// (pipeline.num_stages), and those of schedules that give each rank several. Scopes inside a stage share its ranks.
#pragma once

#include <string>
#include <vector>

#include "core/strategy/pass.h"

namespace epl {

struct Staging {
  Strategy of_ranks;  // what the ranks are laid out by: a scope for each virtual device
  // By stage: its virtual device, and what it is called; empty: each scope is a stage.
  std::vector<int> virtual_device_of;
  std::vector<std::string> names;
  // By stage: the scope whose inner scopes divide its nodes, which is like the scope of its virtual device in
  // `of_ranks`.
  std::vector<Scope> scopes;
  bool by_cost = false;
  ByNode<int> node_stage;          // of the forward pass; -1: that of its operands
  std::vector<std::string> notes;  // for Plan::notes
};
Result<Staging> find_staging(const PlanRequest& request, const CostModel& cost);

}  // namespace epl
