// Scopes onto ranks. A scope's nodes are a TaskGraph, its ranks the VirtualDevice. Sibling scopes take different ranks,
// each as many as its count asks for in every copy; what is left over is data parallelism. One scope by itself, and
// siblings under cluster.colocate_split_and_replicate, share the ranks of what they stand in. So do scopes inside
// stages that are found, or of which ranks have several (core/strategy/staging.h): they are no stages themselves.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/ir/graph.h"
#include "core/strategy/batch_axes.h"
#include "core/strategy/strategy.h"

namespace epl {

// Over how many ranks a scope cuts its nodes, and how.
struct ScopeRole {
  ScopeKind kind = ScopeKind::split;
  int64_t degree = 1;
};

// A TaskGraph to be: the nodes of one scope that no scope inside it has.
struct ScopeLeaf {
  std::string name;
  const Scope* scope = nullptr;   // null: what no scope matches
  int device = 0;                 // of ScopeLayout::devices
  int64_t data = 1;               // degree of data parallelism
  std::vector<ScopeRole> roles;   // outermost first
  std::vector<DimPin> pins = {};  // innermost first
};

struct ScopeLayout {
  std::vector<VirtualDevice> devices;
  std::vector<ScopeLeaf> leaves;
  // The leaf that a node is in; -1: that of its operands.
  int leaf_of(const Graph& graph, const Node& node) const;

  const Strategy* strategy = nullptr;
  std::map<const Scope*, int> leaf_of_scope;
  int unmatched = -1;  // the leaf of what no scope matches; -1: that of its operands
};

// What takes ranks of its own beside its siblings.
enum class SideBySide : uint8_t {
  siblings,  // all that do not share by the strategy
  stages,    // the outermost scopes alone, even one by itself
};
// The strategy must outlive the layout. Errors name the scope and the numbers.
Result<ScopeLayout> lay_out_scopes(const Strategy& strategy, int64_t ranks, SideBySide beside = SideBySide::siblings);
// Whether one of the scope's patterns matches the node; a scope without patterns matches everything.
bool scope_matches(const Scope& scope, const Graph& graph, const Node& node);
// The first of these scopes that matches the node, -1 if none does.
int match_among(const std::vector<Scope>& scopes, const Graph& graph, const Node& node);
// The innermost scope of the strategy that a node is in: the default where no other matches, null where there is none.
const Scope* innermost_scope(const Strategy& strategy, const Graph& graph, const Node& node);

// The meshes of the layout's leaves, for a batch of U units and these micro-batches. Ranks of one device that
// several leaves cut differently have an axis for each way.
struct LeafMesh {
  Mesh mesh;
  BatchLayout batch;                   // TaskGraph::batch
  std::vector<std::vector<int>> axes;  // by role of the leaf
};
Result<std::vector<LeafMesh>> make_meshes(const ScopeLayout& layout, const BatchAxes& batch, int64_t units,
                                          const MicroBatches& in_time);
// By which the leaves cut the batch.
Result<BatchAxes> find_batch_axes(const ScopeLayout& layout);

}  // namespace epl
