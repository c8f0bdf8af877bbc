// The word that was probably meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace epl::tools {

// The candidate that is fewest edits away (insert, drop, change, swap of neighbours), "" where none is near enough to
// be a slip of the fingers: at most a third of its letters.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// "; did you mean X?", "" where nothing is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

// "; did you mean B? There are: A, B." or ". There are: A, B.": how a message about an unknown name ends.
std::string choices(std::string_view word, const std::vector<std::string>& candidates);

// "a, b", with ", " between them.
std::string joined(const std::vector<std::string>& words, const char* between);

// "a, b and c".
std::string listed(const std::vector<std::string>& words, const char* last = "and");

}  // namespace epl::tools
