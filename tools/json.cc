#include "tools/json.h"

namespace epl::tools {

Json parse_json(std::string_view text) { return Json::parse(text.begin(), text.end()); }

Json try_parse_json(std::string_view text) { return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false); }

std::string print_json(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace epl::tools
