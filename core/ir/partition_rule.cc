#include "core/ir/partition_rule.h"

#include <algorithm>
#include <numeric>

namespace epl {

void Ties::input(int i, int dim, int factor) {
  const auto d = static_cast<size_t>(dim);
  if (q.has(i) && q.in(i).shape[d] != 1) rule_.inputs[static_cast<size_t>(i)][d] = {factor};
}

void Ties::output(int i, int dim, int factor) {
  const auto d = static_cast<size_t>(dim);
  if (q.has_output(i) && q.out(i).shape[d] != 1) rule_.outputs[static_cast<size_t>(i)][d] = {factor};
}

void Ties::added(int i, int factor) {
  if (q.has(i)) rule_.factors[static_cast<size_t>(factor)].added = i;
}

int Ties::window(int dim, int64_t size, int64_t other) {
  const int64_t common = std::gcd(size, other);
  if (common < 2) return -1;
  windows_.emplace_back(factor(common), dim);
  return windows_.back().first;
}

std::vector<int> Ties::windows() const {
  std::vector<int> dims(rule_.factors.size() - first_, -1);
  for (const auto& [factor, dim] : windows_) dims[static_cast<size_t>(factor) - first_] = dim;
  return dims;
}

bool ExtendedRule::adds_to(const ShardingRule::Operand& dims) const {
  return std::ranges::any_of(dims, [&](const ShardingRule::Dim& dim) {
    return std::ranges::any_of(dim, [&](int f) { return static_cast<size_t>(f) >= added; });
  });
}

Result<ExtendedRule> extended_rule(const OpQuery& query) {
  ExtendedRule extended;
  EPL_ASSIGN(extended.rule, sharding_rule(query));
  extended.added = extended.rule.factors.size();
  extended.row = partition_rule_table().find(query.op().name);
  if (!extended.row) return extended;
  Ties ties(extended.rule, query);
  extended.row->ties(ties);
  extended.windows = ties.windows();
  return extended;
}

}  // namespace epl
