#include "core/base/attributes.h"

#include <cctype>
#include <cstdlib>

#include "core/base/shown.h"

namespace epl {
namespace {

void skip_space(std::string_view& text) {
  while (!text.empty() && text[0] == ' ') text.remove_prefix(1);
}

bool take(std::string_view& text, std::string_view token) {
  skip_space(text);
  if (!text.starts_with(token)) return false;
  text.remove_prefix(token.size());
  return true;
}

// A number: an integer, or one with a point, an exponent, inf or nan.
bool parse_number(std::string_view& text, bool& integral, int64_t& i, double& d) {
  skip_space(text);
  size_t length = 0;
  while (length < text.size() && (std::isalnum(static_cast<unsigned char>(text[length])) || text[length] == '-' ||
                                  text[length] == '+' || text[length] == '.')) {
    ++length;
  }
  std::string_view token = text.substr(0, length);
  auto integer = std::from_chars(token.data(), token.data() + token.size(), i);
  integral = integer.ec == std::errc{} && integer.ptr == token.data() + token.size();
  if (!integral) {
    auto real = std::from_chars(token.data(), token.data() + token.size(), d);
    if (real.ec != std::errc{} || real.ptr != token.data() + token.size()) return false;
  }
  text.remove_prefix(length);
  return true;
}

}  // namespace

const Attribute* Attributes::find(std::string_view name) const {
  for (const Entry& entry : entries_) {
    if (entry.name == name) return &entry.value;
  }
  return nullptr;
}

void Attributes::set(std::string_view name, Attribute value) {
  for (Entry& entry : entries_) {
    if (entry.name == name) {
      entry.value = std::move(value);
      return;
    }
  }
  entries_.push_back({std::string(name), std::move(value)});
}

void Attributes::erase(std::string_view name) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.name == name; });
}

bool identical(const Attribute& a, const Attribute& b) {
  if (a.index() != b.index()) return false;
  if (auto* t = std::get_if<Tensor>(&a)) return identical(*t, std::get<Tensor>(b));
  return attribute_text(a) == attribute_text(b);
}

// Lists of numbers are written [1.0,2.0]; an empty one keeps its type as `doubles[]`.
std::string attribute_text(const Attribute& value) {
  struct Visitor {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return cat(v); }
    std::string operator()(double v) const { return number_text(v); }
    std::string operator()(const std::string& v) const { return quoted(v); }
    std::string operator()(DType v) const { return cat("@", dtype_name(v)); }
    std::string operator()(const Ints& v) const { return cat(v); }
    std::string operator()(const Doubles& v) const { return v.empty() ? "doubles[]" : cat(v); }
    std::string operator()(const Tensor& v) const {
      std::string out = cat(v.type().text(), "(");
      for (int64_t i = 0; i < v.elements(); ++i) {
        if (i) out += ",";
        out += is_float(v.dtype()) ? number_text(v.get(i)) : cat(v.get_int(i));
      }
      return out + ")";
    }
  };
  return std::visit(Visitor{}, value);
}

Result<Attribute> parse_attribute(std::string_view& text) {
  skip_space(text);
  if (take(text, "true")) return Attribute(true);
  if (take(text, "false")) return Attribute(false);
  if (text.starts_with('"')) {
    std::string s;
    if (!parse_quoted(text, s)) return invalid("unterminated text in an attribute");
    return Attribute(std::move(s));
  }
  if (take(text, "@")) {
    size_t length = 0;
    while (length < text.size() && std::isalnum(static_cast<unsigned char>(text[length]))) ++length;
    auto type = parse_dtype(text.substr(0, length));
    if (!type) return invalid("unknown element type ", text.substr(0, length));
    text.remove_prefix(length);
    return Attribute(*type);
  }
  if (take(text, "doubles[]")) return Attribute(Doubles{});
  bool integral;
  int64_t i;
  double d;
  if (take(text, "[")) {
    Ints ints;
    Doubles doubles;
    while (!take(text, "]")) {
      if (!ints.empty() || !doubles.empty()) {
        if (!take(text, ",")) return invalid("expected , or ] in a list");
      }
      if (!parse_number(text, integral, i, d)) return invalid("expected a number in a list");
      if (integral) {
        ints.push_back(i);
      } else {
        doubles.push_back(d);
      }
      if (!ints.empty() && !doubles.empty()) return invalid("a list mixes integers and numbers with a point");
    }
    if (!doubles.empty()) return Attribute(std::move(doubles));
    return Attribute(std::move(ints));
  }
  TensorType type;
  if (std::string_view rest = text; parse_tensor_type(rest, type) && rest.starts_with("(")) {
    rest.remove_prefix(1);
    if (type.elements() > static_cast<int64_t>(rest.size())) return invalid("a tensor whose elements are not there");
    Tensor tensor(type);
    for (int64_t k = 0; k < tensor.elements(); ++k) {
      if (k && !take(rest, ",")) return invalid("expected , in a tensor");
      if (!parse_number(rest, integral, i, d)) return invalid("expected a number in a tensor");
      if (is_float(type.dtype)) {
        tensor.set(k, integral ? static_cast<double>(i) : d);
      } else {
        tensor.set_int(k, integral ? i : static_cast<int64_t>(d));
      }
    }
    if (!take(rest, ")")) return invalid("expected ) after a tensor");
    text = rest;
    return Attribute(std::move(tensor));
  }
  if (!parse_number(text, integral, i, d)) return invalid("expected an attribute value at ", shown(text, 20));
  return integral ? Attribute(i) : Attribute(d);
}

}  // namespace epl
