#include "core/base/json.h"

namespace epl {

Json parse_json(std::string_view text) { return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false); }

std::string print_json(const Json& json, int indent) { return json.dump(indent, ' ', false, Json::error_handler_t::replace); }

}  // namespace epl
