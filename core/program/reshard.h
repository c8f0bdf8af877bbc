// The moves of a value between two shardings, as nodes of transfers in the local graph: the slice of a batch, the sum
// over micro-batches and the sum over ranks are cases of it. Some moves are written elsewhere: rows that go to
// their owner (row_routes.h), the borders of windows (shard_halo.cc), and the runs of units of a call
// (batch_runs.h).
//
// Communicators gather and scatter along dimension 0. For another dimension there are reshapes and a transpose around
// the transfer, which are nodes like any other.
#pragma once

#include <string>
#include <vector>

#include "core/base/attributes.h"
#include "core/strategy/batch_layout.h"

namespace epl {

// A node that transfers put into a local graph.
struct Move {
  std::string op, suffix;  // of the node, and of the name of its result
  Attributes attributes;
  TensorType type;                 // of its result
  bool at_last_iteration = false;  // the result is there when the loop over micro-batches has ended
  bool gathers = false;            // it takes more memory than what a rank has of the value
  bool scatters = false;           // it leaves a rank its shard of a sum
  bool gives = true;               // a result: `type` is else that of its operand
  bool sums = false;               // it adds up what micro-batches or ranks have
  double factor = 1;               // that it multiplies with, as a second operand; 1: it has none
};

// The type of a value of one rank and micro-batch.
TensorType local_type(const Mesh& mesh, const TensorType& global, const Sharding& sharding);

// What turns a value that lies as `from` into one that lies as `to`, in order; nothing where they differ in axes that
// make no shards. Sums over the batch come first, in its order, and then those over other axes. An error where no
// transfer makes the move.
Result<std::vector<Move>> reshard(const Mesh& mesh, const BatchLayout& batch, const TensorType& global,
                                  const Sharding& from, const Sharding& to);

// What takes a value to the ranks of another mesh. Axes of the same size in both keep cutting it, and sums over them
// may still be pending; over others it is gathered first (`gathers`), so that it lies `as` this in both. Then there is
// a send for each rank that a rank may have to serve, and one node receives. `from` and `to` are the numbers of the
// virtual devices.
struct Crossing {
  std::vector<Move> gathers;
  Sharding as;
  std::vector<Move> sends;
  Move receive;
};
Result<Crossing> cross(const Mesh& from_mesh, int from, const Mesh& to_mesh, int to, const TensorType& global,
                       const Sharding& sharding);

}  // namespace epl
