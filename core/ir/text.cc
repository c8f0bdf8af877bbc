#include "core/ir/text.h"

#include <charconv>

#include "core/base/shown.h"

namespace epl {
namespace {
bool name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '/' || c == '\'' || c == '-' || c == ':' || c == '$';
}
}  // namespace

std::string name_text(std::string_view name) {
  bool bare = !name.empty() && name != "_" && name.back() != ':' && name.front() != '-';
  for (char c : name) bare = bare && name_char(c);
  // A colon inside would read as the start of a type when a space follows; names with "::" are common and unambiguous.
  return bare ? std::string(name) : quoted(name);
}

std::string attributes_text(const Attributes& attributes) {
  if (attributes.entries().empty()) return "";
  std::string out = " {";
  bool first = true;
  for (const Attributes::Entry& entry : attributes.entries()) {
    out += cat(first ? "" : ", ", entry.name, "=", attribute_text(entry.value));
    first = false;
  }
  return out + "}";
}

bool TextReader::next_line() {
  while (!rest_.empty()) {
    size_t end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    ++number_;
    full_line_ = line_;
    skip();
    if (!line_.empty()) return true;
  }
  return false;
}

void TextReader::skip() {
  while (!line_.empty() && (line_[0] == ' ' || line_[0] == '\r')) line_.remove_prefix(1);
}

bool TextReader::take(std::string_view token) {
  skip();
  if (!line_.starts_with(token)) return false;
  line_.remove_prefix(token.size());
  return true;
}

bool TextReader::name(std::string& out) {
  skip();
  if (line_.starts_with('"')) return parse_quoted(line_, out);
  size_t length = 0;
  while (length < line_.size() && name_char(line_[length])) ++length;
  // The colon that ends a name before its type is not part of it.
  while (length > 0 && line_[length - 1] == ':') --length;
  if (length == 0) return false;
  out = line_.substr(0, length);
  line_.remove_prefix(length);
  return true;
}

bool TextReader::integer(int64_t& out) {
  skip();
  auto [end, failure] = std::from_chars(line_.data(), line_.data() + line_.size(), out);
  if (failure != std::errc{}) return false;
  line_.remove_prefix(end - line_.data());
  return true;
}

bool TextReader::type(TensorType& out) {
  skip();
  return parse_tensor_type(line_, out);
}

bool TextReader::at_end() {
  skip();
  return line_.empty();
}

Result<Attributes> TextReader::attributes() {
  Attributes attributes;
  if (!take("{")) return attributes;
  while (!take("}")) {
    if (!attributes.entries().empty() && !take(",")) return fail("expected , or } in attributes");
    std::string name;
    if (!this->name(name) || !take("=")) return fail("expected name=value");
    auto value = parse_attribute(line_);
    if (!value.ok()) return fail(value.status().message());
    attributes.set(name, *std::move(value));
  }
  return attributes;
}

Status TextReader::fail(std::string_view what) const {
  return Status(Code::invalid_argument, cat("line ", number_, ": ", what, " in ", shown(full_line_, 120)),
                cat("line ", number_));
}

}  // namespace epl
