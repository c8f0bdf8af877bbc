// One element joined to another, where an op writes to an element again and again: scatters, and sums with a bias.
#pragma once

#include "core/ir/scalar.h"

namespace epl {

// Element i of `to` becomes op(element i of `to`, element j of `from`), both of `type`: real numbers through double,
// integers as integers, which keep all their digits and wrap as their type does.
void combine_element(ScalarOp op, DType type, void* to, int64_t i, const void* from, int64_t j);

}  // namespace epl
