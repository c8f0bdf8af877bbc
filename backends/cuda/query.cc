#include "backends/cuda/query.h"

#include <charconv>
#include <string>

#include "core/base/check.h"

namespace epl::cuda {
namespace {

TensorType type_of(const epl_pack_type& type) {
  if (type.dtype == 0) return {};
  return {static_cast<DType>(type.dtype - 1), Shape(type.dims, type.dims + type.ndim)};
}

std::vector<Operand> operands_of(const epl_pack_type* types, int32_t count) {
  std::vector<Operand> operands;
  for (int32_t i = 0; i < count; ++i) operands.push_back({.present = types[i].dtype != 0, .type = type_of(types[i])});
  return operands;
}

Attribute attribute_of(const epl_pack_attribute& given) {
  Attribute made{.name = given.name, .kind = static_cast<Attribute::Kind>(given.kind - EPL_PACK_FLAG)};
  if (given.values != nullptr) made.integers.assign(given.values, given.values + given.count);
  if (given.numbers != nullptr) made.numbers.assign(given.numbers, given.numbers + given.count);
  if (given.text != nullptr) made.text = given.text;
  if (given.kind == EPL_PACK_DTYPE) made.integers[0] -= 1;
  if (given.kind == EPL_PACK_TENSOR) made.type = type_of(given.type);
  return made;
}
static_assert(static_cast<int>(Attribute::Kind::tensor) == EPL_PACK_TENSOR - EPL_PACK_FLAG);
static_assert(static_cast<int>(Bits::exact) == EPL_PACK_BITS_EXACT &&
              static_cast<int>(Bits::data) == EPL_PACK_BITS_DATA && static_cast<int>(Bits::run) == EPL_PACK_BITS_RUN);

// Reads the text form of core/ir/scalar.h.
class BodyReader {
 public:
  explicit BodyReader(std::string_view text) : rest_(text) {}

  Result<Body> read() {
    for (;;) {
      space();
      if (take("->")) break;
      if (!body_.code.empty() && !take(";")) return wrong();
      space();
      if (!instruction()) return wrong();
    }
    for (;;) {
      space();
      if (rest_.empty()) break;
      if (!body_.outputs.empty()) {
        if (!take(",")) return wrong();
        space();
      }
      int value = 0;
      if (!result(value)) return wrong();
      body_.outputs.push_back(value);
    }
    return std::move(body_);
  }

 private:
  Status wrong() const { return invalid("an expression that cannot be read at \"", excerpt(rest_, 40), "\""); }
  void space() {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
  }
  bool take(std::string_view what) {
    if (!rest_.starts_with(what)) return false;
    rest_.remove_prefix(what.size());
    return true;
  }
  template <class T> bool number(T& value) {
    const auto [end, code] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (code != std::errc()) return false;
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return true;
  }
  bool result(int& value) {
    return take("%") && number(value) && value >= 0 && static_cast<size_t>(value) < body_.code.size();
  }
  std::string_view word() {
    size_t length = 0;
    while (length < rest_.size() && (rest_[length] == '_' || (rest_[length] >= 'a' && rest_[length] <= 'z') ||
                                     (rest_[length] >= '0' && rest_[length] <= '9')))
      ++length;
    const std::string_view found = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return found;
  }
  bool instruction() {
    Scalar made;
    if (rest_.size() > 1 && rest_[0] == 'x' && rest_[1] >= '0' && rest_[1] <= '9') {
      rest_.remove_prefix(1);
      made.op = "input";
      if (!number(made.a)) return false;
    } else if (const std::string_view before = rest_; number(made.value)) {
      made.op = "constant";
    } else {
      rest_ = before;
      made.op = word();
      if (made.op.empty() || !arguments(made)) return false;
    }
    body_.code.push_back(std::move(made));
    return true;
  }
  bool arguments(Scalar& made) {
    if (!take("(")) return false;
    int* const operands[] = {&made.a, &made.b, &made.c};
    for (size_t i = 0; i < 3; ++i) {
      space();
      if (i == 1 && made.op == "cast") {
        const std::optional<DType> type = parse_dtype(word());
        if (!type) return false;
        made.type = *type;
      } else if (!result(*operands[i])) {
        return false;
      }
      space();
      if (take(")")) return true;
      if (!take(",")) return false;
    }
    return false;
  }

  std::string_view rest_;
  Body body_;
};

const Attribute& found(const Query& query, std::string_view name) {
  const Attribute* attribute = query.find(name);
  EPL_CHECK(attribute != nullptr, "node ", query.node, " has no attribute ", name);
  return *attribute;
}

}  // namespace

Result<Body> parse_body(std::string_view expression) { return BodyReader(expression).read(); }

const Attribute* Query::find(std::string_view name) const {
  for (const Attribute& attribute : attributes) {
    if (attribute.name == name) return &attribute;
  }
  return nullptr;
}
bool Query::flag(std::string_view name) const { return found(*this, name).integers.at(0) != 0; }
int64_t Query::integer(std::string_view name) const { return found(*this, name).integers.at(0); }
double Query::number(std::string_view name) const { return found(*this, name).numbers.at(0); }
const std::string& Query::text(std::string_view name) const { return found(*this, name).text; }
DType Query::dtype(std::string_view name) const { return static_cast<DType>(integer(name)); }
const std::vector<int64_t>& Query::integers(std::string_view name) const { return found(*this, name).integers; }
const std::vector<double>& Query::numbers(std::string_view name) const { return found(*this, name).numbers; }
int Query::axis(std::string_view name) const {
  const int64_t given = integer(name);
  return static_cast<int>(given < 0 ? given + in(0).ndim() : given);
}

std::vector<Kernel::Alias> equal_aliases(const Query& query) {
  std::vector<Kernel::Alias> equal;
  for (size_t i = 0; i < query.inputs.size(); ++i) {
    for (size_t o = 0; o < query.outputs.size(); ++o) {
      if (query.inputs[i].type == query.outputs[o].type) equal.push_back({static_cast<int>(i), static_cast<int>(o)});
    }
  }
  return equal;
}

Result<Query> query_of(const epl_pack_query& given) {
  if (given.struct_size < sizeof given) return unsupported("a query of an older interface");
  Query made;
  made.op = given.op;
  made.node = given.node;
  made.key = given.key;
  made.inputs = operands_of(given.inputs, given.input_count);
  made.outputs = operands_of(given.outputs, given.output_count);
  for (int32_t i = 0; i < given.attribute_count; ++i) made.attributes.push_back(attribute_of(given.attributes[i]));
  made.units = Units(given.units, given.units_outer);
  made.splits_keep_bits = given.splits_keep_bits != 0;
  made.bits = static_cast<Bits>(given.level);
  return made;
}

}  // namespace epl::cuda
