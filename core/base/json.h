// JSON (RFC 8259), with keys in their order. It has a type of its own, because a library inside a host process needs
// more than a JSON library offers. Nesting is bounded when a text is read, so that no walk over a value overflows a
// small stack. A key that comes twice is an error. Destroying a value allocates nothing, so it cannot fail where memory
// is short.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/status.h"

namespace epl {

// How deep lists and objects of a text may nest.
inline constexpr int max_json_depth = 64;

class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;

  Json() = default;  // null
  Json(std::same_as<bool> auto value) : value_(value) {}
  template <std::integral T>
    requires(!std::same_as<T, bool> && !std::same_as<T, char>)
  Json(T value);
  Json(std::floating_point auto value);
  Json(const char* text);
  Json(std::string_view text);
  Json(std::string text);
  template <class T> Json(const std::vector<T>& items);
  template <class T> Json(const std::map<std::string, T>& items);
  // {{"name", "w"}, {"size", 4}} is an object, any other list is an array.
  Json(std::initializer_list<Json> items);
  static Json array(std::initializer_list<Json> items = {});
  static Json object();
  static Json of(Object members);  // whose keys differ

  bool is_null() const { return std::holds_alternative<Null>(value_); }
  bool is_boolean() const { return std::holds_alternative<bool>(value_); }
  bool is_int64() const { return std::holds_alternative<int64_t>(value_); }  // in its range
  bool is_number_integer() const { return is_int64() || std::holds_alternative<uint64_t>(value_); }
  bool is_number_unsigned() const { return is_number_integer() && !(is_int64() && std::get<int64_t>(value_) < 0); }
  bool is_number() const { return is_number_integer() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  bool is_structured() const { return is_array() || is_object(); }

  // The value as a bool, a number of any kind or a text. Another type is a mistake of ours: InternalError.
  template <class T> T get() const;
  const std::string& text() const;

  size_t size() const;  // of a list or an object; 0 for others
  bool empty() const { return size() == 0; }
  // Of a list; a null becomes a list.
  void push_back(Json item);
  const Json& operator[](size_t i) const { return array_items()[i]; }
  Json& operator[](size_t i) { return array_items()[i]; }
  Array::const_iterator begin() const { return array_items().begin(); }
  Array::const_iterator end() const { return array_items().end(); }
  // Of an object; a null becomes an object, and a missing key is added as null.
  Json& operator[](std::string_view key);
  const Json* find(std::string_view key) const;  // null where there is none, or no object
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const Json& at(std::string_view key) const;  // it must be there
  const Object& items() const;

  friend bool operator==(const Json& a, const Json& b);

 private:
  [[noreturn]] static void wrong_type();
  const Array& array_items() const;
  Array& array_items();
  // Not std::monostate. GCC 12's library assumes that a variant of trivial types, strings and vectors always has a
  // value. When copying one fails, it destroys a value that was never made. A type with a copy constructor of its own
  // avoids this.
  struct Null {
    Null() = default;
    Null(const Null&) noexcept {}
    Null& operator=(const Null&) noexcept { return *this; }
  };
  std::variant<Null, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;
  friend void print(std::string& out, const Json& json, int indent, int depth);
};

struct Json::Member {
  std::string key;
  Json value;
};

// Constructors, behind the member, of which a vector is destroyed where they fail.
template <std::integral T>
  requires(!std::same_as<T, bool> && !std::same_as<T, char>)
Json::Json(T value) {
  if constexpr (std::unsigned_integral<T>) {
    if (value > static_cast<uint64_t>(INT64_MAX)) {
      value_ = static_cast<uint64_t>(value);
      return;
    }
  }
  value_ = static_cast<int64_t>(value);
}
Json::Json(std::floating_point auto value) : value_(static_cast<double>(value)) {}
template <class T> Json::Json(const std::vector<T>& items) : value_(Array(items.begin(), items.end())) {}
inline Json::Json(const char* text) : value_(std::string(text)) {}
inline Json::Json(std::string_view text) : value_(std::string(text)) {}
inline Json::Json(std::string text) : value_(std::move(text)) {}

template <class T> Json::Json(const std::map<std::string, T>& items) : value_(Object()) {
  for (const auto& [key, value] : items) std::get<Object>(value_).push_back({key, Json(value)});
}

template <class T> T Json::get() const {
  if constexpr (std::same_as<T, std::string>) {
    return text();
  } else if constexpr (std::same_as<T, bool>) {
    if (is_boolean()) return std::get<bool>(value_);
  } else {
    if (is_int64()) return static_cast<T>(std::get<int64_t>(value_));
    if (const auto* large = std::get_if<uint64_t>(&value_)) return static_cast<T>(*large);
    if (const auto* real = std::get_if<double>(&value_)) return static_cast<T>(*real);
  }
  wrong_type();
}

// The error says at which byte, and why.
Result<Json> parse_json(std::string_view text);
// In one line, or indented by so many spaces. Bytes that are not UTF-8 become U+FFFD; infinities and NaN become null.
std::string print_json(const Json& json, int indent = -1);

}  // namespace epl
