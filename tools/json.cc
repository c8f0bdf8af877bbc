#include "tools/json.h"

#include <cstdio>

#include "tools/api.h"
#include "tools/text.h"

namespace epl::tools {
namespace {

// Far more than any file of ours has, and few enough for what goes through a value by recursion.
constexpr int max_depth = 64;

// Whether lists and objects nest deeper than that. The text need not be JSON.
bool nests_too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\') ++i;
    if (quoted) continue;
    if ((c == '[' || c == '{') && ++depth > max_depth) return true;
    if (c == ']' || c == '}') --depth;
  }
  return false;
}

}  // namespace

Json parse_json(std::string_view text, const std::string& what) {
  if (nests_too_deep(text))
    throw UsageError(what + ": lists and objects nest deeper than " + std::to_string(max_depth));
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::parse_error& e) {
    const std::string_view why = e.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
    throw UsageError(what + " is not JSON: " + printable_line(why.substr(why.find("] ") + 2)));
  }
}

Json try_parse_json(std::string_view text) {
  if (nests_too_deep(text)) return Json(Json::value_t::discarded);
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

std::string text_at(const Json& json, const char* key) {
  if (!json.is_object()) return "";
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string print_json(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

void say_json(const Json& json) { std::fputs((print_json(json) + "\n").c_str(), stdout); }

Json printable_json(const Json& json) {
  if (json.is_string()) return printable_line(json.get_ref<const std::string&>());
  if (!json.is_structured()) return json;
  Json out = json.is_array() ? Json::array() : Json::object();
  for (const auto& [key, value] : json.items()) {
    json.is_array() ? out.push_back(printable_json(value))
                    : static_cast<void>(out[printable_line(std::string_view(key))] = printable_json(value));
  }
  return out;
}

}  // namespace epl::tools
