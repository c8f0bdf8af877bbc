// How a message about an unknown name ends: what was probably meant, and what there is. The one place with these words.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace epl {

// "; did you mean NEAR?", or nothing where no known name is near.
std::string did_you_mean(std::string_view name, std::span<const std::string> known);

// The same with what there is, as the end of a message: "; did you mean B? There are: A, B." or ". There are: A, B.", a
// long list cut.
std::string choices(std::string_view name, std::span<const std::string> known);

// "A, B, C and 7 more": what fits into a message.
std::string short_list(std::span<const std::string> names);

}  // namespace epl
