// segments: what a sum that a split may cut adds up one by one, at `reproducible.level` = `layout`.
//
// The segments of a node must be the same in every layout. So they are taken from one plan of the same graph that is
// the same in every layout: all nodes split over two ranks, without stages, copies and micro-batches. Where that plan
// cuts what a node sums over, the node gets the most segments that divide it, up to the largest degree that is
// promised. Where it does not, no split may cut what the node sums over.
#include "core/strategy/segments.h"

#include <algorithm>

#include "core/strategy/pass.h"

namespace epl {
namespace {

constexpr int64_t max_segments = 8;

// The plan of which every layout takes its segments. It is that of the default machine, on whatever device it runs.
Result<Plan> common_plan(const PassContext& context) {
  PlanRequest request{
      .graph = context.request.graph, .ranks = 2, .passes = "place; propagate; split(pieces=false, uneven=false)"};
  request.strategy.has_default = true;
  request.strategy.default_scope = {.kind = ScopeKind::split, .device_count = 2};
  return decide(request);
}

// Of a node, where the plan cuts what it sums over; none where the sum is over the batch as well, whose order of
// summation is another one.
SumSegments segments_of(const ShardingRule& rule, const NodeSharding& node, int split) {
  SumSegments found;
  for (size_t f = 0; f < node.factors.size(); ++f) {
    if (const AxisCut* cut = find_cut(node.factors[f], split))
      found = {.factor = static_cast<int>(f), .outer = cut->outer, .count = 2};
  }
  if (!found) return {};
  const ShardingRule::Factor& factor = rule.factors[found.factor];
  int sums = 0;
  for (const Sharding& output : operand_shardings(rule, node).outputs) {
    const auto pending = [&](int axis) { return std::ranges::find(output.partial, axis, &Partial::axis); };
    if (pending(split) == output.partial.end()) continue;
    if (pending(batch_axis) != output.partial.end() || factor.reduce != ShardingRule::Reduce::sum) return {};
    ++sums;
  }
  if (sums != 1) return {};  // two sums may go over their positions in different orders
  while (found.count < max_segments && factor.size % (found.outer * found.count * 2) == 0) found.count *= 2;
  return found;
}

Status find_segments(PassContext& context) {
  EPL_ASSIGN(const Plan common, common_plan(context));
  const Graph& graph = *context.plan.graph;
  const int split = common.task_graphs.front().split.front();
  for (const NodeId n : graph.node_ids()) {
    const NodeSharding& sharding = common.node_shardings[n];
    if (!sharding.cut_by(split)) continue;
    context.plan.node_shardings[n].segments = segments_of(common.rules->own[n], sharding, split);
  }
  return {};
}

}  // namespace

EPL_PASS(segments) {
  return {.doc = "at reproducible.level=layout: what sums that a split may cut add up one by one",
          .run = [](PassContext& c) -> Status {
            if (!sums_by_segments(c.plan)) return {};
            if (c.plan.node_shardings.size() != c.plan.graph->node_count())
              return invalid("it needs place and propagate before it");
            return find_segments(c);
          }};
}

}  // namespace epl
