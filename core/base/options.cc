#include "core/base/options.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/base/json.h"
#include "core/base/shown.h"
#include "core/base/suggestion.h"

namespace epl {
namespace {

std::string expected(const Option& option) {
  static const char* const types[] = {"true or false",   "an integer",         "a finite number",   "a text",
                                      "an element type", "a list of integers", "a list of numbers", "a tensor"};
  if (option.words.empty()) {
    const bool list = std::holds_alternative<Ints>(option.value) || std::holds_alternative<Doubles>(option.value);
    const std::string range = option.range.text();
    return cat(types[option.value.index()], " is expected", range.empty() ? "" : list ? ", each " : ", ", range);
  }
  std::vector<std::string> words = option.words;
  std::ranges::replace(words, "", "\"\"");
  return cat("one of ", join(words, ", "), " is expected");
}

Status wrong(const Option& option, std::string_view given, std::string_view what) {
  std::string wanted = expected(option);
  // It looks like one.
  const bool digits = !given.empty() && given.find_first_not_of("0123456789", given[0] == '-' ? 1 : 0) == given.npos;
  if (digits && option.range.is_any() && std::holds_alternative<int64_t>(option.value))
    wanted = cat("an integer from ", std::numeric_limits<int64_t>::min(), " to ", std::numeric_limits<int64_t>::max(),
                 " is expected");
  return invalid("option ", shown(option.name), " of ", what, " is ", shown_plain(given, 80), "; ", wanted);
}

bool allowed(const Option& option, const Attribute& value) {
  if (const auto* text = std::get_if<std::string>(&value))
    return option.words.empty() || std::ranges::find(option.words, *text) != option.words.end();
  if (option.range.is_any()) return true;
  const auto holds = [&](auto number) { return option.range.holds(static_cast<double>(number)); };
  if (const auto* integer = std::get_if<int64_t>(&value)) return holds(*integer);
  if (const auto* number = std::get_if<double>(&value)) return holds(*number);
  if (const auto* integers = std::get_if<Ints>(&value)) return std::ranges::all_of(*integers, holds);
  if (const auto* numbers = std::get_if<Doubles>(&value)) return std::ranges::all_of(*numbers, holds);
  return true;
}

// Without the fraction of an integer.
std::string bound_text(double bound) {
  const auto integer = static_cast<int64_t>(bound);
  return static_cast<double>(integer) == bound ? cat(integer) : number_text(bound);
}

const Option* find(const std::vector<Option>& declared, std::string_view name) {
  const auto found = std::ranges::find(declared, name, &Option::name);
  return found == declared.end() ? nullptr : &*found;
}

Status no_option(std::string_view name, const std::vector<Option>& declared, std::string_view what) {
  std::vector<std::string> known;
  for (const Option& option : declared) known.push_back(option.name);
  return unknown_option(name, known, what);
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

template <class T> bool parse_number(std::string_view text, T& out) {
  text = trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), out);
  return failure == std::errc() && end == text.data() + text.size() && !text.empty();
}

template <class T> bool parse_list(std::string_view text, std::vector<T>& out) {
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  out.clear();
  while (!text.empty()) {
    const size_t comma = text.find(',');
    T value{};
    if (!parse_number(text.substr(0, comma), value)) return false;
    out.push_back(value);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return true;
}

// A value of another kind with the same meaning as the type that `wanted` has, or nothing.
std::optional<Attribute> converted(const Attribute& given, const Attribute& wanted) {
  if (given.index() == wanted.index()) return given;
  const int64_t* integer = std::get_if<int64_t>(&given);
  const Ints* integers = std::get_if<Ints>(&given);
  if (std::holds_alternative<double>(wanted) && integer) return Attribute(static_cast<double>(*integer));
  if (std::holds_alternative<Ints>(wanted) && integer) return Attribute(Ints{*integer});
  if (std::holds_alternative<Doubles>(wanted)) {
    if (integers) return Attribute(Doubles(integers->begin(), integers->end()));
    if (integer) return Attribute(Doubles{static_cast<double>(*integer)});
    if (const double* number = std::get_if<double>(&given)) return Attribute(Doubles{*number});
  }
  return std::nullopt;
}

template <class T> std::optional<Attribute> list_of(const Json& json, bool (Json::*fits)() const) {
  std::vector<T> values;
  for (const Json& item : json) {
    if (!(item.*fits)()) return std::nullopt;
    values.push_back(item.get<T>());
  }
  return Attribute(std::move(values));
}

std::optional<Attribute> from_json(const Json& json, const Option& option) {
  const Attribute& like = option.value;
  if (option.json) return Attribute(print_json(json));
  if (std::holds_alternative<bool>(like) && json.is_boolean()) return Attribute(json.get<bool>());
  if (std::holds_alternative<int64_t>(like) && json.is_int64()) return Attribute(json.get<int64_t>());
  if (std::holds_alternative<double>(like) && json.is_number()) return Attribute(json.get<double>());
  if (std::holds_alternative<std::string>(like) && json.is_string()) return Attribute(json.get<std::string>());
  if (std::holds_alternative<Ints>(like) && json.is_array()) return list_of<int64_t>(json, &Json::is_int64);
  if (std::holds_alternative<Doubles>(like) && json.is_number()) return Attribute(Doubles{json.get<double>()});
  if (std::holds_alternative<Doubles>(like) && json.is_array()) return list_of<double>(json, &Json::is_number);
  return std::nullopt;
}

// The text up to the first `separator` outside parentheses and brackets, removed from `text` with it.
std::string_view take_part(std::string_view& text, char separator) {
  int depth = 0;
  size_t end = 0;
  for (; end < text.size() && (depth > 0 || text[end] != separator); ++end)
    depth += (text[end] == '(' || text[end] == '[') - (text[end] == ')' || text[end] == ']');
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return trimmed(part);
}

}  // namespace

bool NumberRange::is_any() const { return std::isinf(from) && std::isinf(to); }

bool NumberRange::holds(double number) const {
  if (!std::isfinite(number) || number < from || number > to) return false;
  return !(without_from && number == from) && !(without_to && number == to);
}

std::string NumberRange::text() const {
  if (is_any()) return "";
  if (std::isinf(to)) return without_from ? cat("more than ", bound_text(from)) : cat(bound_text(from), " or more");
  if (std::isinf(from)) return without_to ? cat("less than ", bound_text(to)) : cat(bound_text(to), " or less");
  if (without_from && without_to) return cat("between ", bound_text(from), " and ", bound_text(to));
  return cat("from ", without_from ? "above " : "", bound_text(from), " to ", without_to ? "below " : "",
             bound_text(to));
}

Status unknown_option(std::string_view name, const std::vector<std::string>& known, std::string_view what) {
  if (known.empty()) return error(Code::not_found, what, " has no option ", shown(name), "; it has none");
  return error(Code::not_found, what, " has no option ", shown(name), choices(name, known));
}

Result<Attribute> parse_option(std::string_view text, const Option& option, std::string_view what) {
  Attribute out = option.value;
  bool fine = false;
  if (std::holds_alternative<bool>(out)) {
    fine = text == "true" || text == "1" || text == "false" || text == "0";
    out = text == "true" || text == "1";
  } else if (int64_t* integer = std::get_if<int64_t>(&out)) {
    fine = parse_number(text, *integer);
  } else if (double* number = std::get_if<double>(&out)) {
    fine = parse_number(text, *number) && std::isfinite(*number);
  } else if (std::holds_alternative<std::string>(out)) {
    out = std::string(text);
    fine = true;
  } else if (Ints* integers = std::get_if<Ints>(&out)) {
    fine = parse_list(text, *integers);
  } else if (Doubles* numbers = std::get_if<Doubles>(&out)) {
    fine = parse_list(text, *numbers) && std::ranges::all_of(*numbers, [](double n) { return std::isfinite(n); });
  }
  if (!fine || !allowed(option, out)) return wrong(option, shown(text), what);
  return out;
}

Result<Attributes> parse_options(const OptionTexts& given, const std::vector<Option>& declared, std::string_view what) {
  Attributes out;
  for (const auto& [name, text] : given) {
    const Option* option = find(declared, name);
    if (option == nullptr) return no_option(name, declared, what);
    EPL_ASSIGN(Attribute value, parse_option(text, *option, what));
    out.set(name, std::move(value));
  }
  return out;
}

Result<Attributes> parse_options(std::string_view text, const std::vector<Option>& declared, std::string_view what) {
  Attributes given;
  if (text.empty()) return complete_options(declared, given, what);
  auto json = parse_json(text);
  if (!json.ok())
    return invalid("the options of ", what, " are not JSON: ", json.status().message(), " of ", shown_plain(text, 80));
  if (!json->is_object()) return invalid("the options of ", what, " are not a JSON object: ", shown_plain(text, 80));
  for (const auto& [key, value] : json->items()) {
    const Option* option = find(declared, key);
    if (option == nullptr) return no_option(key, declared, what);
    std::optional<Attribute> read = from_json(value, *option);
    if (!read || !allowed(*option, *read)) return wrong(*option, print_json(value), what);
    given.set(key, *std::move(read));
  }
  return complete_options(declared, given, what);
}

Result<Attributes> complete_options(const std::vector<Option>& declared, const Attributes& given,
                                    std::string_view what) {
  for (const Attributes::Entry& entry : given.entries()) {
    if (find(declared, entry.name) == nullptr) return no_option(entry.name, declared, what);
  }
  Attributes complete;
  for (const Option& option : declared) {
    const Attribute* own = given.find(option.name);
    if (!own) {
      if (option.required) return invalid(what, " needs option ", option.name);
      complete.set(option.name, option.value);
      continue;
    }
    std::optional<Attribute> value = converted(*own, option.value);
    if (!value || !allowed(option, *value)) return wrong(option, attribute_text(*own), what);
    complete.set(option.name, *std::move(value));
  }
  return complete;
}

namespace {

Result<RowText> parse_row(std::string_view text, std::string_view kind) {
  const size_t open = text.find('(');
  RowText out{.name = std::string(trimmed(text.substr(0, open))), .options = {}};
  if (out.name.empty()) return invalid(kind, ": a name is missing, got ", shown(text, 80));
  if (open == std::string_view::npos) return out;
  if (text.back() != ')') return invalid(kind, " ", shown_plain(text, 200), ": the parenthesis is not closed");
  std::string_view inside = text.substr(open + 1, text.size() - open - 2);
  while (!trimmed(inside).empty()) {
    const std::string_view part = take_part(inside, ',');
    const size_t equals = part.find('=');
    std::string name(trimmed(part.substr(0, equals)));
    if (name.empty()) return invalid(kind, " ", shown_plain(text, 200), ": ", shown(part), " is not NAME=VALUE");
    if (std::ranges::find(out.options, name, &std::pair<std::string, std::string>::first) != out.options.end())
      return invalid(kind, " ", shown_plain(text, 200), ": ", shown_plain(name), " is given twice");
    out.options.emplace_back(std::move(name),
                             equals == std::string_view::npos ? "true" : trimmed(part.substr(equals + 1)));
  }
  return out;
}

}  // namespace

Result<std::vector<RowText>> parse_rows(std::string_view list, char separator, std::string_view kind) {
  std::vector<RowText> rows;
  while (!trimmed(list).empty()) {
    EPL_ASSIGN(RowText row, parse_row(take_part(list, separator), kind));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace epl
