#include "core/strategy/split_cost.h"

#include <algorithm>
#include <limits>

#include "core/strategy/split_ways.h"
#include "core/strategy/windows.h"

namespace epl {
namespace {

// Costs in bytes moved: of an operation that is not cut (a product is cut whatever it moves), of a byte of a weight
// that is gathered (weights are cut because they are large), of a byte that a rank takes of what it has, and of an
// operation that the others wait for because their pieces are smaller (few: whole heads are worth more).
constexpr double uncut_operation = 100, gathered_weight = 100, sliced_byte = 0.01, uneven_operation = 0.01;
// A byte of a table that each rank has all of; and how many sums over ranks a body takes that is cut, about.
constexpr double whole_table = 10, body_sums = 3;

// What it costs the nodes of the forward pass that use a value to have it cut at this place.
double cost_of_uses(const SplitState& s, Value v, const CutPlace& place, int ahead) {
  if (!place || ahead == 0) return 0;
  double all = 0;
  for (const NodeId user : s.nodes.users(v)) {
    const Node& node = s.graph.node(user);
    if (node.phase != Phase::forward) continue;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != v) continue;
      const CutFactor factor = factor_at(s.rule_of(user), s.rule_of(user).inputs[i], place);
      if (!factor || node.op->random || !fits(s, user, factor)) return s.others() * s.bytes(v);  // gathered once
      if (s.work(user) > 0) continue;
      const OperandShardings operands = s.operands_of(user, factor);
      for (size_t o = 0; o < node.outputs.size(); ++o) {
        const Sharding& given = operands.outputs[o];
        if (!given.partial.empty()) all += 2 * s.others() * s.bytes(node.outputs[o]);
        all += cost_of_uses(s, node.outputs[o], s.place_of(given), ahead - 1);
      }
    }
  }
  return std::min(all, s.others() * s.bytes(v));
}

// To bring an operand to where it is wanted, and, in the forward pass, to bring its gradient back: it is a sum over the
// ranks where the operand is not cut, and pieces where it is.
double operand_cost(const SplitState& s, const Node& node, Value v, const CutPlace& wanted, bool cut) {
  const CutPlace& now = s.at[v];
  const bool trained = node.phase == Phase::forward && s.origins.depends_on_weights(v) && s.graph.value(v).producer &&
                       is_float(s.graph.type(v).dtype);
  if (!s.decided[v]) return 0;
  if (now == wanted) return !now && cut && trained ? 2 * s.others() * s.bytes(v) : 0;
  const double there =
      now ? s.others() * s.bytes(v) * (s.origins.is_weight(v) ? gathered_weight : 1) : sliced_byte * s.bytes(v);
  return there + (trained && (!now || cut) ? s.others() * s.bytes(v) : 0);
}

// Of the node itself, wherever its operands lie.
double node_cost(const SplitState& s, NodeId n, const CutFactor& factor) {
  const Node& node = s.graph.node(n);
  if (!factor) return s.work(n) * s.others() * uncut_operation;
  double cost = 0;
  if (factor.of > 0) {
    const double most = static_cast<double>(largest_piece(s, factor)) / static_cast<double>(factor.of);
    cost += s.work(n) * (most - 1 / static_cast<double>(s.parts)) * uneven_operation;
  }
  if (s.extended_of(n).window(factor.factor) >= 0)
    cost += window_cost(s.graph, node, s.extended_of(n), factor.factor, s.parts, s.origins);
  if (s.is_added(n, factor) && s.extended_of(n).row->by_body()) {
    const double lanes = s.bytes(node.inputs[0]) / static_cast<double>(s.rule_of(n).factors[factor.factor].size);
    cost += body_sums * 2 * s.others() * lanes;
  }
  return cost;
}

// Of a result, as the node gives it, until it is where it is wanted. `place`: where the axis cuts it.
void add_result_cost(const SplitState& s, NodeId n, Value v, const Sharding& given, const CutPlace& place,
                     double& cost) {
  // All slots on each rank, where tokens would go to their own.
  if (s.fills(n) && !place) cost += whole_table * s.others() * s.bytes(v);
  for (const Partial& partial : given.partial) {
    const double each = s.rows_move && s.picks(n) ? 1 / static_cast<double>(s.parts) : 2;
    cost += each * s.others() * s.bytes(v);
    if (partial.kind != ShardingRule::Reduce::sum) cost = std::numeric_limits<double>::infinity();
  }
  const auto& wish = s.wishes[v];
  if (place && s.kept_whole[v]) {
    cost += s.others() * s.bytes(v);
  } else if (wish) {
    if (place && place != *wish) cost += s.others() * s.bytes(v);
  } else if ((s.work(n) > 0 || s.fills(n)) && s.graph.node(n).phase == Phase::forward) {
    cost += cost_of_uses(s, v, place, split_foresight);
  }
}

}  // namespace

SplitChoice weigh(const SplitState& s, NodeId n, const CutFactor& factor) {
  const Node& node = s.graph.node(n);
  SplitChoice choice;
  choice.factor = factor;
  choice.cost = node_cost(s, n, factor);
  const OperandShardings operands = s.operands_of(n, factor);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Value v = node.inputs[i];
    const CutPlace wanted = s.place_of(operands.inputs[i]);
    choice.inputs.push_back(wanted);
    if (!v) continue;
    if (s.picks(n) && !wanted && !s.decided[v]) choice.cost += whole_table * s.others() * s.bytes(v);
    choice.cost += operand_cost(s, node, v, wanted, static_cast<bool>(factor));
  }
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    choice.outputs.push_back(s.place_of(operands.outputs[o]));
    add_result_cost(s, n, node.outputs[o], operands.outputs[o], choice.outputs.back(), choice.cost);
  }
  return choice;
}

}  // namespace epl
