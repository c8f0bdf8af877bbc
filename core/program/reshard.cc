#include "core/program/reshard.h"

#include <algorithm>

#include "core/strategy/mesh_text.h"

namespace epl {
namespace {

using Kind = MeshAxis::Kind;

// The axes that make pieces: neither units nor of size one.
std::vector<int> cutting(const Mesh& mesh, const std::vector<int>& axes) {
  std::vector<int> found;
  for (int axis : axes) {
    if (mesh.pieces({axis}) > 1) found.push_back(axis);
  }
  return found;
}

class Resharding {
 public:
  Resharding(const Mesh& mesh, const TensorType& global, const Sharding& from, const Sharding& to)
      : mesh_(mesh), global_(global), now_(from), to_(to) {}

  Result<std::vector<Move>> run() {
    EPL_TRY(reduce(Kind::time));
    EPL_TRY(reduce(Kind::rank));
    for (size_t d = 0; d < now_.dims.size(); ++d) EPL_TRY(gather(d));
    for (size_t d = 0; d < now_.dims.size(); ++d) EPL_TRY(slice(d));
    return std::move(moves_);
  }

 private:
  const MeshAxis& axis(int index) const { return mesh_.axes[static_cast<size_t>(index)]; }

  void add(std::string op, std::string suffix, Attributes attributes, bool at_last_turn = false) {
    moves_.push_back(
        {std::move(op), std::move(suffix), std::move(attributes), local_type(mesh_, global_, now_), at_last_turn});
  }

  Status reduce(Kind kind) {
    const std::vector<Partial> due = now_.partial;
    for (const Partial& partial : due) {
      if (axis(partial.axis).kind != kind || std::ranges::find(to_.partial, partial) != to_.partial.end()) continue;
      std::erase(now_.partial, partial);
      if (axis(partial.axis).size == 1) continue;
      if (partial.kind != ShardingRule::Reduce::sum)
        return unsupported("a maximum or minimum over the pieces of ", axis(partial.axis).name);
      if (kind == Kind::time) {
        add("accumulate", ".accumulated", {}, true);
        continue;
      }
      const std::string& name = axis(partial.axis).name;
      const bool scatters = !now_.dims.empty() && !now_.dims[0] &&
                            cutting(mesh_, to_.dims[0].axes) == std::vector{partial.axis} && to_.dims[0].outer == 1;
      if (scatters) now_.dims[0] = to_.dims[0];
      if (scatters) {
        add("reduce_scatter", ".scattered", {{"axis", name}, {"parts", axis(partial.axis).size}});
      } else {
        add("all_reduce", ".reduced", {{"axis", name}});
      }
    }
    return {};
  }

  // A dimension that is cut and is to be whole, or is cut otherwise.
  Status gather(size_t d) {
    const std::vector<int> held = cutting(mesh_, now_.dims[d].axes), wanted = cutting(mesh_, to_.dims[d].axes);
    if (held.empty() || (held == wanted && now_.dims[d].outer == to_.dims[d].outer)) return {};
    if (d != 0 || held.size() != 1 || axis(held[0]).kind != Kind::rank || now_.dims[d].outer != 1) {
      return unsupported("gathering dimension ", d, ", which ", axis_names(mesh_, held), " cut");
    }
    now_.dims[d] = {};
    add("all_gather", ".gathered", {{"axis", axis(held[0]).name}, {"parts", axis(held[0]).size}});
    return {};
  }

  Status slice(size_t d) {
    const AxisCut& wanted = to_.dims[d];
    const int64_t pieces = mesh_.pieces(wanted.axes);
    if (pieces == mesh_.pieces(now_.dims[d].axes)) return {};
    if (now_.dims[d])
      return unsupported("cutting dimension ", d, " again, which ",
                         axis_names(mesh_, cutting(mesh_, now_.dims[d].axes)), " cut");
    now_.dims[d] = wanted;
    add("batch_slice", ".piece",
        {{"dim", static_cast<int64_t>(d)},
         {"axes", axis_names(mesh_, wanted.axes)},
         {"size", local_type(mesh_, global_, now_).shape[d]},
         {"outer", wanted.outer}});
    return {};
  }

  const Mesh& mesh_;
  const TensorType& global_;
  Sharding now_;
  const Sharding& to_;
  std::vector<Move> moves_;
};

}  // namespace

TensorType local_type(const Mesh& mesh, const TensorType& global, const Sharding& sharding) {
  TensorType type = global;
  for (size_t d = 0; d < sharding.dims.size(); ++d) type.shape[d] /= mesh.pieces(sharding.dims[d].axes);
  return type;
}

Result<std::vector<Move>> reshard(const Mesh& mesh, const TensorType& global, const Sharding& from,
                                  const Sharding& to) {
  return Resharding(mesh, global, from, to).run();
}

Result<Crossing> cross(const Mesh& from_mesh, int from, const Mesh& to_mesh, int to, const TensorType& global,
                       const Sharding& sharding) {
  const TensorType type = local_type(from_mesh, global, sharding);
  if (type != local_type(to_mesh, global, sharding) || from_mesh.ranks() != to_mesh.ranks()) {
    return unsupported("a value goes from ", from_mesh.ranks(), " ranks to ", to_mesh.ranks(),
                       ", which cut it otherwise");
  }
  return Crossing{.send = {"send", ".sent", {{"to", static_cast<int64_t>(to)}}, type, false, false},
                  .receive = {"receive",
                              ".received",
                              {{"from", static_cast<int64_t>(from)}, {"dtype", type.dtype}, {"shape", type.shape}},
                              type}};
}

}  // namespace epl
