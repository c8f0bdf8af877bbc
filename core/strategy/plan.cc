#include "core/strategy/plan.h"

#include <algorithm>

#include "core/base/check.h"

namespace epl {

int Mesh::find(std::string_view name) const {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

int64_t Mesh::size(std::string_view name) const {
  int axis = find(name);
  return axis < 0 ? 1 : axes[axis].size;
}

int64_t Mesh::ranks() const {
  int64_t ranks = 1;
  for (const MeshAxis& axis : axes) ranks *= axis.kind == MeshAxis::Kind::rank ? axis.size : 1;
  return ranks;
}

std::vector<int> Mesh::ranks_along(std::string_view axis, int64_t rank) const {
  int64_t stride = 1;   // between neighbours on the axis
  for (size_t i = axes.size(); i-- > 0 && axes[i].name != axis;) stride *= axes[i].kind == MeshAxis::Kind::rank ? axes[i].size : 1;
  const int64_t count = size(axis), first = rank - rank / stride % count * stride;
  std::vector<int> found;
  for (int64_t i = 0; i < count; ++i) found.push_back(static_cast<int>(first + i * stride));
  return found;
}

int Sharding::cut_dim() const {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!dims[i].empty()) return static_cast<int>(i);
  }
  return -1;
}

std::string_view block_name(BlockKind kind) {
  switch (kind) {
    case BlockKind::once: return "once";
    case BlockKind::pre: return "pre";
    case BlockKind::mid: return "mid";
    case BlockKind::main: return "main";
    case BlockKind::post: return "post";
  }
  return "?";
}

bool block_loops(BlockKind kind) { return kind == BlockKind::pre || kind == BlockKind::main; }

Status verify_plan(const Plan& plan) {
  const Graph& graph = *plan.graph;
  if (!plan.shardings.empty() && static_cast<int>(plan.shardings.size()) != graph.value_count()) {
    return error(Code::internal, "shardings of ", plan.shardings.size(), " of ", graph.value_count(), " values");
  }
  for (size_t i = 0; i < plan.shardings.size(); ++i) {
    const ValueInfo& info = graph.value(Value{static_cast<int>(i)});
    const Sharding& sharding = plan.shardings[i];
    if (sharding.dims.size() != info.type.shape.size()) return error(Code::internal, info.name, " has another number of dimensions");
    for (size_t d = 0; d < sharding.dims.size(); ++d) {
      int64_t pieces = 1;
      for (int axis : sharding.dims[d]) pieces *= plan.mesh.axes[axis].size;
      if (!sharding.dims[d].empty()) pieces *= sharding.outer;
      if (info.type.shape[d] % pieces != 0) {
        return error(Code::internal, info.name, ": dimension ", d, " of ", info.type.shape[d], " is cut into ", pieces);
      }
    }
  }
  auto sized = [&](size_t size) { return size == 0 || static_cast<int>(size) == graph.node_count(); };
  if (!sized(plan.node_block.size()) || !sized(plan.node_cut.size()) || !sized(plan.node_task_graph.size())) {
    return error(Code::internal, "a table by node has the wrong size");
  }
  return {};
}

}  // namespace epl
