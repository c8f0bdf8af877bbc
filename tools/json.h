// JSON for the tool, compiled once as in core/base/json.h, of which the tool, a user of the C API alone, sees nothing.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace epl::tools {

using Json = nlohmann::ordered_json;

// Throws a UsageError, which says what it is of and where it is wrong, for a text that is not JSON or nests too deep.
// Nothing else in the tool parses JSON.
Json parse_json(std::string_view text, const std::string& what = "what the library says");
// `is_discarded()` instead.
Json try_parse_json(std::string_view text);
// What an object of a file has there, where that is a text; else "".
std::string text_at(const Json& json, const char* key);
// In one line. Bytes that are not UTF-8 become U+FFFD.
std::string print_json(const Json& json);
// On standard output.
void say_json(const Json& json);

// The same with every text and key as `printable_line` has it, for people to read.
Json printable_json(const Json& json);

}  // namespace epl::tools
