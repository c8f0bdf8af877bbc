#include "tools/json.h"

#include "tools/text.h"

namespace epl::tools {

Json parse_json(std::string_view text) { return Json::parse(text.begin(), text.end()); }

Json try_parse_json(std::string_view text) {
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

std::string print_json(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json printable_json(const Json& json) {
  if (json.is_string()) return printable(json.get_ref<const std::string&>());
  if (!json.is_structured()) return json;
  Json out = json.is_array() ? Json::array() : Json::object();
  for (const auto& [key, value] : json.items()) {
    json.is_array() ? out.push_back(printable_json(value))
                    : static_cast<void>(out[printable(std::string_view(key))] = printable_json(value));
  }
  return out;
}

}  // namespace epl::tools
