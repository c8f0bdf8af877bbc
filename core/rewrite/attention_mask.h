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

// value = scores with one mask on them, and of the same type as the scores. A selection that fills with a number which
// another score may be near is none: such a score must be compared with it.
std::optional<MaskedScores> masked_scores(const Match& match, Value value);

// What rows mean that see no key. A key that a selection fills with a finite number still has that number for its
// score: a row of such keys alone weighs them equally, whatever the scores are, and lets no gradient through to them. A
// row of minus infinities is NaN.
enum class HiddenRows {
  none,     // every row sees a key, or the sum of the masks as a bias says the same
  uniform,  // rows that a selection hides as a whole weigh all keys equally
  mixed,    // what such rows mean no bias can say
};
HiddenRows hidden_rows(const Match& match, const std::vector<Mask>& masks, int64_t queries, int64_t keys);

// Takes the masks away that let position i see exactly the keys 0..i; true if there was one. A mask of finite numbers
// stays where another may hide all that a position sees, because the keys after it then count. Scores are [..., s, t].
bool remove_causal(const Match& match, std::vector<Mask>& masks, int64_t queries, int64_t keys);

// Whether all masks together may leave a row nothing but minus infinity. True where that cannot be told.
bool may_be_nan(const Match& match, const std::vector<Mask>& masks, int64_t queries, int64_t keys);

// The sum of all masks as a bias of four dimensions, Var() if there is none. Masks of `ndim` dimensions (3 or 4) have
// the scores' own; shorter ones broadcast.
Var mask_bias(const Match& match, Builder& builder, const GraphRewriter& now, const std::vector<Mask>& masks, int ndim);

}  // namespace epl::rewrite
