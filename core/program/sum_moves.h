// The moves of a sum over the batch that is added up in a form of its own (core/strategy/sum_form.h): its parts are
// scaled and rounded, and the full sum is widened.
#pragma once

#include <vector>

#include "core/program/reshard.h"
#include "core/strategy/sum_form.h"

namespace epl {

struct SumMoves {
  std::vector<Move> parts;  // of each unit's part, before units are added up
  std::vector<Move> rest;   // from what a call has to how the value is stored
};

// `moves` do this for a plain sum, of which a call has a value of the type `given`.
SumMoves moves_in_form(const SumForm& form, const TensorType& given, std::vector<Move> moves);

}  // namespace epl
