// JSON (RFC 8259), keys in the order in which they come. Reading, printing and the class itself are compiled once, in
// json.cc: instantiated in every file that uses them they took a sixth of the time of a build.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

extern template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace epl {

using Json = nlohmann::ordered_json;

// `is_discarded()` where the text is no JSON.
Json parse_json(std::string_view text);
// In one line, or indented by so many spaces. Bytes that are no UTF-8 become U+FFFD.
std::string print_json(const Json& json, int indent = -1);

}  // namespace epl
