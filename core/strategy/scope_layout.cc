#include "core/strategy/scope_layout.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "core/base/text.h"
#include "core/ir/op.h"

namespace epl {
namespace {

std::string describe(const std::string& name, const Scope& scope) {
  return cat("scope ", name, " (", scope_kind_name(scope.kind), " ", scope.device_count, ")");
}

class LayingOut {
 public:
  LayingOut(const Strategy& strategy, int64_t ranks, SideBySide beside) : strategy_(strategy), ranks_(ranks) {
    out_.strategy = &strategy;
    const bool share = strategy.flag("cluster.colocate_split_and_replicate");
    outer_share_ = beside == SideBySide::siblings && share;
    inner_share_ = beside == SideBySide::stages || share;
  }

  Result<ScopeLayout> run() {
    const std::vector<Scope>& scopes = strategy_.scopes;
    const Copies all{.ranks = ranks_};
    if (scopes.size() > 1 && !outer_share_) {
      EPL_TRY(refuse_default_beside_stages());
      EPL_TRY(place_side_by_side(scopes, all, ranks_, "the job"));
      return std::move(out_);
    }
    const int device = add_device(all);
    for (size_t i = 0; i < scopes.size(); ++i)
      EPL_TRY(place_sharing(scopes[i], name_of(scopes[i], cat("scope", i)), all, ranks_, "the job", device));
    EPL_TRY(place_unmatched(all, device));
    return std::move(out_);
  }

 private:
  // Ranks in a row that hold `degree()` groups, of which what is placed next subdivides one.
  struct Copies {
    int64_t first = 0, ranks = 1, data = 1;
    std::vector<ScopeRole> roles;
    std::vector<DimPin> pins;

    void add(ScopeKind kind, int64_t degree) {
      if (kind == ScopeKind::replicate) {
        data *= degree;
      } else if (!roles.empty() && roles.back().kind == kind) {
        roles.back().degree *= degree;
      } else if (degree > 1) {
        roles.push_back({kind, degree});
      }
    }
  };

  static std::string name_of(const Scope& scope, std::string otherwise) {
    return scope.name.empty() ? std::move(otherwise) : scope.name;
  }

  int add_device(const Copies& copies) {
    VirtualDevice& made = out_.devices.emplace_back();
    made.ranks.resize(static_cast<size_t>(copies.ranks));
    std::iota(made.ranks.begin(), made.ranks.end(), static_cast<int>(copies.first));
    return static_cast<int>(out_.devices.size()) - 1;
  }

  // Siblings that divide the `count` ranks of each copy among them.
  Status place_side_by_side(const std::vector<Scope>& scopes, const Copies& outer, int64_t count,
                            const std::string& where) {
    int64_t sum = 0;
    std::vector<std::string> parts;
    for (size_t i = 0; i < scopes.size(); ++i) {
      sum += scopes[i].device_count;
      parts.push_back(cat(name_of(scopes[i], cat("stage", i)), " ", scopes[i].device_count));
    }
    if (sum > count || count % sum != 0) {
      return invalid("the scopes of ", where, " need ", join(parts, " + "), " = ", sum,
                     " ranks for a copy, which do not divide the ", count,
                     " that there are; with cluster.colocate_split_and_replicate they share them");
    }
    int64_t first = outer.first;
    for (size_t i = 0; i < scopes.size(); ++i) {
      Copies own = outer;
      own.add(ScopeKind::replicate, count / sum);
      own.first = first;
      own.ranks = outer.ranks / sum * scopes[i].device_count;
      first += own.ranks;
      EPL_TRY(place(scopes[i], name_of(scopes[i], cat("stage", i)), own, add_device(own)));
    }
    return {};
  }

  // A scope on all `count` ranks of each copy, with what else is there.
  Status place_sharing(const Scope& scope, const std::string& name, Copies outer, int64_t count,
                       const std::string& where, int device) {
    if (scope.device_count > count || count % scope.device_count != 0) {
      return invalid(describe(name, scope), ": ", scope.device_count, " ranks do not divide the ", count, " of ",
                     where);
    }
    outer.add(ScopeKind::replicate, count / scope.device_count);
    return place(scope, name, outer, device);
  }

  // `outer`: of the copies of this scope.
  Status place(const Scope& scope, const std::string& name, Copies outer, int device) {
    const std::string where = describe(name, scope);
    outer.pins.insert(outer.pins.begin(), scope.dims.begin(), scope.dims.end());
    if (scope.scopes.empty()) return add_leaf(scope, name, outer, device);
    if (scope.scopes.size() > 1 && !inner_share_) {
      // The scope's own kind is over what its inner scopes leave.
      int64_t sum = 0;
      for (const Scope& inner : scope.scopes) sum += inner.device_count;
      if (scope.kind != ScopeKind::replicate && sum != scope.device_count)
        return invalid(where, ": its inner scopes take ", sum, " of its ranks; ", scope_kind_name(scope.kind),
                       " with several of them must have as many");
      return place_side_by_side(scope.scopes, outer, scope.device_count, where);
    }
    bool all_inside = false;
    for (size_t i = 0; i < scope.scopes.size(); ++i) {
      const Scope& inner = scope.scopes[i];
      if (inner.device_count > scope.device_count || scope.device_count % inner.device_count != 0) {
        return invalid(describe(name_of(inner, cat(name, ".", i)), inner), ": ", inner.device_count,
                       " ranks do not divide the ", scope.device_count, " of ", where);
      }
      Copies own = outer;
      own.add(scope.kind, scope.device_count / inner.device_count);
      EPL_TRY(place(inner, name_of(inner, cat(name, ".", i)), own, device));
      all_inside = all_inside || inner.matches_everything();
    }
    return all_inside ? Status() : add_leaf(scope, name, outer, device);
  }

  Status add_leaf(const Scope& scope, const std::string& name, Copies copies, int device) {
    copies.add(scope.kind, scope.device_count);
    out_.leaf_of_scope[&scope] = std::ssize(out_.leaves);
    out_.leaves.push_back(
        {.name = name, .scope = &scope, .device = device, .data = copies.data, .roles = copies.roles});
    out_.leaves.back().pins = std::move(copies.pins);
    return {};
  }

  // What no scope matches lies on all ranks, as the default says.
  Status place_unmatched(const Copies& all, int device) {
    if (std::ranges::any_of(strategy_.scopes, &Scope::matches_everything)) return {};
    if (strategy_.has_default) {
      EPL_TRY(place_sharing(strategy_.default_scope, name_of(strategy_.default_scope, "default"), all, ranks_,
                            "the job", device));
      const auto own = out_.leaf_of_scope.find(&strategy_.default_scope);
      out_.unmatched = own == out_.leaf_of_scope.end() ? -1 : own->second;
      return {};
    }
    out_.unmatched = std::ssize(out_.leaves);
    out_.leaves.push_back({.name = "default", .device = device, .data = ranks_});
    return {};
  }

  // Beside stages it would be that of the nodes that no stage matches, which go where their operands are.
  Status refuse_default_beside_stages() const {
    const Scope& scope = strategy_.default_scope;
    if (!strategy_.has_default || (scope.kind == ScopeKind::replicate && scope.scopes.empty())) return {};
    return unsupported(
        "a default of ", scope_kind_name(scope.kind), "(", scope.device_count,
        ") cannot stand beside stages: what no stage matches goes where its operands are; give it a scope");
  }

  const Strategy& strategy_;
  const int64_t ranks_;
  bool outer_share_ = false, inner_share_ = false;  // siblings: their ranks
  ScopeLayout out_;
};

}  // namespace

Result<ScopeLayout> lay_out_scopes(const Strategy& strategy, int64_t ranks, SideBySide beside) {
  return LayingOut(strategy, ranks, beside).run();
}

namespace {

// A parameter with such a name, as it is or in another type.
bool is_parameter(const Graph& graph, Value v, std::string_view glob) {
  if (v && graph.value(v).kind == ValueKind::result) {
    const Node& made_by = graph.node(graph.value(v).producer);
    if (made_by.op->moves == Moves::converted) v = made_by.inputs[0];
  }
  return v && graph.value(v).kind == ValueKind::parameter && glob_match(glob, graph.value(v).name);
}

}  // namespace

bool scope_matches(const Scope& scope, const Graph& graph, const Node& node) {
  if (scope.match.empty() && scope.sources.empty()) return true;
  if (!node.source.empty() && scope.sources.contains(node.source)) return true;
  return std::ranges::any_of(scope.match, [&](const std::string& pattern) {
    const std::string_view glob = pattern;
    if (glob.starts_with("op:")) return glob_match(glob.substr(3), node.op->name);
    if (!glob.starts_with("param:")) return glob_match(glob, node.name);
    return std::ranges::any_of(node.inputs, [&](Value v) { return is_parameter(graph, v, glob.substr(6)); });
  });
}

namespace {

// The cast of an operand, which was made for another node, goes where the other one goes.
const Node& whose(const Graph& graph, const Node& node) {
  const bool is_made = node.phase == Phase::forward && node.op->moves == Moves::converted && !node.origin.empty();
  const NodeId origin = is_made ? graph.find_node(node.origin) : NodeId();
  return origin ? graph.node(origin) : node;
}

// By the name of the model's node that it was made for. A batch norm becomes other nodes in training than in
// evaluation, and those that no scope names belong together all the same.
bool matches_source(const Scope& scope, const Node& node) {
  return !node.source.empty() &&
         std::ranges::any_of(scope.match, [&](const std::string& pattern) { return glob_match(pattern, node.source); });
}

}  // namespace

int match_among(const std::vector<Scope>& scopes, const Graph& graph, const Node& given) {
  const Node& node = whose(graph, given);
  auto match = std::ranges::find_if(scopes, [&](const Scope& s) { return scope_matches(s, graph, node); });
  if (match == scopes.end())
    match = std::ranges::find_if(scopes, [&](const Scope& s) { return matches_source(s, node); });
  return match == scopes.end() ? -1 : static_cast<int>(match - scopes.begin());
}

const Scope* innermost_scope(const Strategy& strategy, const Graph& graph, const Node& node) {
  int match = match_among(strategy.scopes, graph, node);
  const Scope* found = match >= 0 ? &strategy.scopes[match] : strategy.has_default ? &strategy.default_scope : nullptr;
  while (found && (match = match_among(found->scopes, graph, node)) >= 0) found = &found->scopes[match];
  return found;
}

int ScopeLayout::leaf_of(const Graph& graph, const Node& node) const {
  const Scope* found = innermost_scope(*strategy, graph, node);
  if (!found || found == &strategy->default_scope) return unmatched;
  const auto leaf = leaf_of_scope.find(found);
  return leaf == leaf_of_scope.end() ? -1 : leaf->second;
}

namespace {

std::vector<const ScopeLeaf*> leaves_on(const ScopeLayout& layout, int device) {
  std::vector<const ScopeLeaf*> found;
  for (const ScopeLeaf& leaf : layout.leaves) {
    if (leaf.device == device) found.push_back(&leaf);
  }
  return found;
}

// Where the axes of one device meet.
Result<Chain> chain_of(const std::vector<const ScopeLeaf*>& leaves) {
  Chain chain;
  for (const ScopeLeaf* leaf : leaves) {
    int64_t degree = leaf->data;
    chain.add(degree);
    for (const ScopeRole& role : leaf->roles) chain.add(degree *= role.degree);
  }
  EPL_TRY(chain.check());
  return chain;
}

int64_t max_data(const std::vector<const ScopeLeaf*>& leaves) {
  int64_t most = 1;
  for (const ScopeLeaf* leaf : leaves) most = std::max(most, leaf->data);
  return most;
}

class MakingMeshes {
 public:
  MakingMeshes(const ScopeLayout& layout, const BatchAxes& batch, int64_t units, const MicroBatches& in_time)
      : layout_(layout), batch_(batch), units_(units), in_time_(in_time) {}

  Result<std::vector<LeafMesh>> run() {
    axes_ = {{std::string(data_axis), 1, MeshAxis::Kind::rank},
             {std::string(micro_batch_axis), in_time_.count, MeshAxis::Kind::time},
             {std::string(unit_axis), units_ / in_time_.count / batch_.shards(), MeshAxis::Kind::unit}};
    for (size_t i = 0; i < batch_.axes().size(); ++i) {
      numbers_.ranks.push_back(i == 0 ? batch_axis : static_cast<int>(axes_.size()));
      if (i > 0) axes_.push_back({cat(data_axis, i + 1), 1});
    }
    numbers_.time = axis_of(micro_batch_axis);
    numbers_.unit = axis_of(unit_axis);
    std::vector<LeafMesh> meshes(layout_.leaves.size());
    for (size_t d = 0; d < layout_.devices.size(); ++d) EPL_TRY(make_device(static_cast<int>(d)));
    for (size_t i = 0; i < meshes.size(); ++i) {
      const ScopeLeaf& leaf = layout_.leaves[i];
      Mesh& mesh = meshes[i].mesh;
      mesh.axes = axes_;
      mesh.device = layout_.devices[leaf.device];
      for (const auto& [axis, size] : sizes_[leaf.device]) mesh.axes[axis].size = size;
      BatchLayout batch = batch_.layout(leaf.data, numbers_, in_time_);
      if (batch != BatchLayout::over_all_axes(mesh)) meshes[i].batch = std::move(batch);
      meshes[i].axes = role_axes(leaf);
    }
    return meshes;
  }

 private:
  using Sizes = std::vector<std::pair<int, int64_t>>;  // of axes of a device, major first

  int named(const std::string& name) {
    const auto found = std::ranges::find(axes_, name, &MeshAxis::name);
    if (found != axes_.end()) return static_cast<int>(found - axes_.begin());
    axes_.push_back({name, 1, MeshAxis::Kind::rank});
    return static_cast<int>(axes_.size()) - 1;
  }

  Status make_device(int device) {
    Sizes& sizes = sizes_.emplace_back();
    const std::vector<const ScopeLeaf*> leaves = leaves_on(layout_, device);
    if (leaves.empty()) return {};
    for (size_t i = 0; i < batch_.axes().size(); ++i) {
      const BatchAxes::Axis& axis = batch_.axes()[i];
      const auto uses = [&](const ScopeLeaf* leaf) { return axis.degrees.contains(leaf->data); };
      if (std::ranges::any_of(leaves, uses)) sizes.emplace_back(numbers_.ranks[i], axis.size);
    }
    EPL_ASSIGN(const Chain chain, chain_of(leaves));
    const int64_t most = max_data(leaves);
    int64_t before = most;
    std::map<ScopeKind, int> used;
    for (int64_t degree : chain.degrees()) {
      if (degree <= most) continue;
      const ScopeKind kind = kind_over(leaves, before);
      const int number = ++used[kind];
      sizes.emplace_back(named(number == 1 ? std::string(scope_kind_name(kind)) : cat(scope_kind_name(kind), number)),
                         degree / before);
      before = degree;
    }
    return {};
  }

  // What the first leaf that has one does with the ranks behind so many.
  static ScopeKind kind_over(const std::vector<const ScopeLeaf*>& leaves, int64_t before) {
    for (const ScopeLeaf* leaf : leaves) {
      int64_t degree = leaf->data;
      for (const ScopeRole& role : leaf->roles) {
        if (degree <= before && before < degree * role.degree) return role.kind;
        degree *= role.degree;
      }
    }
    return ScopeKind::split;
  }

  int axis_of(std::string_view name) const {
    return static_cast<int>(std::ranges::find(axes_, name, &MeshAxis::name) - axes_.begin());
  }

  std::vector<std::vector<int>> role_axes(const ScopeLeaf& leaf) const {
    std::vector<std::vector<int>> found;
    const Sizes& sizes = sizes_[leaf.device];
    int64_t degree = 1, end = leaf.data;
    auto at = sizes.begin();
    for (; at != sizes.end() && degree < end; ++at) degree *= at->second;
    for (const ScopeRole& role : leaf.roles) {
      std::vector<int>& axes = found.emplace_back();
      for (end *= role.degree; at != sizes.end() && degree < end; ++at) {
        if (at->second > 1) axes.push_back(at->first);
        degree *= at->second;
      }
    }
    return found;
  }

  const ScopeLayout& layout_;
  const BatchAxes& batch_;
  const int64_t units_;
  const MicroBatches in_time_;
  std::vector<MeshAxis> axes_;
  MeshNumbers numbers_;       // of the axes of the batch, in axes_
  std::vector<Sizes> sizes_;  // by device
};

}  // namespace

Result<BatchAxes> find_batch_axes(const ScopeLayout& layout) {
  std::set<int64_t> degrees;
  for (const ScopeLeaf& leaf : layout.leaves) degrees.insert(leaf.data);
  const int64_t least = *degrees.begin();
  for (size_t d = 0; d < layout.devices.size(); ++d) {
    const std::vector<const ScopeLeaf*> leaves = leaves_on(layout, static_cast<int>(d));
    EPL_ASSIGN(const Chain chain, chain_of(leaves));
    for (int64_t degree : chain.degrees()) {
      if (degree > least && degree < max_data(leaves)) degrees.insert(degree);
    }
  }
  return BatchAxes::find(degrees);
}

Result<std::vector<LeafMesh>> make_meshes(const ScopeLayout& layout, const BatchAxes& batch, int64_t units,
                                          const MicroBatches& in_time) {
  return MakingMeshes(layout, batch, units, in_time).run();
}

}  // namespace epl
