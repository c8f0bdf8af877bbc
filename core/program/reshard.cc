#include "core/program/reshard.h"

#include <algorithm>
#include <iterator>

#include "core/program/padding.h"
#include "core/strategy/mesh_text.h"

namespace epl {
namespace {

using Kind = MeshAxis::Kind;

// The cuts that make shards, each of one axis: without units, and without axes of size one. Of a dimension with this
// padding, in which all shards are equal.
Cuts cutting(const Mesh& mesh, const Cuts& cuts, const Cuts& padded) {
  Cuts found;
  const Padding padding(mesh, padded);
  for (const AxisCut& cut : cuts) {
    int64_t outer = padding.outer(cut);
    for (int axis : cut.axes) {
      if (mesh.shards(std::vector{axis}) > 1) found.push_back({{axis}, outer});
      outer *= mesh.axes[axis].size;
    }
  }
  return found;
}

bool is_uneven(const AxisCut& cut) { return cut.of > 0; }
bool has_all(const Cuts& cuts, const Cuts& wanted) {
  return std::ranges::all_of(wanted, [&](const AxisCut& cut) { return std::ranges::find(cuts, cut) != cuts.end(); });
}
Cuts uneven_cuts(const Cuts& cuts) {
  Cuts found;
  std::ranges::copy_if(cuts, std::back_inserter(found), is_uneven);
  return found;
}

// The uneven cuts of the second that the first does not have.
Cuts added_cuts(const Cuts& cuts, const Cuts& more) {
  Cuts found = uneven_cuts(more);
  std::erase_if(found, [&](const AxisCut& cut) { return has_all(cuts, {cut}); });
  return found;
}

// The cuts that say how a dimension is padded between two shardings, of which one has the other's uneven cuts.
const Cuts& padded(const Cuts& from, const Cuts& to) {
  return std::ranges::count_if(from, is_uneven) > std::ranges::count_if(to, is_uneven) ? from : to;
}

int64_t product(const Shape& shape, size_t first, size_t last) {
  int64_t size = 1;
  for (size_t d = first; d < last; ++d) size *= shape[d];
  return size;
}

// Of a dimension, one sharding has all uneven cuts of the other. A dimension gets the padding of an uneven cut before
// it is cut, and loses this padding when it is gathered again: between the two all shards are equal.
class Resharding {
 public:
  Resharding(const Mesh& mesh, const BatchLayout& batch, const TensorType& global, const Sharding& from,
             const Sharding& to)
      : mesh_(mesh),
        batch_(batch),
        from_(from),
        wanted_(to),
        pending_(from.partial),
        still_pending_(to.partial),
        type_(local_type(mesh, global, from)) {
    for (size_t d = 0; d < from.dims.size(); ++d) {
      const Cuts& padding = padded(from.dims[d], to.dims[d]);
      now_.push_back(cutting(mesh, from.dims[d], padding));
      to_.push_back(cutting(mesh, to.dims[d], padding));
    }
  }

  Result<std::vector<Move>> run() {
    for (size_t d = 0; d < now_.size(); ++d) pad(d);
    for (int axis : batch_.order_of_sums()) EPL_TRY(reduce([&](const Partial& sum) { return sum.axis == axis; }));
    EPL_TRY(reduce([](const Partial&) { return true; }));
    for (size_t d = 0; d < now_.size(); ++d) exchange(d);
    for (size_t d = 0; d < now_.size(); ++d) EPL_TRY(gather(d));
    for (size_t d = 0; d < now_.size(); ++d) slice(d);
    for (size_t d = 0; d < now_.size(); ++d) crop(d);
    return std::move(moves_);
  }

 private:
  const MeshAxis& axis(int index) const { return mesh_.axes[index]; }

  void add(std::string op, std::string suffix, Attributes attributes, Shape shape, bool at_last_iteration = false) {
    type_.shape = std::move(shape);
    moves_.push_back({std::move(op), std::move(suffix), std::move(attributes), type_, at_last_iteration});
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

  // Of the local value, whose other cuts are `now_`: dimension d as [before, granules, the rest].
  void set_granules(size_t d, int64_t outer, int64_t granules, int64_t wanted) {
    const Shape shape = type_.shape;
    for (const AxisCut& cut : now_[d]) outer /= cut.outer < outer ? mesh_.shards(cut.axes) : 1;
    const int64_t before = product(shape, 0, d) * outer, all = product(shape, 0, shape.size());
    const int64_t run = before * granules == 0 ? 0 : all / (before * granules);
    view(".granules", {before, granules, run});
    if (wanted > granules) {
      add("pad", ".padded",
          {{"mode", std::string("constant")}, {"begin", Ints{0, 0, 0}}, {"end", Ints{0, wanted - granules, 0}}},
          {before, wanted, run});
    } else {
      add("slice", ".cropped", {{"axes", Ints{1}}, {"starts", Ints{0}}, {"ends", Ints{wanted}}, {"steps", Ints{}}},
          {before, wanted, run});
    }
    Shape made = shape;
    made[d] = shape[d] / granules * wanted;
    view(wanted > granules ? ".with_padding" : ".without_padding", made);
  }
  // Major cuts first, which divide what the minor ones stand in.
  void pad(size_t d) {
    const Padding padding(mesh_, wanted_.dims[d]);
    for (const AxisCut& cut : added_cuts(from_.dims[d], wanted_.dims[d]))
      set_granules(d, padding.outer(cut), cut.of, padding.granules(cut));
  }
  void crop(size_t d) {
    const Padding padding(mesh_, from_.dims[d]);
    Cuts cuts = added_cuts(wanted_.dims[d], from_.dims[d]);
    std::ranges::reverse(cuts);
    for (const AxisCut& cut : cuts) set_granules(d, padding.outer(cut), padding.granules(cut), cut.of);
  }

  template <class F> Status reduce(F now) {
    for (const Partial& partial : std::vector(pending_)) {
      const Kind kind = axis(partial.axis).kind;
      if (!now(partial) || std::ranges::find(still_pending_, partial) != still_pending_.end()) continue;
      std::erase(pending_, partial);
      if (axis(partial.axis).size == 1 || kind == Kind::unit) continue;
      if (partial.kind == ShardingRule::Reduce::owner)
        return unsupported("rows lie on one rank of ", axis(partial.axis).name,
                           " each, and this use of them needs them on all; leave out the scope that places them");
      if (partial.kind != ShardingRule::Reduce::sum) {
        if (kind == Kind::time)
          return unsupported("a maximum or minimum is taken over the shards of ", axis(partial.axis).name,
                             ", which only sums are; use fewer micro-batches");
        const bool largest = partial.kind == ShardingRule::Reduce::max;
        add("all_reduce", largest ? ".largest" : ".smallest",
            {{"axis", axis(partial.axis).name}, {"reduction", largest ? "max" : "min"}}, type_.shape);
      } else if (kind == Kind::time) {
        add("accumulate", ".accumulated", {}, type_.shape, true);
        moves_.back().sums = true;
      } else if (!scatter(partial.axis)) {
        add("all_reduce", ".reduced", {{"axis", axis(partial.axis).name}}, type_.shape);
        moves_.back().sums = true;
      }
    }
    return {};
  }

  // How a dimension of the local value divides for a cut that it has, or is to have: `before` runs, each of `run`
  // elements for each shard.
  struct Runs {
    int64_t before = 1, run = 1;
  };
  Runs runs(const Shape& shape, size_t d, int64_t outer, int64_t shards) const {
    int64_t here = outer;  // of the `outer` runs, those that this rank has
    for (const AxisCut& cut : now_[d]) here /= cut.outer < outer ? mesh_.shards(cut.axes) : 1;
    return {product(shape, 0, d) * here, shape[d] / here / shards * product(shape, d + 1, shape.size())};
  }
  // The value as [shards, the shard of a rank].
  void take_apart(int64_t shards, const Runs& runs) {
    if (runs.before > 1) {
      view(".runs", {runs.before, shards, runs.run});
      swap_first_two(".by_rank");
    }
    view(".shards", {shards, runs.before * runs.run});
  }
  // And back.
  void put_together(int64_t shards, const Runs& runs, const Shape& shape) {
    if (runs.before > 1) {
      view(".by_rank", {shards, runs.before, runs.run});
      swap_first_two(".runs");
    }
    view(".full", shape);
  }

  // A sum that is wanted in shards over its own axis, in one move; false where it is not.
  bool scatter(int over) {
    for (size_t d = 0; d < to_.size(); ++d) {
      const AxisCut* wanted = find_cut(to_[d], over);
      if (!wanted || wanted->axes != std::vector{over} || find_cut(now_[d], over)) continue;
      // Shards of a shard that goes elsewhere would be other ones.
      const auto leaves = [&](const AxisCut& cut) { return std::ranges::find(to_[d], cut) == to_[d].end(); };
      if (std::ranges::any_of(now_[d], leaves)) continue;
      const Runs shards = runs(type_.shape, d, wanted->outer, axis(over).size);
      Shape shape = type_.shape;
      shape[d] /= axis(over).size;
      if (d == 0 && shards.before == 1) {  // the shards follow one another as they lie
        collective("reduce_scatter", ".scattered", over, shape);
        moves_.back().scatters = moves_.back().sums = true;
        insert(now_[d], *wanted);
        return true;
      }
      take_apart(axis(over).size, shards);
      collective("reduce_scatter", ".scattered", over, {1, shards.before * shards.run});
      moves_.back().sums = true;
      view(".shard", shape);
      insert(now_[d], *wanted);
      return true;
    }
    return false;
  }

  static void insert(Cuts& cuts, AxisCut cut) {
    cuts.insert(std::ranges::upper_bound(cuts, cut.outer, {}, &AxisCut::outer), std::move(cut));
  }

  // An axis of ranks that cuts this dimension and is wanted in another one: every rank sends every other a run of its
  // shard, and nobody has all of it.
  void exchange(size_t d) {
    const Cuts held = now_[d];
    for (const AxisCut& cut : held) {
      const int over = cut.axes[0];
      if (axis(over).kind != Kind::rank || product(type_.shape, 0, type_.shape.size()) == 0) continue;
      for (size_t other = 0; other < to_.size(); ++other) {
        const AxisCut* wanted = find_cut(to_[other], over);
        if (other != d && wanted) exchange_axis(d, cut, other, *wanted);
      }
    }
  }

  void exchange_axis(size_t from, const AxisCut& cut, size_t to, const AxisCut& wanted) {
    const int over = cut.axes[0];
    const int64_t ranks = axis(over).size;
    Shape sent = type_.shape;  // that a rank sends to another
    sent[to] /= ranks;
    take_apart(ranks, runs(type_.shape, to, wanted.outer, ranks));
    collective("all_to_all", ".exchanged", over, type_.shape);
    std::erase(now_[from], cut);
    insert(now_[to], wanted);
    Shape shape = sent;
    shape[from] *= ranks;
    put_together(ranks, runs(sent, from, cut.outer, 1), shape);
  }

  // The axes that are not wanted where they are, minor ones first.
  Status gather(size_t d) {
    const Cuts held = now_[d];
    for (size_t c = held.size(); c-- > 0;) {
      if (std::ranges::find(to_[d], held[c]) == to_[d].end()) EPL_TRY(gather_axis(d, held[c]));
    }
    return {};
  }

  Status gather_axis(size_t d, const AxisCut& cut) {
    const int over = cut.axes[0];
    if (axis(over).kind != Kind::rank)
      return unsupported("dimension ", d, " is cut over ", axis(over).name,
                         ", which is not an axis of ranks, and cannot be gathered; use fewer micro-batches");
    std::erase(now_[d], cut);
    const Runs shards = runs(type_.shape, d, cut.outer, 1);
    Shape shape = type_.shape, gathered = type_.shape;
    shape[d] *= axis(over).size;
    if (product(shape, 0, shape.size()) == 0) {  // there is nothing in any shard
      view(".full", shape);
      return {};
    }
    gathered[0] *= axis(over).size;
    collective("all_gather", ".gathered", over, gathered);
    moves_.back().gathers = true;
    put_together(axis(over).size, shards, shape);
    return {};
  }

  // Axes that cut a dimension one behind the other are one slice.
  void slice(size_t d) {
    for (size_t c = 0; c < to_[d].size();) {
      const int64_t first = to_[d][c].outer;
      AxisCut rest{{}, first};
      int64_t end = first;
      for (; c < to_[d].size() && to_[d][c].outer == end && std::ranges::find(now_[d], to_[d][c]) == now_[d].end();
           ++c) {
        rest.axes.push_back(to_[d][c].axes[0]);
        end *= axis(to_[d][c].axes[0]).size;
      }
      if (rest.axes.empty()) {
        ++c;
        continue;
      }
      int64_t outer = first;  // in the local value
      for (const AxisCut& cut : now_[d]) outer /= cut.outer < first ? mesh_.shards(cut.axes) : 1;
      Shape shape = type_.shape;
      shape[d] /= mesh_.shards(rest.axes);
      add("batch_slice", ".shard",
          {{"dim", static_cast<int64_t>(d)},
           {"axes", axis_names(mesh_, rest.axes)},
           {"size", shape[d]},
           {"outer", outer}},
          shape);
      for (int64_t at = first; int over : rest.axes) {
        insert(now_[d], {{over}, at});
        at *= axis(over).size;
      }
    }
  }

  const Mesh& mesh_;
  const BatchLayout& batch_;
  const Sharding &from_, &wanted_;
  std::vector<Partial> pending_;
  const std::vector<Partial>& still_pending_;
  std::vector<Cuts> now_, to_;
  TensorType type_;  // of the current value
  std::vector<Move> moves_;
};

}  // namespace

TensorType local_type(const Mesh& mesh, const TensorType& global, const Sharding& sharding) {
  TensorType type = global;
  for (size_t d = 0; d < sharding.dims.size(); ++d) type.shape[d] = mesh.local_size(type.shape[d], sharding.dims[d]);
  return type;
}

Result<std::vector<Move>> reshard(const Mesh& mesh, const BatchLayout& batch, const TensorType& global,
                                  const Sharding& from, const Sharding& to) {
  // What gets other padding lies in between without the cuts that are not in both.
  Sharding between{.dims = from.dims, .partial = to.partial};
  for (size_t d = 0; d < from.dims.size(); ++d) {
    const Cuts &here = from.dims[d], &there = to.dims[d];
    if (uneven_cuts(here) == uneven_cuts(there) || has_all(here, there) || has_all(there, here)) continue;
    std::erase_if(between.dims[d], [&](const AxisCut& cut) { return !has_all(there, {cut}); });
  }
  if (between.dims == from.dims) return Resharding(mesh, batch, global, from, to).run();
  EPL_ASSIGN(std::vector<Move> moves, Resharding(mesh, batch, global, from, between).run());
  EPL_ASSIGN(std::vector<Move> further, Resharding(mesh, batch, global, between, to).run());
  std::ranges::move(further, std::back_inserter(moves));
  return moves;
}

Result<Crossing> cross(const Mesh& from_mesh, int from, const Mesh& to_mesh, int to, const TensorType& global,
                       const Sharding& sharding) {
  Crossing crossing{.as = sharding};
  const auto same_size = [&](int axis) { return from_mesh.axes[axis].size == to_mesh.axes[axis].size; };
  for (size_t d = 0; d < sharding.dims.size(); ++d) {
    Cuts common;
    for (const AxisCut& cut : sharding.dims[d]) {
      if (is_uneven(cut)) {  // its axes cut together
        if (std::ranges::all_of(cut.axes, same_size)) common.push_back(cut);
        continue;
      }
      for (const AxisCut& one : cutting(from_mesh, {cut}, {cut})) {
        if (same_size(one.axes[0])) common.push_back(one);
      }
    }
    crossing.as.dims[d] = std::move(common);
  }
  EPL_ASSIGN(crossing.gathers, reshard(from_mesh, {}, global, sharding, crossing.as));  // what is pending stays pending
  const TensorType type = local_type(from_mesh, global, crossing.as);
  const auto pending_alike = [&](const Partial& sum) {
    return from_mesh.axes[sum.axis].kind == MeshAxis::Kind::rank && same_size(sum.axis);
  };
  if (!std::ranges::all_of(crossing.as.partial, pending_alike) || type != local_type(to_mesh, global, crossing.as))
    return unsupported("a value goes to other ranks before its sum is complete");
  for (int64_t peer = 0; peer < max_crossing_targets(from_mesh, to_mesh); ++peer) {
    crossing.sends.push_back({.op = "send",
                              .suffix = cat(".sent", to, peer == 0 ? "" : cat(".", peer)),
                              .attributes = {{"to", static_cast<int64_t>(to)}, {"peer", peer}},
                              .type = type,
                              .gives = false});
  }
  crossing.receive = {
      .op = "receive",
      .suffix = ".received",
      .attributes = {{"from", static_cast<int64_t>(from)}, {"dtype", type.dtype}, {"shape", type.shape}},
      .type = type};
  return crossing;
}

}  // namespace epl
