#include "core/capi/json.h"

#include <cmath>

#include "core/base/suggestion.h"

namespace epl::capi {
namespace {

std::string type_name(const Attribute& value) {
  static const char* const names[] = {"true or false",   "an integer",         "a finite number",   "a text",
                                      "an element type", "a list of integers", "a list of numbers", "a tensor"};
  return names[value.index()];
}

template <class T> bool parse_number(std::string_view text, T& out) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), out);
  return failure == std::errc() && end == text.data() + text.size() && !text.empty();
}

template <class T> bool parse_list(std::string_view text, std::vector<T>& out) {
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  out.clear();
  while (!text.empty()) {
    size_t comma = text.find(',');
    T value{};
    if (!parse_number(text.substr(0, comma), value)) return false;
    out.push_back(value);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return true;
}

// False if the value has another type.
bool from_json(const Json& json, const Attribute& like, Attribute& out) {
  if (std::holds_alternative<bool>(like) && json.is_boolean()) {
    out = json.get<bool>();
  } else if (std::holds_alternative<int64_t>(like) && json.is_int64()) {
    out = json.get<int64_t>();
  } else if (std::holds_alternative<double>(like) && json.is_number()) {
    out = json.get<double>();
  } else if (std::holds_alternative<std::string>(like) && json.is_string()) {
    out = json.get<std::string>();
  } else if (std::holds_alternative<Ints>(like) && json.is_array()) {
    Ints values;
    for (const Json& item : json) {
      if (!item.is_int64()) return false;
      values.push_back(item.get<int64_t>());
    }
    out = values;
  } else if (std::holds_alternative<Doubles>(like) && json.is_number()) {
    out = Doubles{json.get<double>()};  // a list of one
  } else if (std::holds_alternative<Doubles>(like) && json.is_array()) {
    Doubles values;
    for (const Json& item : json) {
      if (!item.is_number()) return false;
      values.push_back(item.get<double>());
    }
    out = values;
  } else {
    return false;
  }
  return true;
}

}  // namespace

Result<Attributes> parse_options(std::string_view text, const std::vector<AttributeSpec>& declared,
                                 std::string_view what) {
  Attributes out;
  std::vector<std::string> known;
  for (const AttributeSpec& spec : declared) {
    out.set(spec.name, spec.value);
    known.push_back(spec.name);
  }
  if (text.empty()) return out;
  auto json = parse_json(text);
  if (!json.ok())
    return invalid("the options of ", what, " are not JSON: ", json.status().message(), " of ", excerpt(text, 80));
  if (!json->is_object()) return invalid("the options of ", what, " are not a JSON object: ", excerpt(text, 80));
  for (const auto& [key, value] : json->items()) {
    const Attribute* like = nullptr;
    for (const AttributeSpec& spec : declared) {
      if (spec.name == key) like = &spec.value;
    }
    if (like == nullptr) {
      return error(Code::not_found, what, " has no option ", quoted(key), choices(key, known));
    }
    Attribute read;
    if (!from_json(value, *like, read))
      return invalid("option \"", key, "\" of ", what, " is ", excerpt(print_json(value), 80), "; ", type_name(*like),
                     " is expected");
    out.set(key, read);
  }
  return out;
}

Result<Attribute> parse_value(std::string_view text, const Attribute& like, std::string_view key) {
  Attribute out = like;
  bool fine = false;
  if (std::holds_alternative<bool>(like)) {
    fine = text == "true" || text == "1" || text == "false" || text == "0";
    out = text == "true" || text == "1";
  } else if (std::holds_alternative<int64_t>(like)) {
    fine = parse_number(text, std::get<int64_t>(out));
  } else if (std::holds_alternative<double>(like)) {
    fine = parse_number(text, std::get<double>(out)) && std::isfinite(std::get<double>(out));
  } else if (std::holds_alternative<std::string>(like)) {
    out = std::string(text);
    fine = true;
  } else if (std::holds_alternative<Ints>(like)) {
    fine = parse_list(text, std::get<Ints>(out));
  } else if (std::holds_alternative<Doubles>(like)) {
    fine = parse_list(text, std::get<Doubles>(out));
  }
  if (!fine) return invalid(key, " is \"", excerpt(text, 80), "\"; ", type_name(like), " is expected");
  return out;
}

Json attribute_json(const Attribute& value) {
  return std::visit(
      [](const auto& v) -> Json {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, DType>) {
          return std::string(dtype_name(v));
        } else if constexpr (std::is_same_v<T, Tensor>) {
          return v.type().text();
        } else {
          return v;
        }
      },
      value);
}

}  // namespace epl::capi
