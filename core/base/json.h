// JSON (RFC 8259), keys in the order in which they come. Reading and printing, which are large templates, are compiled once,
// in json.cc.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace epl {

using Json = nlohmann::ordered_json;

// `is_discarded()` where the text is no JSON.
Json parse_json(std::string_view text);
// In one line, or indented by so many spaces. Bytes that are no UTF-8 become U+FFFD.
std::string print_json(const Json& json, int indent = -1);

}  // namespace epl
