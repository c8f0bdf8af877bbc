// Masks on the scores of an attention: added, or selected by truth values.
#pragma once

#include <optional>
#include <vector>

#include "core/rewrite/rewrite.h"

namespace epl::rewrite {

struct Mask {
  Value values;          // added, or the condition of a selection
  bool selects = false;
  bool keeps = true;     // of a selection: true keeps the score (else true hides it)
  double hidden = 0;     // of a selection: what takes the place of a hidden score
};
struct MaskedScores {
  Value scores;
  Mask mask;
};

// value = scores with one mask on them, and of the same type as the scores.
std::optional<MaskedScores> masked_scores(const Match& match, Value value);

// Takes the masks away that let position i see exactly the keys 0..i; true if there was one. Scores are [..., s, t].
bool remove_causal(const Match& match, std::vector<Mask>& masks, int64_t queries, int64_t keys);

// Whether all masks together may leave a row nothing but minus infinity. True where that cannot be told.
bool may_hide_a_row(const Match& match, const std::vector<Mask>& masks);

// The sum of all masks as a bias of four dimensions, Var() if there is none. Masks of `ndim` dimensions (3 or 4) have the
// scores' own; shorter ones broadcast.
Var mask_bias(const Match& match, Builder& builder, const GraphRewriter& now, const std::vector<Mask>& masks, int ndim);

}  // namespace epl::rewrite
