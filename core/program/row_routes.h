// Rows that go to the rank that has what they gather, and to no other; their answers come back.
#pragma once

#include <string>
#include <vector>

#include "core/program/local_writer.h"

namespace epl {

// Where the rows of a node go: which rank of `axis` has what they gather.
struct RowRoutes {
  int axis = -1;
  int64_t here = 0;  // of what is gathered, how much a rank has
  Value owners;
};
// The one move that brings rows to all ranks, or answers back, along dimension 0.
bool moves_rows(const std::vector<Move>& moves, const Sharding& shards, const RowRoutes& routes);
// Whether moves bring rows of all ranks, over the axis of the routes first: these go to their owners alone.
bool brings_rows(const Mesh& mesh, const std::vector<Move>& moves, const Sharding& shards, const RowRoutes& routes);
// What then stands for the moves.
Value dispatched(const LocalWriter& w, Value now, const std::vector<Move>& moves, const RowRoutes& routes,
                 const std::string& name, Phase phase);
// Answers, back where their rows came from, in place of the one move that moves_rows has seen.
Value combined(const LocalWriter& w, Value answers, const Move& move, const RowRoutes& routes, const std::string& name,
               Phase phase);

}  // namespace epl
