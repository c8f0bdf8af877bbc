// Regions of elementwise nodes become single `fused` nodes, so that their intermediate results never reach memory.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/backend/kernel.h"
#include "core/ir/graph.h"
#include "core/program/program.h"

namespace epl {

// The same graph with every elementwise node inside a `fused` node, but for a node that stays alone and whose op has
// kernel rows of its own in `kernels` (null: no op has). The expression of a `fused` node is the scalar expressions of
// its nodes joined; a result that is used inside is rounded to its type by a cast, so the bits are those of the
// separate nodes. Nodes join where one uses the other's result, both have the same shape, phase and region, and floats
// of one type that `kernels` compute regions of (with truth values, and casts from integers); integer arithmetic stays
// single. No value is computed
// twice. Constants of one element become numbers of the expression; an operand that is only broadcast is read where it
// comes from.
// `regions`, if not null, is given what stands for what in each: Instruction::nodes, by the name of the `fused` node.
using RegionNodes = std::map<std::string, std::vector<DoneNode>>;
Graph fuse_elementwise(const Graph& graph, const KernelTable* kernels = nullptr, RegionNodes* regions = nullptr);

}  // namespace epl
