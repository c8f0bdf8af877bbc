// Masks on the scores of an attention: added, or selected by truth values.
#pragma once

#include <optional>
#include <vector>

#include "core/rewrite/rewrite.h"

namespace epl::rewrite {

struct Mask {
  Value values;  // added, or the condition of a selection
  bool selects = false;
  bool keeps = true;  // of a selection: true keeps the score (else true hides it)
  double hidden = 0;  // of a selection: what takes the place of a hidden score
};
struct MaskedScores {
  Value scores;
  Mask mask;
};

// value = scores with one mask on them, and of the same type as the scores. A selection whose fill value may be near to
// another score does not count as a mask, because the softmax must compare the two.
std::optional<MaskedScores> masked_scores(const Match& match, Value value);

// What a row means that sees no key. If a selection fills with a finite number, each hidden key has that number as its
// score: a row of hidden keys weighs them equally, whatever their scores are, and gives them no gradient. A row of
// minus infinities is NaN.
enum class HiddenRows {
  none,     // every row sees a key, or the sum of the masks as a bias says the same
  uniform,  // rows that a selection hides as a whole weigh all keys equally
  mixed,    // a bias cannot express what such rows mean
};
HiddenRows hidden_rows(const Match& match, const std::vector<Mask>& masks, int64_t queries, int64_t keys);

// Removes the masks that let position i see exactly the keys 0..i; true if there was one. A mask of finite numbers
// stays if another mask may hide everything that a position sees, because the later keys then count. Scores are [...,
// s, t].
bool remove_causal(const Match& match, std::vector<Mask>& masks, int64_t queries, int64_t keys);

// Whether all masks together may leave a row nothing but minus infinity. True where that cannot be told.
bool may_be_nan(const Match& match, const std::vector<Mask>& masks, int64_t queries, int64_t keys);

// The sum of all masks as a bias of four dimensions, Var() if there is none. Masks of `ndim` dimensions (3 or 4) have
// the scores' own; shorter ones broadcast.
Var mask_bias(const Match& match, Builder& builder, const GraphRewriter& now, const std::vector<Mask>& masks, int ndim);

}  // namespace epl::rewrite
