#include "core/program/row_routes.h"

#include <algorithm>

namespace epl {

bool moves_rows(const std::vector<Move>& moves, const Sharding& shards, const RowRoutes& routes) {
  return moves.size() == 1 && (moves[0].gathers || moves[0].scatters) && shards.cut_dim(routes.axis) == 0;
}

bool brings_rows(const Mesh& mesh, const std::vector<Move>& moves, const Sharding& shards, const RowRoutes& routes) {
  return !moves.empty() && std::ranges::all_of(moves, &Move::gathers) && shards.cut_dim(routes.axis) == 0 &&
         moves[0].attributes.text("axis") == mesh.axes[routes.axis].name;
}

// Groups of ranks that have the same experts, and see the rows of all groups, bring these together first: each rank
// then has the rows of its peers. Rows come by owner, then by group, and owners are in this order too; what comes in
// goes back into the order of all rows.
Value dispatched(const LocalWriter& w, Value now, const std::vector<Move>& moves, const RowRoutes& routes,
                 const std::string& name, Phase phase) {
  Node behind{.name = name};
  behind.phase = phase;
  // [a, b, the rest] as [b, a, the rest].
  const auto swapped = [&](Value v, int64_t a, int64_t b, const char* suffix) {
    return w.write(behind, suffix, [&](Builder& to) {
      const TensorType full = w.type(v);  // a copy: what is written moves the graph's own
      const Var split = to.reshape(to.var(v), {a, b, full.elements() / (a * b)});
      return to.reshape(to.transpose(split, {1, 0, 2}), full.shape).value();
    });
  };
  TensorType type = w.type(now);
  const int64_t here = type.shape[0], ranks = moves[0].attributes.integer("parts");
  for (auto move = moves.begin() + 1; move != moves.end(); ++move) {
    type.shape[0] *= move->attributes.integer("parts");
    Move gather = *move;
    gather.type = type;
    now = w.append(gather, cat(name, move->suffix), {now}, phase);
  }
  const int64_t groups = here == 0 ? 1 : type.shape[0] / here;
  const Value owners = groups == 1 ? routes.owners : swapped(routes.owners, groups, ranks, ".owners");
  const Move dispatch{.op = "dispatch_rows", .attributes = moves[0].attributes, .type = moves.back().type};
  const Value rows = w.append(dispatch, cat(name, ".dispatched"), {now, owners}, phase);
  return groups == 1 ? rows : swapped(rows, ranks, groups, ".in_order");
}

Value combined(const LocalWriter& w, Value answers, const Move& move, const RowRoutes& routes, const std::string& name,
               Phase phase) {
  const Move combine{.op = "combine_rows", .attributes = move.attributes, .type = move.type};
  return w.append(combine, cat(name, ".combined"), {answers, routes.owners}, phase);
}

}  // namespace epl
