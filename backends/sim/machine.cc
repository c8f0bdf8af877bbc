#include <algorithm>
#include <bit>

#include "backends/sim/sim.h"
#include "core/base/shown.h"
#include "core/base/suggestion.h"

namespace epl::sim {
namespace {

double rounds(int ranks) {
  return static_cast<double>(std::bit_width(static_cast<unsigned>(ranks - 1)));
}  // ceil(log2)

}  // namespace

std::span<const Machine> machines() {
  // NVIDIA's data sheets of A100 80GB SXM (2021) and H100 SXM (2023); launch and message latencies are of the usual
  // size. cpu_core: 2.5 GHz with two 8-wide multiply-adds a cycle; its peers are other ranks of the host, reached
  // through memory.
  static const Machine table[] = {
      {"a100", 19.5e12, 312e12, 2.039e12, 4e-6, 25e9, 300e9, 3e-6},
      {"h100", 67e12, 989e12, 3.35e12, 4e-6, 50e9, 450e9, 3e-6},
      {"cpu_core", 80e9, 80e9, 12e9, 0.5e-6, 12e9, 6e9, 1e-6, 0, true},
  };
  return table;
}

Result<Machine> find_machine(std::string_view name) {
  std::vector<std::string> known;
  for (const Machine& machine : machines()) {
    if (machine.name == name) return machine;
    known.push_back(machine.name);
  }
  return error(Code::not_found, "no simulated machine ", shown(name), choices(name, known));
}

Machine of_threads(Machine machine, int threads) {
  if (!machine.is_core) return machine;
  machine.flops *= threads;
  machine.flops_half *= threads;
  machine.memory_bandwidth *= threads;
  return machine;
}

double kernel_seconds(const Machine& m, const KernelQuery& query) {
  const bool half =
      query.inputs() > 0 && query.has(0) && (query.in(0).dtype == DType::bf16 || query.in(0).dtype == DType::f16);
  return m.launch_seconds + std::max(query.flops / (half ? m.flops_half : m.flops), query.bytes / m.memory_bandwidth);
}

double all_reduce_seconds(const Machine& m, int ranks, int64_t bytes) {
  if (ranks == 1) return 0;
  const double p = ranks, n = static_cast<double>(bytes) / m.link_bandwidth, steps = rounds(ranks);
  const double doubling = steps * (m.link_seconds + n);
  const double halving = 2 * steps * m.link_seconds + 2 * (p - 1) / p * n;  // reduce-scatter, then all-gather
  return std::min(doubling, halving);
}

double reduce_scatter_seconds(const Machine& m, int ranks, int64_t bytes) {
  if (ranks == 1) return 0;
  return rounds(ranks) * m.link_seconds +
         (ranks - 1) * (static_cast<double>(bytes) / m.link_bandwidth);  // recursive halving
}

double all_to_all_seconds(const Machine& m, int ranks, int64_t bytes) {
  if (ranks == 1) return 0;
  const double p = ranks, n = static_cast<double>(bytes) / m.link_bandwidth, steps = rounds(ranks);
  const double bruck = steps * (m.link_seconds + p / 2 * n);
  const double pairwise = (p - 1) * (m.link_seconds + n);
  return std::min(bruck, pairwise);
}

double message_seconds(const Machine& m, int64_t bytes) {
  return m.link_seconds + static_cast<double>(bytes) / m.link_bandwidth;
}

double all_gather_seconds(const Machine& m, int ranks, int64_t bytes) {
  if (ranks == 1) return 0;
  return rounds(ranks) * m.link_seconds + (ranks - 1) * (static_cast<double>(bytes) / m.link_bandwidth);
}

double broadcast_seconds(const Machine& m, int ranks, int64_t bytes) {
  if (ranks == 1) return 0;
  const double p = ranks, n = static_cast<double>(bytes) / m.link_bandwidth, steps = rounds(ranks);
  const double binomial = steps * (m.link_seconds + n);
  const double scatter = (steps + p - 1) * m.link_seconds + 2 * (p - 1) / p * n;  // then all-gather by a ring
  return std::min(binomial, scatter);
}

double barrier_seconds(const Machine& m, int ranks) { return ranks == 1 ? 0 : rounds(ranks) * m.link_seconds; }

}  // namespace epl::sim
