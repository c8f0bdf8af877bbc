#include "core/strategy/reasons.h"

#include <cmath>
#include <iterator>

#include "core/base/text.h"
#include "core/ir/op.h"

namespace epl {
namespace {

constexpr size_t max_in_reason = 4;

}  // namespace

std::string bytes_text(double bytes) {
  static constexpr const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  const bool tenths = unit > 0 && bytes < 10;  // two digits at least
  const auto digits = static_cast<int64_t>(std::llround(tenths ? bytes * 10 : bytes));
  return cat(tenths ? digits / 10 : digits, tenths ? cat(".", digits % 10) : "", " ", units[unit]);
}

void Reasons::add(int node, std::string sentence) {
  if (!sentence.empty()) sentences_.emplace_back(node, std::move(sentence));
}

void Reasons::add_whole(const Node& node, std::string_view why) { whole_[{node.op->name, why}].push_back(node.name); }

void Reasons::tell(Plan& plan, int64_t ranks) const {
  for (const auto& [node, sentence] : sentences_) plan.explain(node, sentence);
  for (const auto& [of, names] : whole_) {
    const auto& [op, why] = of;
    const bool one = names.size() == 1, more = names.size() > max_in_reason;
    std::vector<std::string> named = names;
    if (more) named.resize(max_in_reason);
    plan.notes.push_back(cat(one ? "node " : cat(names.size(), " nodes, "), join(named, ", "), more ? ", ..." : "",
                             " (", op, one ? ") runs" : "), run", " whole on each of ", ranks, " ranks: ", why));
  }
}

}  // namespace epl
