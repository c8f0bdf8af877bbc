#include "core/strategy/plan.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/strategy/pass.h"

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

namespace {

constexpr int64_t most_units = 8;

bool power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

// The size of the global batch: every input that counts samples must agree.
Result<int64_t> batch_size(const Graph& graph) {
  int64_t batch = 0;
  std::string from;
  for (Value v : graph.leaves(ValueKind::input)) {
    const ValueInfo& info = graph.value(v);
    if (info.batch_dim < 0) continue;
    int64_t size = info.type.dim(info.batch_dim);
    if (batch != 0 && size != batch) {
      return invalid("input ", info.name, " has ", size, " samples in dimension ", info.batch_dim, " but ", from, " has ", batch,
                     "; name the dimension that counts samples for each input, or -1 for none");
    }
    batch = size;
    from = info.name;
  }
  return batch;
}

Result<int64_t> unit_count(const Strategy& strategy, int64_t batch, int64_t pieces) {
  int64_t units = strategy.integer("reproducible.units", 0);
  if (units == 0) {
    units = 1;
    while (units < most_units && batch % (units * 2) == 0 && batch > 0) units *= 2;
  }
  if (!power_of_two(units)) return invalid("reproducible.units is ", units, "; it must be a power of two");
  if (batch > 0 && batch % units != 0) return invalid("reproducible.units is ", units, ", which does not divide the batch of ", batch);
  if (!power_of_two(pieces)) {
    return invalid("ranks x micro-batches is ", pieces, "; it must be a power of two, because the batch is cut by halves");
  }
  if (units % pieces != 0) {
    return invalid("the batch of ", batch, " has ", units, " units, which ", pieces,
                   " pieces (ranks x micro-batches) do not divide into aligned runs; use a batch that divides by ", pieces,
                   ", or set reproducible.units");
  }
  return units;
}

}  // namespace

Result<Plan> make_plan(const PlanRequest& request) {
  if (request.ranks < 1) return invalid("a plan needs at least one rank, got ", request.ranks);
  EPL_TRY(check_built(request.strategy, request.ranks));
  Plan plan;
  plan.graph = request.graph;
  plan.strategy = request.strategy;
  EPL_ASSIGN(plan.batch, batch_size(*request.graph));
  int64_t micro_batches = request.strategy.integer("pipeline.num_micro_batch", 1);
  if (micro_batches < 1) return invalid("pipeline.num_micro_batch is ", micro_batches);
  if (plan.batch == 0 && micro_batches * request.ranks > 1) {
    return invalid("no input counts samples, so the batch cannot be cut into ", micro_batches * request.ranks, " pieces");
  }
  EPL_ASSIGN(int64_t units, unit_count(request.strategy, plan.batch, micro_batches * request.ranks));
  plan.mesh.axes = {{"data", request.ranks, MeshAxis::Kind::rank},
                    {"micro_batch", micro_batches, MeshAxis::Kind::time},
                    {"unit", units / (micro_batches * request.ranks), MeshAxis::Kind::unit}};
  plan.passes = request.passes.empty() ? default_passes() : request.passes;
  EPL_TRY(run_passes(plan, request, plan.passes));
  return plan;
}

}  // namespace epl
