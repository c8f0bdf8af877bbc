// Strategies as JSON. Everything unknown is an error that names it and the nearest known word.
#include <algorithm>

#include "core/base/json.h"
#include "core/base/shown.h"
#include "core/base/suggestion.h"
#include "core/strategy/strategy.h"

namespace epl {
namespace {

std::string scalar_text(const Json& value) { return value.is_string() ? value.get<std::string>() : print_json(value); }

Result<Scope> parse_scope(const Json& json, std::string_view where) {
  if (!json.is_object()) return invalid(where, " must be an object");
  Scope scope;
  bool kind = false;
  for (const auto& [key, value] : json.items()) {
    static const std::vector<std::string> known = {"name", "match", "scopes", "dims", "replicate", "split", "expert"};
    if (key == "name") {
      if (!value.is_string()) return invalid(where, ".name must be a text");
      scope.name = value.get<std::string>();
    } else if (key == "match") {
      const Json one = Json::array({value});
      for (const Json& pattern : value.is_array() ? value : one) {
        if (!pattern.is_string()) return invalid(where, ".match must be a pattern or a list of patterns");
        scope.add_match(pattern.get<std::string>());
      }
    } else if (key == "scopes") {
      if (!value.is_array()) return invalid(where, ".scopes must be a list");
      for (size_t i = 0; i < value.size(); ++i) {
        EPL_ASSIGN(Scope inner, parse_scope(value[i], cat(where, ".scopes[", i, "]")));
        scope.scopes.push_back(std::move(inner));
      }
    } else if (key == "dims") {
      if (!value.is_object()) return invalid(where, ".dims must be an object: dimensions by names of values");
      for (const auto& [name, dim] : value.items()) {
        if (!dim.is_number_integer())
          return invalid(where, ".dims: ", shown(name, 200), " must have the number of a dimension");
        scope.dims.push_back({name, dim.get<int64_t>()});
      }
    } else if (const auto named = scope_kind_named(key)) {
      if (kind) return invalid(where, " has two kinds");
      if (!value.is_number_integer() || value.get<int64_t>() < 1)
        return invalid(where, ".", key, " must be a number of devices");
      kind = true;
      scope.kind = *named;
      scope.device_count = value.get<int64_t>();
    } else {
      return error(Code::not_found, where, " has an unknown key ", shown(key, 200), choices(key, known));
    }
  }
  if (!kind) return invalid(where, " needs one of replicate, split, expert");
  return scope;
}

Json scope_json(const Scope& scope) {
  Json json = Json::object();
  if (!scope.name.empty()) json["name"] = scope.name;
  json[scope_kind_name(scope.kind)] = scope.device_count;
  if (const auto patterns = scope.patterns(); !patterns.empty()) json["match"] = patterns;
  for (const DimPin& pin : scope.dims) {
    Json& dims = json["dims"];
    if (dims.find(pin.value) == nullptr) dims[pin.value] = pin.dim;  // the first counts
  }
  for (const Scope& inner : scope.scopes) json["scopes"].push_back(scope_json(inner));
  return json;
}

}  // namespace

Result<Strategy> parse_strategy(std::string_view text) {
  Strategy strategy;
  auto parsed = parse_json(text);
  if (!parsed.ok())
    return invalid("the strategy is not JSON: ", parsed.status().message(), " of ", shown_plain(text, 80));
  const Json& json = *parsed;
  if (!json.is_object()) return invalid("a strategy is one JSON object");
  for (const auto& [key, value] : json.items()) {
    if (key == "scopes") {
      if (!value.is_array()) return invalid("scopes must be a list");
      for (size_t i = 0; i < value.size(); ++i) {
        EPL_ASSIGN(Scope scope, parse_scope(value[i], cat("scopes[", i, "]")));
        strategy.scopes.push_back(std::move(scope));
      }
    } else if (key == "default") {
      EPL_ASSIGN(strategy.default_scope, parse_scope(value, "default"));
      strategy.has_default = true;
    } else {
      if (value.is_structured() || value.is_null())
        return invalid("strategy key ", shown(key, 200), " must be a plain value");
      EPL_TRY(set_config(strategy, key, scalar_text(value)));
    }
  }
  return strategy;
}

std::string print_strategy(const Strategy& strategy) {
  Json json = Json::object();
  for (const Attributes::Entry& entry : strategy.config.entries()) {
    if (auto* b = std::get_if<bool>(&entry.value)) json[entry.name] = *b;
    if (auto* i = std::get_if<int64_t>(&entry.value)) json[entry.name] = *i;
    if (auto* s = std::get_if<std::string>(&entry.value)) json[entry.name] = *s;
  }
  for (const Scope& scope : strategy.scopes) json["scopes"].push_back(scope_json(scope));
  if (strategy.has_default) json["default"] = scope_json(strategy.default_scope);
  return print_json(json);
}

}  // namespace epl
