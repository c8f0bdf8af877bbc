#include "core/program/reshard.h"

#include <algorithm>

#include "core/strategy/mesh_text.h"

namespace epl {
namespace {

using Kind = MeshAxis::Kind;

// The cuts that make pieces, without axes that make none: units, and axes of size one.
Cuts cutting(const Mesh& mesh, const Cuts& cuts) {
  Cuts found;
  for (const AxisCut& cut : cuts) {
    AxisCut& kept = found.emplace_back(AxisCut{{}, cut.outer});
    for (int axis : cut.axes) {
      if (mesh.pieces(std::vector{axis}) > 1) kept.axes.push_back(axis);
    }
    if (kept.axes.empty()) found.pop_back();
  }
  return found;
}

int64_t product(const Shape& shape, size_t first, size_t last) {
  int64_t size = 1;
  for (size_t d = first; d < last; ++d) size *= shape[d];
  return size;
}

class Resharding {
 public:
  Resharding(const Mesh& mesh, const TensorType& global, const Sharding& from, const Sharding& to)
      : mesh_(mesh), due_(from.partial), still_due_(to.partial), type_(local_type(mesh, global, from)) {
    for (const Cuts& cuts : from.dims) now_.push_back(cutting(mesh, cuts));
    for (const Cuts& cuts : to.dims) to_.push_back(cutting(mesh, cuts));
  }

  Result<std::vector<Move>> run() {
    EPL_TRY(reduce(Kind::time));
    EPL_TRY(reduce(Kind::rank));
    for (size_t d = 0; d < now_.size(); ++d) EPL_TRY(gather(d));
    for (size_t d = 0; d < now_.size(); ++d) slice(d);
    return std::move(moves_);
  }

 private:
  const MeshAxis& axis(int index) const { return mesh_.axes[static_cast<size_t>(index)]; }

  void add(std::string op, std::string suffix, Attributes attributes, Shape shape, bool at_last_turn = false) {
    type_.shape = std::move(shape);
    moves_.push_back({std::move(op), std::move(suffix), std::move(attributes), type_, at_last_turn});
  }
  void collective(const std::string& op, const std::string& suffix, int over, Shape shape) {
    add(op, suffix, {{"axis", axis(over).name}, {"parts", axis(over).size}}, std::move(shape));
  }
  void view(const std::string& suffix, const Shape& shape) {
    if (shape != type_.shape) add("reshape", suffix, {{"shape", shape}}, shape);
  }
  void swap_first_two(const std::string& suffix) {
    add("transpose", suffix, {{"perm", Ints{1, 0, 2}}}, {type_.shape[1], type_.shape[0], type_.shape[2]});
  }

  Status reduce(Kind kind) {
    const std::vector<Partial> due = due_;
    for (const Partial& partial : due) {
      if (axis(partial.axis).kind != kind || std::ranges::find(still_due_, partial) != still_due_.end()) continue;
      std::erase(due_, partial);
      if (axis(partial.axis).size == 1) continue;
      if (partial.kind != ShardingRule::Reduce::sum)
        return unsupported("a maximum or minimum over the pieces of ", axis(partial.axis).name);
      if (kind == Kind::time) {
        add("accumulate", ".accumulated", {}, type_.shape, true);
      } else if (!scatter(partial.axis)) {
        add("all_reduce", ".reduced", {{"axis", axis(partial.axis).name}}, type_.shape);
      }
    }
    return {};
  }

  // How a dimension of the local value divides for a cut that it has, or is to have: `before` runs, each of `run`
  // elements for each piece.
  struct Runs {
    int64_t before = 1, run = 1;
  };
  Runs runs(size_t d, int64_t outer, int64_t pieces) const {
    for (const AxisCut& cut : now_[d]) outer /= cut.outer < outer ? mesh_.pieces(cut.axes) : 1;
    return {product(type_.shape, 0, d) * outer,
            type_.shape[d] / outer / pieces * product(type_.shape, d + 1, type_.shape.size())};
  }

  // A sum that is wanted in pieces over its own axis, in one move; false where it is not.
  bool scatter(int over) {
    for (size_t d = 0; d < to_.size(); ++d) {
      const AxisCut* wanted = find_cut(to_[d], over);
      if (!wanted || wanted->axes != std::vector{over} || find_cut(now_[d], over)) continue;
      const auto [before, run] = runs(d, wanted->outer, axis(over).size);
      Shape shape = type_.shape;
      shape[d] /= axis(over).size;
      if (d == 0 && before == 1) {  // the pieces follow one another as they lie
        collective("reduce_scatter", ".scattered", over, shape);
        insert(now_[d], *wanted);
        return true;
      }
      if (before > 1) {
        view(".runs", {before, axis(over).size, run});
        swap_first_two(".by_rank");
      }
      view(".pieces", {axis(over).size, before * run});
      collective("reduce_scatter", ".scattered", over, {1, before * run});
      view(".piece", shape);
      insert(now_[d], *wanted);
      return true;
    }
    return false;
  }

  static void insert(Cuts& cuts, AxisCut cut) {
    cuts.insert(std::ranges::upper_bound(cuts, cut.outer, {}, &AxisCut::outer), std::move(cut));
  }

  // The axes of cuts that are not wanted, minor ones first. What a wanted cut begins with stays.
  Status gather(size_t d) {
    const Cuts held = now_[d];
    for (const AxisCut& cut : held) {
      const auto same = std::ranges::find(to_[d], cut.outer, &AxisCut::outer);
      size_t kept = 0;
      while (same != to_[d].end() && kept < std::min(cut.axes.size(), same->axes.size()) &&
             cut.axes[kept] == same->axes[kept])
        ++kept;
      for (size_t a = cut.axes.size(); a-- > kept;) EPL_TRY(gather_axis(d, cut.outer, cut.axes[a]));
    }
    return {};
  }

  Status gather_axis(size_t d, int64_t outer, int over) {
    if (axis(over).kind != Kind::rank)
      return unsupported("gathering dimension ", d, ", which ", axis(over).name, " cuts");
    const auto cut = std::ranges::find(now_[d], outer, &AxisCut::outer);
    int64_t kept = outer;  // with the axes of this cut that stay
    std::erase(cut->axes, over);
    kept *= mesh_.pieces(cut->axes);
    const auto [before, run] = runs(d, kept, 1);
    if (cut->axes.empty()) now_[d].erase(cut);
    Shape shape = type_.shape, gathered = type_.shape;
    shape[d] *= axis(over).size;
    if (gathered.empty() || gathered[0] == 0) return unsupported("gathering dimension ", d);
    gathered[0] *= axis(over).size;
    collective("all_gather", ".gathered", over, gathered);
    if (before > 1) {
      view(".by_rank", {axis(over).size, before, run});
      swap_first_two(".runs");
    }
    view(".whole", shape);
    return {};
  }

  void slice(size_t d) {
    for (const AxisCut& wanted : to_[d]) {
      const auto held = std::ranges::find(now_[d], wanted.outer, &AxisCut::outer);
      AxisCut rest = wanted;
      if (held != now_[d].end()) {
        rest.axes.erase(rest.axes.begin(), rest.axes.begin() + static_cast<std::ptrdiff_t>(held->axes.size()));
        if (rest.axes.empty()) continue;
        rest.outer *= mesh_.pieces(held->axes);
      }
      const int64_t pieces = mesh_.pieces(rest.axes);
      int64_t outer = rest.outer;  // in the local value
      for (const AxisCut& cut : now_[d]) outer /= cut.outer < rest.outer ? mesh_.pieces(cut.axes) : 1;
      Shape shape = type_.shape;
      shape[d] /= pieces;
      add("batch_slice", ".piece",
          {{"dim", static_cast<int64_t>(d)},
           {"axes", axis_names(mesh_, rest.axes)},
           {"size", shape[d]},
           {"outer", outer}},
          shape);
      if (held != now_[d].end()) {
        held->axes = wanted.axes;
      } else {
        insert(now_[d], wanted);
      }
    }
  }

  const Mesh& mesh_;
  std::vector<Partial> due_;
  const std::vector<Partial>& still_due_;
  std::vector<Cuts> now_, to_;
  TensorType type_;  // of the value at hand
  std::vector<Move> moves_;
};

}  // namespace

TensorType local_type(const Mesh& mesh, const TensorType& global, const Sharding& sharding) {
  TensorType type = global;
  for (size_t d = 0; d < sharding.dims.size(); ++d) type.shape[d] /= mesh.pieces(sharding.dims[d]);
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
