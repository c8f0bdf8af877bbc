// How a sum over the batch is added up, where that is not in the type of its value.
//
// Each sum has a word for it (Plan::sum_forms), which a pass chooses (core/strategy/passes/reduce.cc) and `partition`
// acts on (core/program/sum_moves.h). Compression with error feedback will be one more kind: what it takes from the
// part of a rank is state of this rank alone, which is added to the rank's next part.
#pragma once

#include <string>

#include "core/base/dtype.h"
#include "core/base/status.h"

namespace epl {

struct Plan;
class TextReader;

struct SumForm {
  // plain: in the type of its value. narrow: parts of it, and each sum of two of them, are rounded to `type`.
  enum class Kind : uint8_t { plain, narrow };
  Kind kind = Kind::plain;
  DType type = DType::f32;  // of narrow parts, f16 or bf16
  int64_t scale = 1;        // that parts are multiplied with before they are rounded; their sum is divided by it
  // Each unit of the batch is a part, so that the bits are the same however many ranks there are. Else what a rank has
  // added up is one, and is rounded for other ranks alone.
  bool of_units = false;

  explicit operator bool() const { return kind != Kind::plain; }
  friend bool operator==(const SumForm&, const SumForm&) = default;
};

// " reduced narrow f16 times 128 by units"; nothing where it is plain.
std::string sum_form_text(const SumForm& form);
// What follows the word "reduced".
bool parse_sum_form(TextReader& reader, SumForm& out);
// That only numbers that nodes make are reduced otherwise, and to fewer bits.
Status verify_sum_forms(const Plan& plan);

}  // namespace epl
