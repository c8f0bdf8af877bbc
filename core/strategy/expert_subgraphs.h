// Subgraphs of a TaskGraph of which each may be an expert that is nodes of its own.
#pragma once

#include <string>
#include <vector>

#include "core/strategy/plan.h"

namespace epl {

struct ExpertSubgraphs {
  struct Subgraph {
    std::string family;  // what the names of its weights begin with, up to the number that tells the subgraphs apart
    std::vector<NodeId> nodes;  // of all phases, in the order of the graph
    int level = 0;              // how many other subgraphs lie behind one another before it
  };
  std::vector<Subgraph> subgraphs;
  ByNode<int> of_node;   // -1: none
  ByValue<int> of_leaf;  // of state
};

// Nodes of the forward pass that have values or weights of the TaskGraph in common are one subgraph: a scope that holds
// experts alone. Their backward pass and update go with them.
ExpertSubgraphs subgraphs_by_values(const Plan& plan, int task_graph);
// Weights whose names are alike up to a number, counted from the end from 0, are one subgraph ("experts.3.0.w" and
// "experts.3.1.w" up to number 1), with the nodes that use them and what lies between these: a scope that holds other
// nodes as well. What is rank-local already is in none.
ExpertSubgraphs subgraphs_by_names(const Plan& plan, int task_graph, int number);

}  // namespace epl
