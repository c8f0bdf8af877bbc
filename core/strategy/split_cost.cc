// What a cut of a node costs: seconds beyond its share of the work, and what the strategy asks to avoid.
#include <algorithm>
#include <limits>

#include "core/strategy/splitting.h"
#include "core/strategy/windows.h"

namespace epl {
namespace {

// How many times the seconds count of what a split is asked for to avoid: work that each rank does alike, a weight that
// is gathered although it is stored in shards, and a table that each rank has all of.
constexpr double uncut_work = 1000, gathered_weight = 100, replicated_table = 10;
constexpr double body_sums = 3;  // so many sums over ranks a body takes that is cut, about

}  // namespace

double Splitting::cost_of_uses(Value v, const CutPosition& position, int ahead) const {
  if (!position || ahead == 0) return 0;
  double all = 0;
  for (const NodeId user : nodes_->users(v)) {
    const Node& node = graph_.node(user);
    if (node.phase != Phase::forward) continue;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != v) continue;
      const CutFactor factor = factor_at(rule_of(user), rule_of(user).inputs[i], position);
      if (!factor || node.op->random || !fits(user, factor)) return gathering(v);  // gathered once, for all
      if (work(user) > 0) continue;
      const OperandShardings operands = operands_of(user, factor);
      for (size_t o = 0; o < node.outputs.size(); ++o) {
        const Sharding& given = operands.outputs[o];
        if (!given.partial.empty()) all += summing(bytes(node.outputs[o]));
        all += cost_of_uses(node.outputs[o], position_of(given), ahead - 1);
      }
    }
  }
  return std::min(all, gathering(v));
}

Splitting::Choice Splitting::weigh(NodeId n, const CutFactor& factor) const {
  const Node& node = graph_.node(n);
  Choice choice{.factor = factor};
  const OperandShardings operands = operands_of(n, factor);
  if (!factor) choice.add(work(n) * others(), uncut_work);
  if (factor.of > 0) {
    const double most = static_cast<double>(largest(factor)) / static_cast<double>(factor.of);
    choice.seconds += work(n) * (most - 1 / static_cast<double>(degree_));  // that the others wait for
  }
  if (factor && extended_of(n).window(factor.factor) >= 0)
    choice.seconds += window_seconds(graph_, node, extended_of(n), factor.factor, degree_, origins_, cost_);
  if (factor && is_added(n, factor) && extended_of(n).row->by_body()) {
    const double slice = bytes(node.inputs[0]) / static_cast<double>(rule_of(n).factors[factor.factor].size);
    choice.seconds += body_sums * summing(slice);
  }
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const CutPosition wanted = position_of(operands.inputs[i]);
    choice.inputs.push_back(wanted);
    if (node.inputs[i] && has_indices(n) && !wanted && !decided_[node.inputs[i]])
      choice.add(gathering(node.inputs[i]), replicated_table);
    if (node.inputs[i]) add_operand(choice, node, node.inputs[i], wanted);
  }
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const Sharding& given = operands.outputs[o];
    choice.outputs.push_back(position_of(given));
    // All slots on each rank, where tokens would go to their own.
    if (fills(n) && !choice.outputs.back()) choice.add(gathering(node.outputs[o]), replicated_table);
    for (const Partial& partial : given.partial) {
      const double all = bytes(node.outputs[o]);
      choice.seconds +=
          rows_move_ && has_indices(n) ? together(Collective::Kind::all_to_all, share(share(all))) : summing(all);
      if (partial.kind != ShardingRule::Reduce::sum) choice.seconds = std::numeric_limits<double>::infinity();
    }
    const auto& wish = wishes_[node.outputs[o]];
    if (choice.outputs.back() && kept_replicated_[node.outputs[o]]) {
      choice.seconds += gathering(node.outputs[o]);
    } else if (wish) {
      if (choice.outputs.back() && choice.outputs.back() != *wish) choice.seconds += gathering(node.outputs[o]);
    } else if ((work(n) > 0 || fills(n)) && node.phase == Phase::forward) {
      choice.seconds += cost_of_uses(node.outputs[o], choice.outputs.back(), foresight);
    }
  }
  return choice;
}

void Splitting::add_operand(Choice& choice, const Node& node, Value v, const CutPosition& wanted) const {
  const CutPosition& now = at_[v];
  const bool cut = static_cast<bool>(choice.factor);
  const bool trained = node.phase == Phase::forward && origins_.depends_on_weights(v) && graph_.value(v).producer &&
                       is_float(graph_.type(v).dtype);
  if (!decided_[v]) return;
  if (now == wanted) {
    if (!now && cut && trained) choice.seconds += summing(bytes(v));
    return;
  }
  if (now) choice.add(gathering(v), origins_.is_weight(v) ? gathered_weight : 1);
  if (!now) choice.seconds += slicing(v);
  if (trained && (!now || cut)) choice.seconds += now ? scattering(v) : gathering(v);
}

}  // namespace epl
