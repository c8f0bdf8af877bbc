// JSON at the boundary: option objects read into attributes, texts made safe. Needs no exceptions to get out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/attributes.h"
#include "core/base/json.h"
#include "core/base/options.h"

namespace epl::capi {

// Reads an object of options against what is declared; every declared option is in the result, in that order. Empty
// text: all defaults. Unknown keys name the nearest known one, wrong types name what is expected. `what` names the
// owner of the options in messages.
Result<Attributes> parse_options(std::string_view text, const std::vector<AttributeSpec>& declared,
                                 std::string_view what);
// One value as text ("0.9,0.95", "true", "12") as the type of `like`.
Result<Attribute> parse_value(std::string_view text, const Attribute& like, std::string_view key);
Json attribute_json(const Attribute& value);

}  // namespace epl::capi
