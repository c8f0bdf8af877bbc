// The formulas of cost_model.h.
#include "core/backend/cost_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/backend/kernel.h"

namespace epl {
namespace {

// Operations for each element of a result, and of the operands, from which on work is a product.
constexpr double product_of_results = 8, product_of_operands = 2;

double rounds(int64_t ranks) {
  return static_cast<double>(std::bit_width(static_cast<uint64_t>(ranks - 1)));
}  // ceil(log2)

// `n`: seconds of what one rank contributes, over the link.
double all_reduce(const Machine::Link& link, int64_t ranks, double n) {
  const double p = static_cast<double>(ranks), steps = rounds(ranks);
  const double doubling = steps * (link.seconds + n);
  const double halving = 2 * steps * link.seconds + 2 * (p - 1) / p * n;  // reduce-scatter, then all-gather
  return std::min(doubling, halving);
}

// An all-gather, and a reduce-scatter by recursive halving.
double all_gather(const Machine::Link& link, int64_t ranks, double n) {
  return rounds(ranks) * link.seconds + static_cast<double>(ranks - 1) * n;
}

double all_to_all(const Machine::Link& link, int64_t ranks, double n) {
  const double p = static_cast<double>(ranks), steps = rounds(ranks);
  const double bruck = steps * (link.seconds + p / 2 * n);
  const double pairwise = (p - 1) * (link.seconds + n);
  return std::min(bruck, pairwise);
}

double broadcast(const Machine::Link& link, int64_t ranks, double n) {
  const double p = static_cast<double>(ranks), steps = rounds(ranks);
  const double binomial = steps * (link.seconds + n);
  const double scatter = (steps + p - 1) * link.seconds + 2 * (p - 1) / p * n;  // then all-gather by a ring
  return std::min(binomial, scatter);
}

// Round a ring each rank passes on what it has got, so often.
double around(const Machine::Link& link, int64_t ranks, double n) {
  return static_cast<double>(ranks - 1) * (link.seconds + n);
}

bool goes_round(Collective::Kind kind) {
  return kind == Collective::Kind::all_reduce || kind == Collective::Kind::reduce_scatter ||
         kind == Collective::Kind::all_gather;
}

}  // namespace

WorkKind Work::kind() const {
  return flops > product_of_results * results && flops >= product_of_operands * operands ? WorkKind::product
                                                                                         : WorkKind::elementwise;
}

Work work_of(const KernelQuery& query) {
  Work work{.flops = query.flops, .bytes = query.bytes};
  if (query.inputs() > 0 && query.has(0)) work.dtype = query.in(0).dtype;
  for (int i = 0; i < query.inputs(); ++i)
    work.operands += query.has(i) ? static_cast<double>(query.in(i).elements()) : 0;
  for (int o = 0; o < query.outputs(); ++o)
    work.results += query.has_output(o) ? static_cast<double>(query.out(o).elements()) : 0;
  return work;
}

double CostModel::computing(const Work& work) const { return work.flops / machine_.rate(work.dtype, work.kind()); }

double CostModel::product(DType dtype, const ProductShape& shape) const {
  double flops = shape.flops();
  const auto& [side, fill, depth] = machine_.tiles;
  if (side > 0) {
    const double tiles = std::ceil(shape.m / side) * std::ceil(shape.n / side) * shape.count;
    flops *= (1 + fill / tiles) * (1 + depth / shape.k);
  }
  return flops / machine_.rate(dtype, WorkKind::product);
}

double CostModel::memory(double bytes) const {
  return bytes / machine_.memory(Machine::Memory::Kind::device).bandwidth;
}

double CostModel::host(double bytes) const { return bytes / machine_.memory(Machine::Memory::Kind::host).bandwidth; }

double CostModel::other(MemoryKind kind, double bytes) const {
  const auto found = std::ranges::find(machine_.memories, kind, &Machine::Memory::kind);
  return found == machine_.memories.end() ? host(bytes) : bytes / found->bandwidth;
}

double CostModel::kernel(const Work& work) const {
  return machine_.launch_seconds + std::max(computing(work), memory(work.bytes));
}

Machine::Link CostModel::link_of(Collective::Kind kind, const RankGroup& group) const {
  Machine::Link link = machine_.link(group.first, group.last);
  if (!link.rings || !goes_round(kind) || group.size <= 1) return link;
  const int64_t apart = std::max<int64_t>((group.last - group.first) / (group.size - 1), 1);
  const int64_t inside = machine_.inside(link), together = std::min(inside / apart, group.size);
  if (together <= 1) return link;
  // No faster than inside a host.
  const double near = machine_.link(0, inside - 1).bandwidth;
  link.bandwidth = std::max(link.bandwidth, std::min(link.bandwidth * static_cast<double>(together), near));
  return link;
}

double CostModel::collective(Collective::Kind kind, const RankGroup& group, double bytes) const {
  return seconds(link_of(kind, group), kind, group.size, bytes);
}

double CostModel::moving(Collective::Kind kind, const RankGroup& group, double bytes) const {
  Machine::Link link = link_of(kind, group);
  link.seconds = 0;
  return seconds(link, kind, group.size, bytes);
}

double CostModel::seconds(const Machine::Link& link, Collective::Kind kind, int64_t ranks, double bytes) {
  const double n = bytes / link.bandwidth;
  if (kind == Collective::Kind::send || kind == Collective::Kind::receive) return link.seconds + n;
  if (ranks <= 1) return 0;
  if (link.rings && goes_round(kind)) {
    // A sum is scattered and then gathered.
    return kind == Collective::Kind::all_reduce ? 2 * around(link, ranks, n / static_cast<double>(ranks))
                                                : around(link, ranks, n);
  }
  switch (kind) {
    case Collective::Kind::all_reduce:
      return all_reduce(link, ranks, n);
    case Collective::Kind::reduce_scatter:
    case Collective::Kind::all_gather:
      return all_gather(link, ranks, n);
    case Collective::Kind::all_to_all:
    case Collective::Kind::dispatch:
    case Collective::Kind::combine:
      return all_to_all(link, ranks, n);
    case Collective::Kind::broadcast:
      return broadcast(link, ranks, n);
    case Collective::Kind::barrier:
      return rounds(ranks) * link.seconds;
    case Collective::Kind::send:
    case Collective::Kind::receive:
      break;
  }
  return 0;
}

double CostModel::collective(const Collective& call, const RankGroup& group) const {
  const bool rows = call.kind == Collective::Kind::dispatch || call.kind == Collective::Kind::combine;
  // As many rows for each rank.
  return collective(call.kind, group, static_cast<double>(rows ? call.bytes() / group.size : call.bytes()));
}

}  // namespace epl
