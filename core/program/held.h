// What the arena of a rank holds, told by what it is there for: why an arena is as large as it is.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/program/describe.h"

namespace epl {

enum class Held : uint8_t {
  input,          // a part of the caller's tensors
  kept,           // a result of the forward pass that the backward pass takes
  result,         // one that the forward pass alone takes
  recomputed,     // what the backward pass computes again
  gathered,       // a weight that ranks have in shards, in full
  fetched,        // what lies in another memory
  gradient,       // what the update takes, and sums that are on the way to it
  flowing,        // a gradient that goes on through the backward pass
  optimizer,      // what an update computes before it is the new state
  communication,  // what waits for a collective, and what that needs beside its operands
  workspace       // what a kernel needs beside its operands
};
inline constexpr std::array helds = {Held::input,     Held::kept,          Held::result,   Held::recomputed,
                                     Held::gathered,  Held::fetched,       Held::gradient, Held::flowing,
                                     Held::optimizer, Held::communication, Held::workspace};
std::string_view held_name(Held held);

using HeldBytes = std::array<int64_t, helds.size()>;

struct HeldValue {
  Held held = Held::result;
  std::string name;  // of the value where it is known; else of the node
  std::string node;  // of the model, or of the train step where the model has none
  Phase phase = Phase::forward;
  int64_t bytes = 0;
};

// Looks at the program and its local graph, which outlive it. Times are instructions through the calls of a step, as
// those of Lives.
class HeldArena {
 public:
  HeldArena(const Program& program, const LocalGraph& local);

  const std::vector<HeldBytes>& over_time() const { return over_time_; }
  int64_t bytes_at(int time) const;
  int fullest() const;  // the first time at which most bytes are alive; -1: no program
  std::vector<HeldValue> at(int time) const;
  // What an instruction does for memory: "recomputed", "gathered", "fetched" or "evicted"; empty: none of these.
  std::string_view mark(int instruction) const;

 private:
  Held held(const Life::Content& content, int last) const;
  // The last time at which what has come there is used.
  static int end(const Life& life, size_t content);
  bool gathers_weight(int instruction, int output) const;
  HeldValue describe(const Life& life, size_t content) const;

  const Program& program_;
  const LocalGraph& local_;
  const Lives lives_;
  std::vector<Phase> phases_;  // by instruction
  std::vector<bool> again_;    // the same
  std::vector<HeldBytes> over_time_;
};

}  // namespace epl
