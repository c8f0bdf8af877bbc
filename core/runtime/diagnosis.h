// Where what made a step's loss, or a gradient, not finite began. A run that diagnoses looks at the operands and the
// results of every instruction. A result that is not finite, of operands that are, is a birth; what a birth makes
// unfinite behind it carries its number from address to address. So an infinity that a mask holds, or that is selected
// away, is not blamed, and neither is the backward pass for an infinity of the forward pass.
//
// Thread safety: one rank each. It runs after a step was refused, so it may allocate.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/backend/device.h"
#include "core/compile/entry.h"
#include "core/program/program.h"
#include "core/runtime/executor.h"

namespace epl {

// Where the operands and the results of an instruction lie, at the current micro-batch.
struct LookedAt {
  std::vector<const std::byte*> inputs, outputs;
  bool empty = false;  // a transfer before its last iteration: nothing is there
};

// "the gradient of w", for messages.
std::string gradient_text(const Entry& entry, const std::string& parameter);

class Diagnosis {
 public:
  // `refused`: the verdict, the number of the operand that was not finite.
  Diagnosis(Stream& stream, int64_t refused) : stream_(stream), refused_(refused) {}
  Status before(const Instruction& in, const LookedAt& values);
  Status after(const Instruction& in, const LookedAt& values);
  Executor::Origin origin() const;

 private:
  // What is known of a run of bytes that is not finite: the number of a birth, or one of these.
  static constexpr int finite = -3, elsewhere = -2, given = -1;
  struct Birth {
    int64_t order = 0;
    bool weak = false;  // an infinity that was given went in
    bool left = false;  // for another rank
    std::string node, text;
  };
  struct Operand {
    bool present = false, nan = false, infinite = false;
    int from = finite;
    TensorType type;
    std::vector<std::byte> data;
  };

  Status look(const TensorType& type, const std::byte* from, Operand& out);
  bool is_strong(int from) const { return from >= 0 && !births_[static_cast<size_t>(from)].weak; }
  int origin_of(const Instruction& in, const Operand& result, size_t output, int before);
  int bear(const Instruction& in, const Operand& result, size_t output, bool weak);
  std::string index_out_of_range(const Instruction& in) const;
  const DoneNode& node_of(const Instruction& in, size_t output) const;
  int mark_of(const std::byte* from, int64_t bytes) const;
  void mark(const std::byte* from, int64_t bytes, int with);

  struct Mark {
    const std::byte* end;
    int with;
  };
  Stream& stream_;
  int64_t refused_, looked_at_ = 0;
  std::map<const std::byte*, Mark> marks_;  // runs of bytes that are not finite, by where they begin
  std::vector<Birth> births_;
  std::vector<Operand> operands_;              // of the current instruction
  std::map<const Instruction*, int> carried_;  // what transfers have added up in the iterations so far
  int target_ = finite;                        // what was refused
};

}  // namespace epl
