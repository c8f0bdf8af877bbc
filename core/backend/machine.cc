// Look-ups in a Machine, and the one that every build knows.
#include "core/backend/machine.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace epl {

std::string_view memory_kind_name(MemoryKind kind) {
  static constexpr ByMemory<std::string_view> names = {{"device", "host", "file"}};
  return names[kind];
}

std::string_view basis_name(Machine::Basis basis) {
  static constexpr std::string_view names[] = {"usual", "sheet", "table"};
  return names[static_cast<size_t>(basis)];
}

std::string basis_text(const Machine& machine, std::string_view device) {
  if (machine.basis == Machine::Basis::usual) return "the numbers of a usual processor core, of which none is measured";
  if (machine.basis == Machine::Basis::sheet) return "a data sheet, which says what the device can do at most";
  const Machine::Measured& made = machine.measured;
  const auto percent = [](double share) { return cat(std::lround(100 * share), " %"); };
  return cat("a table measured by version ", made.version, " on ", made.device,
             made.device == device ? "" : cat(", which is another device than ", device), "; its numbers are off by ",
             percent(made.error), " at the median and ", percent(made.error_90th), " at the 90th percentile");
}

double Machine::rate(DType dtype, WorkKind kind) const {
  const Rate* found = nullptr;
  for (const Rate& one : rates) {
    if (one.kind != kind) continue;
    if (one.dtype == dtype) return one.per_second;
    if (!found) found = &one;
  }
  EPL_CHECK(found, "machine ", name, " has no rate of ", kind == WorkKind::product ? "products" : "other work");
  return found->per_second;
}

const Machine::Memory& Machine::memory(Memory::Kind kind) const {
  for (const Memory& one : memories) {
    if (one.kind == kind) return one;
  }
  EPL_CHECK(false, "machine ", name, " has no memory of kind ", static_cast<int>(kind));
}

const Machine::Link& Machine::link(int64_t first, int64_t last) const {
  for (const Link& one : links) {
    if (one.ranks == 0 || first / one.ranks == last / one.ranks) return one;
  }
  EPL_CHECK(!links.empty(), "machine ", name, " has no links");
  return links.back();
}

const Machine::Ranks& Machine::kind(int64_t rank) const {
  static const Ranks alike;
  int64_t all = 0;
  for (const Ranks& one : kinds) all += one.ranks;
  if (all == 0) return alike;
  int64_t behind = rank % all;
  for (const Ranks& one : kinds) {
    if (behind < one.ranks) return one;
    behind -= one.ranks;
  }
  return kinds.back();
}

double Machine::slowest(int64_t first, int64_t count) const {
  double least = kind(first).speed;
  for (int64_t rank = first; rank < first + count && !kinds.empty(); ++rank) least = std::min(least, kind(rank).speed);
  return least;
}

int64_t Machine::inside(const Link& link) const {
  int64_t most = 1;
  for (const Link& one : links) {
    if (one.ranks > 0 && (link.ranks == 0 || one.ranks < link.ranks)) most = std::max(most, one.ranks);
  }
  return most;
}

const Machine& processor_core() {
  static const Machine core = {
      .name = "cpu_core",
      .rates = {{DType::f32, WorkKind::product, 80e9}, {DType::f32, WorkKind::elementwise, 80e9}},
      .memories = {{Machine::Memory::Kind::device, 12e9},
                   {Machine::Memory::Kind::host, 12e9},
                   {Machine::Memory::Kind::file, 1e9}},
      .links = {{.ranks = 0, .bandwidth = 6e9, .seconds = 1e-6}},
      .launch_seconds = 0.5e-6,
      .is_core = true};
  return core;
}

Machine of_threads(Machine machine, int threads) {
  if (!machine.is_core) return machine;
  for (Machine::Rate& rate : machine.rates) rate.per_second *= threads;
  for (Machine::Memory& memory : machine.memories) {
    if (memory.kind == Machine::Memory::Kind::device) memory.bandwidth *= threads;
  }
  return machine;
}

}  // namespace epl
