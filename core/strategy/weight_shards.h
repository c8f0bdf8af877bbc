// Shards of parameters over the copies that ranks have of them: where a parameter may be cut for that, and, at
// `zero.level` = `v2`, how it is stored.
//
// A weight that is stored in shards is gathered where a node needs it, once in the forward pass and once in the
// backward pass of each call, as any value is that is cut otherwise than its user wants. The update takes and gives
// shards.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/strategy/plan.h"

namespace epl {

bool shards_gradients(const Strategy& strategy);  // zero.level = v1 or v2

// Equal runs that a cut makes of a dimension or factor: of an uneven one, its granules.
int64_t runs_of(const Mesh& mesh, const AxisCut& cut);

// Where a value that lies like this has shards over more axes, inside what cuts it already. The dimensions that divide
// come first: shards of dimension 0 lie one behind the other. Then the uneven cut with the smallest shard.
std::vector<CutPosition> shard_positions(const Mesh& mesh, const TensorType& type, const Sharding& now,
                                         const std::vector<int>& axes);
Sharding with_shards(Sharding sharding, const CutPosition& position, const std::vector<int>& axes);

// How the first of the entries that share their state stores what has this name; none where it has no such state. All
// entries have meshes of the same ranks.
std::optional<Sharding> sharding_in(const Plan& first, const std::string& state);

// Stores every parameter in shards over the ranks that cut the batch, frozen ones too. `first`: of the first entry of
// those that share their state, where this is another one; it has decided. Updates have been cut before.
void shard_weights(Plan& plan, const Plan* first);

}  // namespace epl
