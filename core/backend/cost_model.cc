// The formulas of cost_model.h.
#include "core/backend/cost_model.h"

#include <algorithm>
#include <bit>

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

double CostModel::collective(Collective::Kind kind, const RankGroup& group, double bytes) const {
  return seconds(machine_.link(group.first, group.last), kind, group.size, bytes);
}

double CostModel::moving(Collective::Kind kind, const RankGroup& group, double bytes) const {
  Machine::Link link = machine_.link(group.first, group.last);
  link.seconds = 0;
  return seconds(link, kind, group.size, bytes);
}

double CostModel::seconds(const Machine::Link& link, Collective::Kind kind, int64_t ranks, double bytes) {
  const double n = bytes / link.bandwidth;
  if (kind == Collective::Kind::send || kind == Collective::Kind::receive) return link.seconds + n;
  if (ranks <= 1) return 0;
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
