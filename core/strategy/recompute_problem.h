// Which results of a forward pass are computed again in the backward pass, as a problem of numbers: no graph, no plan.
//
// Nodes run in their order, then steps of the backward pass. A node that is computed again runs once more, in front of
// the first step that takes a result of it, or that another such node is computed again for. So its results are in
// memory twice for a short time, and are gone in between. Any other result that is needed again is kept.
//
// Memory is looked at while each node and each step runs. What is computed again only for others of the same step is
// gone when the step runs, and is not counted.
#pragma once

#include <vector>

namespace epl {

struct RecomputeProblem {
  struct Node {
    double seconds = 0;
    bool may = false;                  // be computed again
    std::vector<int> inputs, outputs;  // in `bytes`
    friend bool operator==(const Node&, const Node&) = default;
  };
  // A node of the backward pass.
  struct Step {
    double bytes = 0;        // that are there then, whatever is computed again
    std::vector<int> takes;  // results of nodes
    friend bool operator==(const Step&, const Step&) = default;
  };
  std::vector<double> bytes;  // of the results of nodes
  std::vector<Node> nodes;    // in their order, so that inputs come before
  std::vector<Step> steps;
  double always = 0;     // bytes that are there at all times, beside those of the steps
  double in_flight = 1;  // micro-batches whose results are kept at a time
  friend bool operator==(const RecomputeProblem&, const RecomputeProblem&) = default;
};

using ComputedAgain = std::vector<bool>;  // by node

struct RecomputeCost {
  double seconds = 0, peak = 0;
};
// Nodes that nobody needs again cost nothing.
RecomputeCost cost_of(const RecomputeProblem& problem, const ComputedAgain& again);

}  // namespace epl
