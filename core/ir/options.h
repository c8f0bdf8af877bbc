// Options of rows (losses, optimizers, passes): filled up with defaults and checked, for people who wrote them by hand.
#pragma once

#include <string_view>
#include <vector>

#include "core/ir/op.h"

namespace epl {

// `given` with defaults filled in, in the order of `specs`. An unknown name is an error with the nearest known one; a
// wrong type names both. An integer may stand for a number, and a single one for a list of them. `what` opens the
// messages: "optimizer adam".
Result<Attributes> complete_options(const std::vector<AttributeSpec>& specs, const Attributes& given,
                                    std::string_view what);

}  // namespace epl
