// The time of a step, in which memory is planned: the instructions of a program in the order in which a rank comes by
// them. Interleaved blocks count once for each call; any other block counts once, however often it is called.
#pragma once

#include <vector>

#include "core/program/program.h"

namespace epl {

class Timeline {
 public:
  explicit Timeline(const Program& program);

  struct Stretch {
    int block = 0;            // in Program::blocks
    int64_t micro_batch = 0;  // -1: of all calls
    int begin = 0;            // the time of its first instruction
  };
  const std::vector<Stretch>& stretches() const { return stretches_; }
  int end() const { return end_; }
  // Of a call; of one that does not count for itself, when its block begins.
  int begin_of(size_t call) const { return call_begins_[call]; }
  // Of an instruction: its first iteration, its last, and that of a micro-batch.
  int first(int position) const { return time(position, 0); }
  int last(int position) const { return time(position, begins_[block(position)].size() - 1); }
  int at(int position, int64_t micro_batch) const { return time(position, static_cast<size_t>(micro_batch)); }

 private:
  size_t block(int position) const;
  int time(int position, size_t iteration) const;

  const Program& program_;
  std::vector<Stretch> stretches_;
  std::vector<std::vector<int>> begins_;  // by block, then by iteration
  std::vector<int> call_begins_;
  int end_ = 0;
};

}  // namespace epl
