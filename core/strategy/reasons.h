// What a pass says of its decisions, kept until they hold: a pass may take another way after all.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/strategy/plan.h"

namespace epl {

// "16 KiB".
std::string bytes_text(double bytes);

class Reasons {
 public:
  // Of one node; nothing where the sentence is empty.
  void add(int node, std::string sentence);
  // The node runs whole on each of its ranks.
  void add_whole(const Node& node, std::string_view why);
  // One note for all nodes of an op that run whole for the same reason on each of `ranks` ranks.
  void tell(Plan& plan, int64_t ranks) const;

 private:
  std::vector<std::pair<int, std::string>> sentences_;
  std::map<std::pair<std::string_view, std::string_view>, std::vector<std::string>> whole_;  // nodes by op and reason
};

}  // namespace epl
