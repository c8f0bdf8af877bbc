// Named constants of a node and of a kernel call: integers, numbers, texts, lists of these, an element type, a tensor.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/check.h"
#include "core/base/tensor.h"

namespace epl {

using Ints = std::vector<int64_t>;
using Doubles = std::vector<double>;
using Attribute = std::variant<bool, int64_t, double, std::string, DType, Ints, Doubles, Tensor>;

bool identical(const Attribute& a, const Attribute& b);
std::string attribute_text(const Attribute& value);
// Reads one attribute value from the start of `text` and removes it.
Result<Attribute> parse_attribute(std::string_view& text);

// A small map kept in the order of insertion, so that texts are stable.
class Attributes {
 public:
  struct Entry {
    std::string name;
    Attribute value;
  };
  Attributes() = default;
  Attributes(std::initializer_list<Entry> entries) : entries_(entries) {}

  const Attribute* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  void set(std::string_view name, Attribute value);
  void erase(std::string_view name);
  const std::vector<Entry>& entries() const { return entries_; }

  // Typed access. The attribute must be there with that type, which the verifier has checked: a mistake is a bug of
  // ours.
  bool flag(std::string_view name) const { return get<bool>(name); }
  int64_t integer(std::string_view name) const { return get<int64_t>(name); }
  double number(std::string_view name) const { return get<double>(name); }
  const std::string& text(std::string_view name) const { return get<std::string>(name); }
  DType dtype(std::string_view name) const { return get<DType>(name); }
  const Ints& ints(std::string_view name) const { return get<Ints>(name); }
  const Tensor& tensor(std::string_view name) const { return get<Tensor>(name); }
  int64_t integer_or(std::string_view name, int64_t fallback) const {
    const Attribute* a = find(name);
    return a ? std::get<int64_t>(*a) : fallback;
  }

 private:
  template <class T> const T& get(std::string_view name) const {
    const Attribute* attribute = find(name);
    EPL_CHECK(attribute != nullptr, "no attribute ", name);
    const T* value = std::get_if<T>(attribute);
    EPL_CHECK(value != nullptr, "attribute ", name, " has another type");
    return *value;
  }
  std::vector<Entry> entries_;
};

}  // namespace epl
