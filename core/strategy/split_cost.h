// What it costs to cut a node in one way, in bytes moved.
#pragma once

#include "core/strategy/split_state.h"

namespace epl {

struct SplitChoice : NodePlaces {
  CutFactor factor;  // none: the node runs whole on each rank
  double cost = 0;
};

SplitChoice weigh(const SplitState& s, NodeId n, const CutFactor& factor);

}  // namespace epl
