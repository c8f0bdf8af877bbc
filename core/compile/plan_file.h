// The decisions of a plan as a file: a text that people can read and compare, by the names of the model. It holds no
// program: whoever loads it lowers the decisions again, for its device.
//
//   epl plan 1
//   hash 5a3f...            of all that follows: a damaged file is found
//   fact "model" "9c1e..."  what the decisions rest on; where one differs, they are refused
//   entry train
//   plan batch 8            the text form of the plan (core/strategy/plan_text.cc)
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/ir/graph.h"
#include "core/strategy/strategy.h"

namespace epl {

struct PlanFile {
  std::map<std::string, std::string> facts;
  std::vector<std::pair<std::string, std::string>> entries;  // name of the entry, text of its plan
  const std::string* entry(std::string_view name) const;     // null: there is none
};

std::string print_plan_file(const PlanFile& file);
Result<PlanFile> parse_plan_file(std::string_view text);
// That they were made by this strategy, into which a model's annotations have gone.
Status check_strategy(const PlanFile& file, const Strategy& strategy);
// That an entry's graph is the one for which its decisions were made.
Status check_graph(const PlanFile& file, std::string_view entry, const Graph& graph);

// What facts are made of: the hash of a text, and of a graph's values, nodes and types in their order, not of what
// weights hold; and a strategy's text, in which a key at its default is as one that nobody sets.
std::string decisions_hash(std::string_view text);
std::string decisions_hash(const Graph& graph);
std::string decisions_text(Strategy strategy);
Status made_for_another(std::string_view what, const std::string& there, const std::string& here);

// What differs, a sentence each: facts, task graphs, calls, nodes, tensors.
std::vector<std::string> compare_plan_files(const PlanFile& one, const PlanFile& other);

}  // namespace epl
