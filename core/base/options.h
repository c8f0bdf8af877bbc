// Options of rows (losses, optimizers, passes, templates) and attributes of ops: declared by the row, then filled up
// with defaults and checked, for people who wrote them by hand.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/attributes.h"

namespace epl {

struct AttributeSpec {
  std::string name;
  Attribute value;  // the default, or an example of the type when required
  bool required = false;
};

// `given` with defaults filled in, in the order of `specs`. An unknown name is an error with the nearest known one; a
// wrong type names both. An integer may stand for a number, and a single one for a list of them. `what` opens the
// messages: "optimizer adam".
Result<Attributes> complete_options(const std::vector<AttributeSpec>& specs, const Attributes& given,
                                    std::string_view what);

}  // namespace epl
