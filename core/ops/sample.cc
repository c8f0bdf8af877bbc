#include "core/ops/sample.h"

#include <algorithm>
#include <charconv>

#include "core/base/philox.h"
#include "core/base/shown.h"
#include "core/ir/text.h"

namespace epl {
namespace {

bool skip(std::string_view& text, std::string_view token) {
  while (!text.empty() && text[0] == ' ') text.remove_prefix(1);
  if (!text.starts_with(token)) return false;
  text.remove_prefix(token.size());
  return true;
}

bool number(std::string_view& text, double& out) {
  // "0..7" must not be read as the number "0." and ".7".
  const size_t dots = text.find("..");
  const std::string_view own = text.substr(0, std::min(dots == 0 ? text.npos : dots, text.find(')')));
  auto [end, code] = std::from_chars(own.data(), own.data() + own.size(), out);
  if (code != std::errc()) return false;
  text.remove_prefix(end - own.data());
  return true;
}

Status parse_operand(std::string_view& text, SampleOperand& operand) {
  while (!text.empty() && text[0] == ' ') text.remove_prefix(1);
  if (skip(text, "-")) {
    operand.present = false;
    return {};
  }
  if (!parse_tensor_type(text, operand.type)) return invalid("expected a type at ", shown(text, 200));
  if (!is_float(operand.type.dtype)) operand.low = 0, operand.high = operand.type.dtype == DType::boolean ? 2 : 4;
  if (!skip(text, "(")) return {};
  if (!number(text, operand.low) || !skip(text, "..") || !number(text, operand.high) || !skip(text, ")"))
    return invalid("expected (low..high) at ", shown(text, 200));
  return {};
}

}  // namespace

Result<Sample> parse_sample(const OpDef& op, std::string_view text) {
  Sample sample;
  const size_t brace = text.find('{');
  std::string_view operands = text.substr(0, brace);
  while (skip(operands, ""), !operands.empty()) {
    sample.operands.emplace_back();
    EPL_TRY(parse_operand(operands, sample.operands.back()).with_context(cat(op.name, " sample ", shown(text, 200))));
    if (!skip(operands, ",")) break;
  }
  if (!operands.empty() && operands.find_first_not_of(' ') != operands.npos)
    return invalid(op.name, " sample ", shown(text, 200), ": unread text ", shown(operands, 200));
  if (brace != text.npos) {
    const std::string line(text.substr(brace));
    TextReader reader(line);
    reader.next_line();
    EPL_ASSIGN(sample.attributes, reader.attributes());
  }
  EPL_TRY(complete_attributes(op, sample.attributes).with_context(cat(op.name, " sample ", shown(text, 200))));
  return sample;
}

std::vector<const TensorType*> Sample::types() const {
  std::vector<const TensorType*> types;
  for (const SampleOperand& operand : operands) types.push_back(operand.present ? &operand.type : nullptr);
  return types;
}

std::vector<Tensor> Sample::values(uint64_t seed) const {
  std::vector<Tensor> values;
  for (size_t k = 0; k < operands.size(); ++k) {
    const SampleOperand& operand = operands[k];
    values.push_back(operand.present ? Tensor(operand.type) : Tensor());
    if (!operand.present) continue;
    const uint64_t key = random_key(seed, k, "sample");
    for (int64_t i = 0; i < operand.type.elements(); ++i) {
      const PhiloxBlock bits = philox(key, static_cast<uint64_t>(i));
      const double uniform = (static_cast<double>(bits[0]) * 0x1p21 + static_cast<double>(bits[1] >> 11)) * 0x1p-53;
      const double value = operand.low + (operand.high - operand.low) * uniform;
      if (is_float(operand.type.dtype))
        values[k].set(i, value);
      else
        values[k].set_int(
            i, static_cast<int64_t>(operand.low) + static_cast<int64_t>(uniform * (operand.high - operand.low)));
    }
  }
  return values;
}

Sample Sample::with_floats(DType type) const {
  Sample copy = *this;
  const auto first = std::ranges::find_if(operands, [](const auto& one) { return is_float(one.type.dtype); });
  for (SampleOperand& operand : copy.operands)
    if (first != operands.end() && operand.type.dtype == first->type.dtype) operand.type.dtype = type;
  for (const Attributes::Entry& entry : attributes.entries())
    if (const DType* old = std::get_if<DType>(&entry.value); old && is_float(*old))
      copy.attributes.set(entry.name, type);
  return copy;
}

}  // namespace epl
