#include "core/base/json.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "core/base/shown.h"
#include "core/base/text.h"

namespace epl {

Json::Json(std::initializer_list<Json> items) {
  const bool members = items.size() > 0 && std::ranges::all_of(items, [](const Json& item) {
                         return item.is_array() && item.size() == 2 && item[size_t{0}].is_string();
                       });
  if (!members) {
    value_ = Array(items);
    return;
  }
  Object object;
  for (const Json& item : items) object.push_back({item[size_t{0}].text(), item[size_t{1}]});
  value_ = std::move(object);
}

Json Json::array(std::initializer_list<Json> items) {
  Json out;
  out.value_ = Array(items);
  return out;
}

Json Json::object() {
  Json out;
  out.value_ = Object();
  return out;
}

Json Json::of(Object members) {
  Json out;
  out.value_ = std::move(members);
  return out;
}

void Json::wrong_type() { throw InternalError("a JSON value is of another type"); }

const std::string& Json::text() const {
  const auto* text = std::get_if<std::string>(&value_);
  if (text == nullptr) wrong_type();
  return *text;
}

const Json::Array& Json::array_items() const {
  const auto* items = std::get_if<Array>(&value_);
  if (items == nullptr) wrong_type();
  return *items;
}
Json::Array& Json::array_items() { return const_cast<Array&>(std::as_const(*this).array_items()); }

const Json::Object& Json::items() const {
  const auto* items = std::get_if<Object>(&value_);
  if (items == nullptr) wrong_type();
  return *items;
}

size_t Json::size() const {
  if (is_array()) return array_items().size();
  return is_object() ? items().size() : 0;
}

void Json::push_back(Json item) {
  if (is_null()) value_ = Array();
  array_items().push_back(std::move(item));
}

const Json* Json::find(std::string_view key) const {
  const auto* members = std::get_if<Object>(&value_);
  if (members == nullptr) return nullptr;
  const auto found = std::ranges::find(*members, key, &Member::key);
  return found == members->end() ? nullptr : &found->value;
}

const Json& Json::at(std::string_view key) const {
  const Json* found = find(key);
  EPL_CHECK(found != nullptr, "no key ", key);
  return *found;
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object();
  if (const Json* found = find(key)) return const_cast<Json&>(*found);
  auto* members = std::get_if<Object>(&value_);
  if (members == nullptr) wrong_type();
  return members->emplace_back(std::string(key), Json()).value;
}

bool operator==(const Json& a, const Json& b) {
  if (a.is_object() && b.is_object()) {
    return std::ranges::equal(a.items(), b.items(), [](const Json::Member& x, const Json::Member& y) {
      return x.key == y.key && x.value == y.value;
    });
  }
  if (a.is_array() && b.is_array()) return std::ranges::equal(a.array_items(), b.array_items());
  if (a.is_object() || b.is_object() || a.is_array() || b.is_array()) return false;
  if (a.is_number() && b.is_number() && a.value_.index() != b.value_.index()) return a.get<double>() == b.get<double>();
  return print_json(a) == print_json(b);
}

namespace {

// A recursive descent with a bounded depth. The first mistake is kept, and everything returns.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Json> run() {
    Json out;
    if (value(out, 0)) {
      skip_space();
      if (at_ < text_.size()) fail("something after the end of the value");
    }
    if (!mistake_.empty()) return Status(Code::invalid_argument, cat("byte ", position_, ": ", mistake_));
    return out;
  }

 private:
  bool fail(std::string_view what) {
    if (mistake_.empty()) {
      mistake_ = what;
      position_ = std::min(at_, text_.size());
    }
    return false;
  }
  bool more() const { return at_ < text_.size(); }
  char peek() const { return more() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (!more() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    while (more() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) ++at_;
  }
  bool word(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return fail("a word that JSON does not have");
    at_ += word.size();
    return true;
  }

  // What other writers of JSON make of numbers that it does not have.
  bool not_finite() {
    std::string_view rest = text_.substr(at_, 10);
    if (rest.starts_with('-') || rest.starts_with('+')) rest.remove_prefix(1);
    for (const std::string_view word : {"NaN", "nan", "Infinity", "infinity", "Inf", "inf"}) {
      if (!rest.starts_with(word)) continue;
      const std::string of = key_.empty() ? "" : cat(" of ", shown(key_, 80));
      return !fail(cat("the value", of, " is ",
                       text_.substr(at_, static_cast<size_t>(rest.data() - text_.data()) - at_), word,
                       ", and JSON has finite numbers alone"));
    }
    return false;
  }

  bool value(Json& out, int depth) {
    skip_space();
    if (not_finite()) return false;
    switch (peek()) {
      case '{':
        return object(out, depth + 1);
      case '[':
        return list(out, depth + 1);
      case '"': {
        std::string text;
        if (!string(text)) return false;
        out = std::move(text);
        return true;
      }
      case 't':
        out = true;
        return word("true");
      case 'f':
        out = false;
        return word("false");
      case 'n':
        out = Json();
        return word("null");
      default:
        return number(out);
    }
  }

  bool list(Json& out, int depth) {
    if (depth > max_json_depth) return fail(cat("lists and objects nest deeper than ", max_json_depth));
    ++at_;
    out = Json::array();
    skip_space();
    if (take(']')) return true;
    do {
      Json item;
      if (!value(item, depth)) return false;
      out.push_back(std::move(item));
      skip_space();
    } while (take(','));
    return take(']') || fail("a list that is not closed");
  }

  bool object(Json& out, int depth) {
    if (depth > max_json_depth) return fail(cat("lists and objects nest deeper than ", max_json_depth));
    ++at_;
    Json::Object members;
    skip_space();
    if (!take('}')) {
      do {
        Json::Member& member = members.emplace_back();
        skip_space();
        if (peek() != '"') return fail("a key, in double quotes, is expected");
        if (!string(member.key)) return false;
        skip_space();
        if (!take(':')) return fail("a colon is expected");
        const std::string around = std::exchange(key_, member.key);
        if (!value(member.value, depth)) return false;
        key_ = around;
        skip_space();
      } while (take(','));
      if (!take('}')) return fail("an object that is not closed");
    }
    if (!unlike_keys(members)) return false;
    out = Json::of(std::move(members));
    return true;
  }

  bool unlike_keys(const Json::Object& members) {
    std::vector<std::string_view> keys;
    for (const Json::Member& member : members) keys.push_back(member.key);
    std::ranges::sort(keys);
    const auto twice = std::ranges::adjacent_find(keys);
    return twice == keys.end() || fail(cat("the key ", shown(*twice, 80), " comes twice"));
  }

  bool string(std::string& out) {
    ++at_;
    while (more()) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return true;
      }
      if (c == '\\') {
        ++at_;
        if (!escape(out)) return false;
        continue;
      }
      if (static_cast<unsigned char>(c) < 0x20) return fail("a control character in a text; write it as an escape");
      const size_t length = utf8_sequence(text_.substr(at_));
      if (length == 0) return fail("bytes that are not UTF-8");
      out += text_.substr(at_, length);
      at_ += length;
    }
    return fail("a text that is not closed");
  }

  bool escape(std::string& out) {
    static constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    if (const size_t i = letters.find(peek()); more() && i != std::string_view::npos) {
      out += meanings[i];
      ++at_;
      return true;
    }
    uint32_t code = 0;
    if (!take('u') || !hex(code)) return fail("an escape that JSON does not have");
    if (code >= 0xd800 && code < 0xdc00) {  // the first half of a pair
      uint32_t low = 0;
      if (!take('\\') || !take('u') || !hex(low) || low < 0xdc00 || low > 0xdfff)
        return fail("half of a surrogate pair");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
      return fail("half of a surrogate pair");
    }
    append_utf8(out, code);
    return true;
  }

  bool hex(uint32_t& out) {
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), out, 16);
    if (digits.size() < 4 || failure != std::errc() || end != digits.data() + 4) return false;
    at_ += 4;
    return true;
  }

  size_t digits() {
    const size_t before = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ - before;
  }

  bool number(Json& out) {
    const size_t begin = at_;
    const bool negative = take('-');
    const bool zero = peek() == '0';
    const size_t integer_digits = digits();
    if (integer_digits == 0) {
      at_ = begin;
      const std::string of = key_.empty() ? "" : cat(" of ", shown(key_, 80));
      return fail(more() ? cat("a value", of, " is expected") : cat("the text ends where a value", of, " is expected"));
    }
    if (zero && integer_digits > 1) return fail("a number that begins with 0");
    bool real = false;
    if (take('.')) {
      real = true;
      if (digits() == 0) return fail("digits are expected after the point");
    }
    bool small = zero;
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      real = true;
      small = peek() == '-';
      if (peek() == '-' || peek() == '+') ++at_;
      if (digits() == 0) return fail("digits are expected in the exponent");
    }
    const char *first = text_.data() + begin, *last = text_.data() + at_;
    if (!real) {
      int64_t integer_value = 0;
      uint64_t large = 0;
      if (std::from_chars(first, last, integer_value).ec == std::errc()) return out = integer_value, true;
      if (!negative && std::from_chars(first, last, large).ec == std::errc()) return out = large, true;
    }
    double number = 0;
    if (std::from_chars(first, last, number).ec != std::errc()) {
      if (!small) return fail("a number too large for a double");
      number = negative ? -0.0 : 0.0;
    }
    out = number;
    return true;
  }

  std::string_view text_;
  size_t at_ = 0, position_ = 0;
  std::string key_;  // of the object around, whose value is read
  std::string mistake_;
};

void print_text(std::string& out, std::string_view text) {
  static constexpr char hex[] = "0123456789abcdef";
  out += '"';
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    const size_t length = std::max<size_t>(utf8_sequence(text), 1);
    static constexpr std::string_view special = "\"\\\b\f\n\r\t", letters = "\"\\bfnrt";
    if (const size_t i = special.find(text[0]); i != std::string_view::npos) {
      out += '\\';
      out += letters[i];
    } else if (c < 0x20) {
      out += "\\u00";
      out += hex[c >> 4];
      out += hex[c & 15];
    } else if (c >= 0x80 && length == 1) {
      out += replacement_character;
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  out += '"';
}

void new_line(std::string& out, int indent, int depth) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<size_t>(indent) * static_cast<size_t>(depth), ' ');
}

}  // namespace

void print(std::string& out, const Json& json, int indent, int depth) {
  if (json.is_array() || json.is_object()) {
    const bool list = json.is_array();
    out += list ? '[' : '{';
    for (size_t i = 0; i < json.size(); ++i) {
      if (i > 0) out += ',';
      new_line(out, indent, depth + 1);
      if (!list) {
        print_text(out, json.items()[i].key);
        out += indent < 0 ? ":" : ": ";
      }
      print(out, list ? json[i] : json.items()[i].value, indent, depth + 1);
    }
    if (!json.empty()) new_line(out, indent, depth);
    out += list ? ']' : '}';
  } else if (json.is_string()) {
    print_text(out, json.text());
  } else if (json.is_boolean()) {
    out += json.get<bool>() ? "true" : "false";
  } else if (const auto* number = std::get_if<double>(&json.value_)) {
    out += std::isfinite(*number) ? number_text(*number) : "null";
  } else if (json.is_number()) {
    out += json.is_int64() ? cat(json.get<int64_t>()) : cat(json.get<uint64_t>());
  } else {
    out += "null";
  }
}

Result<Json> parse_json(std::string_view text) { return Parser(text).run(); }

std::string print_json(const Json& json, int indent) {
  std::string out;
  print(out, json, indent, 0);
  return out;
}

}  // namespace epl
