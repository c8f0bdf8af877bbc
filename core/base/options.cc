#include "core/base/options.h"

#include <algorithm>
#include <optional>

#include "core/base/suggestion.h"

namespace epl {
namespace {

// `given` as the type that `wanted` has, or nothing if it has another meaning.
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

}  // namespace

Result<Attributes> complete_options(const std::vector<AttributeSpec>& specs, const Attributes& given,
                                    std::string_view what) {
  std::vector<std::string> known;
  for (const AttributeSpec& spec : specs) known.push_back(spec.name);
  for (const Attributes::Entry& entry : given.entries()) {
    if (std::ranges::find(known, entry.name) != known.end()) continue;
    return invalid(what, " has no option ", entry.name, choices(entry.name, known));
  }
  Attributes complete;
  for (const AttributeSpec& spec : specs) {
    const Attribute* own = given.find(spec.name);
    if (!own) {
      if (spec.required) return invalid(what, " needs option ", spec.name);
      complete.set(spec.name, spec.value);
      continue;
    }
    std::optional<Attribute> value = converted(*own, spec.value);
    if (!value) {
      return invalid(what, ": option ", spec.name, " = ", attribute_text(*own), " has another type than ",
                     attribute_text(spec.value));
    }
    complete.set(spec.name, *std::move(value));
  }
  return complete;
}

}  // namespace epl
