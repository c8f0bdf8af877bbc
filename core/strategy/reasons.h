// What a pass says of its decisions, kept until they hold: a pass may take another way after all.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/strategy/plan.h"

namespace epl {

// "takes 16.2 us instead of 75.10 ms more than a share of the work".
std::string takes_text(double seconds, double instead_of);

// What a person calls the dimension that a factor cuts: the columns and rows of the weight that the node reads.
std::string dimension_text(const Graph& graph, NodeId n, const ShardingRule& rule, int factor);

class Reasons {
 public:
  // Of one node; nothing where the sentence is empty.
  void add(NodeId node, std::string sentence);
  // The node is replicated on each of its ranks.
  void add_replicated(const Node& node, std::string_view why);
  // One note for all nodes of an op that are replicated for the same reason on each of `ranks` ranks.
  void tell(Plan& plan, int64_t ranks) const;

 private:
  std::vector<std::pair<NodeId, std::string>> sentences_;
  std::map<std::pair<std::string_view, std::string_view>, std::vector<std::string>>
      replicated_;  // nodes by op and reason
};

}  // namespace epl
