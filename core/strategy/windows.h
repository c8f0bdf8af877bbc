// What it takes to cut dimensions along which windows slide: the rows of an image that a convolution or a pool goes
// over (PartitionRule::halo). Weights stay replicated, and each rank reads a few rows of its neighbours.
#pragma once

#include <optional>
#include <vector>

#include "core/backend/cost_model.h"
#include "core/strategy/batch_cut.h"
#include "core/strategy/origins.h"
#include "core/strategy/plan.h"

namespace epl {

// Whether windows of a node may slide over so many shards of a factor: along one dimension, and each is computed alike.
bool may_slide(const Plan& plan, NodeId node, const ExtendedRule& rule, const CutFactor& factor, int64_t shards);
// Seconds of the transfers between ranks because of it: for what a rank reads over its borders; in the forward pass for
// that of the backward pass as well, where also the gradients of weights are sums over the ranks.
double window_seconds(const Graph& graph, const Node& node, const ExtendedRule& rule, int factor, int64_t shards,
                      const Origins& origins, const CostModel& cost);
// Whether a forward node has windows that may slide over so many shards.
bool has_windows(const Plan& plan, int64_t shards);
// Whether windows slide over shards in the plan.
bool cuts_windows(const Plan& plan);

// Where values of the backward pass had best lie, because a node takes one beside what the forward pass has left in
// shards: the gradient of an activation lies as the activation does. `at`: where the axis cuts the forward values.
ByValue<std::optional<CutPosition>> beside_forward(const Plan& plan, const ByValue<CutPosition>& at, int axis);

}  // namespace epl
