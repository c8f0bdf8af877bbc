// What a device and its links can do, in the numbers of a data sheet: bytes, operations and seconds, and these per
// second. Plans are decided and steps are simulated by the same numbers, through core/backend/cost_model.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"

namespace epl {

// Products have many operations for each element that they touch. All else is bound by memory, mostly.
enum class WorkKind : uint8_t { product, elementwise };

struct Machine {
  // Operations per second, a multiplication and an addition counted as two.
  struct Rate {
    DType dtype = DType::f32;
    WorkKind kind = WorkKind::product;
    double per_second = 0;
  };
  struct Memory {
    enum class Kind : uint8_t { device, host, file };
    Kind kind = Kind::device;
    double bandwidth = 0;  // of the device's kernels; of another kind: between it and the device
    int64_t bytes = 0;     // of all buffers together; 0: no limit
  };
  // Ranks of a job are numbered so that neighbours are near. Blocks of `ranks` ranks are joined by a link of this kind.
  struct Link {
    int64_t ranks = 0;     // 0: any number
    double bandwidth = 0;  // of a rank to its peers, one direction
    double seconds = 0;    // latency of a message
    // Sums, gathers and scatters go round rings, as NCCL's do. Between hosts they use the links of all ranks that a
    // host has in the group.
    bool rings = false;
  };
  // A product is computed in square tiles of its result. All zero: every product is as fast as its rate.
  struct Tiles {
    double side = 0;   // elements of a tile
    double fill = 0;   // tiles whose time passes until all of the device works
    double depth = 0;  // elements of the inner dimension whose time passes at the start and end of a tile
  };
  // Neighbouring ranks whose devices are alike: kernels of theirs do so many times what the machine says, and they have
  // so many times the bytes.
  struct Ranks {
    int64_t ranks = 1;
    double speed = 1, memory = 1;
  };
  // What the numbers rest on.
  enum class Basis : uint8_t { usual, sheet, table };
  // Of a table: what it was measured on, and how far its numbers are from what was measured, as a share.
  struct Measured {
    std::string device, version;
    double error = 0, error_90th = 0;  // at the median and at the 90th percentile
  };
  std::string name;
  std::vector<Rate> rates;  // of a type without a rate: the first of the same kind
  std::vector<Memory> memories;
  std::vector<Link> links;    // the nearest first; the last one joins all ranks
  std::vector<Ranks> kinds;   // in the order of ranks, over and over; empty: all ranks are alike
  double launch_seconds = 0;  // of the smallest kernel
  Tiles tiles;
  bool is_core = false;  // of a processor: a stream has one for each of its threads
  Basis basis = Basis::usual;
  Measured measured;  // of a table

  double rate(DType dtype, WorkKind kind) const;
  const Memory& memory(Memory::Kind kind) const;
  // That joins all ranks from `first` to `last`.
  const Link& link(int64_t first, int64_t last) const;
  // Its `ranks` are those of the run that it is in.
  const Ranks& kind(int64_t rank) const;
  // Of the slowest of so many ranks from this one on; 1 where all are alike.
  double slowest(int64_t first, int64_t count) const;
  // Ranks of the largest block inside what this link joins, which are each other's neighbours; 1: there is none.
  int64_t inside(const Link& link) const;
};

std::string_view basis_name(Machine::Basis basis);
// How sure its seconds are, as the end of a sentence about them, for a device that describes itself so.
std::string basis_text(const Machine& machine, std::string_view device);

using MemoryKind = Machine::Memory::Kind;
inline constexpr MemoryKind memory_kinds[] = {MemoryKind::device, MemoryKind::host, MemoryKind::file};
std::string_view memory_kind_name(MemoryKind kind);

// Something for each memory that a rank may have.
template <class T> struct ByMemory {
  std::array<T, std::size(memory_kinds)> of = {};
  T& operator[](MemoryKind kind) { return of[static_cast<size_t>(kind)]; }
  const T& operator[](MemoryKind kind) const { return of[static_cast<size_t>(kind)]; }
};
using MemoryBytes = ByMemory<int64_t>;

// One core of a processor: 2.5 GHz with two 8-wide multiply-adds a cycle. Its peers are other ranks of the host,
// reached through memory, and its files lie on a fast disk. Plans of a device that does not describe itself are decided
// for it.
const Machine& processor_core();
// What a stream with so many threads has.
Machine of_threads(Machine machine, int threads);

}  // namespace epl
