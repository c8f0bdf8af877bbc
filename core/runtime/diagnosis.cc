#include "core/runtime/diagnosis.h"

#include <algorithm>
#include <cmath>

#include "core/compile/input_bounds.h"
#include "core/ir/op.h"
#include "core/program/transfer.h"

namespace epl {
namespace {

// As a result of this type holds it.
double held(DType type, double value) {
  std::byte bytes[8];
  store_double(type, bytes, 0, value);
  return load_double(type, bytes, 0);
}

// Kernels compute regions of 16-bit numbers in float32.
double computed(DType region, double value) { return region == DType::f64 ? value : held(DType::f32, value); }

// Which element of an operand stands at an element of the region, to whose shape it broadcasts.
int64_t broadcast_element(const Shape& region, const Shape& operand, int64_t element) {
  int64_t at = 0, stride = 1;
  for (size_t d = region.size(), o = operand.size(); d-- > 0;) {
    const int64_t index = element % region[d];
    element /= region[d];
    if (o == 0) continue;
    if (operand[--o] != 1) at += index * stride;
    stride *= operand[o];
  }
  return at;
}

}  // namespace

Status Diagnosis::look(const TensorType& type, const std::byte* from, Operand& out) {
  out.present = true;
  out.type = type;
  out.data.resize(static_cast<size_t>(type.bytes()));
  stream_.download(out.data.data(), from, type.bytes());
  EPL_TRY(stream_.synchronize());
  for (int64_t i = 0; is_float(type.dtype) && i < type.elements(); ++i) {
    const double value = load_double(type.dtype, out.data.data(), i);
    out.nan = out.nan || std::isnan(value);
    out.infinite = out.infinite || std::isinf(value);
  }
  return {};
}

int Diagnosis::mark_of(const std::byte* from, int64_t bytes) const {
  int found = finite;
  auto at = marks_.upper_bound(from);
  if (at != marks_.begin() && std::prev(at)->second.end > from) --at;
  for (; at != marks_.end() && at->first < from + bytes; ++at) {
    const int with = at->second.with;
    if (found == finite || (with >= 0 && (found < 0 || with < found))) found = with;
  }
  return found;
}

void Diagnosis::mark(const std::byte* from, int64_t bytes, int with) {
  const std::byte* const end = from + bytes;
  auto at = marks_.upper_bound(from);
  if (at != marks_.begin() && std::prev(at)->second.end > from) --at;
  while (at != marks_.end() && at->first < end) {  // what lies here is written over
    const auto [begins, old] = *at;
    at = marks_.erase(at);
    if (begins < from) marks_[begins] = {from, old.with};
    if (old.end > end) marks_[end] = old;
  }
  if (with != finite) marks_[from] = {end, with};
}

Status Diagnosis::before(const Instruction& in, const LookedAt& values) {
  operands_.assign(in.inputs.size(), {});
  for (size_t i = 0; i < in.inputs.size(); ++i) {
    if (!in.query->has(static_cast<int>(i)) || values.inputs[i] == nullptr) continue;
    const TensorType& type = in.query->in(static_cast<int>(i));
    Operand& operand = operands_[i];
    EPL_TRY(look(type, values.inputs[i], operand));
    if (!operand.nan && !operand.infinite) continue;
    const int from = mark_of(values.inputs[i], type.bytes());
    operand.from = from == finite ? given : from;
    if (in.transfer && is_strong(operand.from)) births_[static_cast<size_t>(operand.from)].left = true;
    if (in.transfer && is_strong(operand.from)) carried_.try_emplace(&in, operand.from);
  }
  const OpDef* op = op_table().find(in.query->op);
  if (op == nullptr || !op->takes_any_operands) return {};
  const auto refused = static_cast<size_t>(refused_);
  if (refused < operands_.size() && target_ == finite) target_ = operands_[refused].from;
  return {};
}

Status Diagnosis::after(const Instruction& in, const LookedAt& values) {
  ++looked_at_;
  if (values.empty) return {};
  for (size_t o = 0; o < in.outputs.size(); ++o) {
    const TensorType& type = in.query->out(static_cast<int>(o));
    const std::byte* at = values.outputs[o];
    if (at == nullptr) continue;
    Operand result;
    if (is_float(type.dtype)) EPL_TRY(look(type, at, result));
    const bool bad = result.nan || result.infinite;
    mark(at, type.bytes(), bad ? origin_of(in, result, o, mark_of(at, type.bytes())) : finite);
  }
  return {};
}

// Where what is not finite in a result came from. `before`: what lay there, to which a transfer may have added.
int Diagnosis::origin_of(const Instruction& in, const Operand& result, size_t output, int before) {
  int born = finite, other = finite, weak = finite;
  bool any = false, nan = false;
  for (const Operand& operand : operands_) {
    if (!operand.nan && !operand.infinite) continue;
    any = true;
    nan = nan || operand.nan;
    if (is_strong(operand.from)) born = born < 0 ? operand.from : std::min(born, operand.from);
    if (operand.from == elsewhere) other = elsewhere;
    if (operand.from >= 0) weak = weak < 0 ? operand.from : std::min(weak, operand.from);
  }
  if (in.transfer && born < 0 && is_strong(before)) born = before;
  if (const auto carried = carried_.find(&in); born < 0 && carried != carried_.end()) born = carried->second;
  if (born >= 0) return born;
  if (other == elsewhere) return elsewhere;
  if (in.transfer) return !any ? elsewhere : weak >= 0 ? weak : given;
  if (!any || (result.nan && !nan)) return bear(in, result, output, false);
  return weak >= 0 ? weak : bear(in, result, output, true);
}

int Diagnosis::bear(const Instruction& in, const Operand& result, size_t output, bool weak) {
  const DoneNode& node = node_of(in, output);
  const std::string named = cat("node ", node.name, " (", node.op, ")",
                                node.source.empty() || node.source == node.name ? "" : cat(", made for ", node.source));
  births_.push_back({.order = looked_at_,
                     .weak = weak,
                     .node = node.name,
                     .text = weak ? cat("an infinity that is given goes into ", named)
                                  : cat(result.nan ? "nan" : "an infinity", " comes first out of ", named,
                                        result.nan ? index_out_of_range(in) : "")});
  return static_cast<int>(births_.size()) - 1;
}

// ": index 12 is out of range, as it is not an index into 10 rows; ...", of an op with indices; empty
// where all its indices are in range.
std::string Diagnosis::index_out_of_range(const Instruction& in) const {
  const OpDef* op = op_table().find(in.query->op);
  const IndexRow* row = op != nullptr ? index_row(*op) : nullptr;
  if (row == nullptr) return "";
  std::vector<const TensorType*> inputs, outputs;
  for (int i = 0; i < in.query->inputs(); ++i) inputs.push_back(in.query->has(i) ? &in.query->in(i) : nullptr);
  for (int o = 0; o < in.query->outputs(); ++o)
    outputs.push_back(in.query->has_output(o) ? &in.query->out(o) : nullptr);
  const InputBound bound{.range = row->range(OpQuery(*op, in.query->attributes, inputs, outputs))};
  const Operand& indices = operands_[static_cast<size_t>(bound.range.input)];
  for (int64_t i = 0; indices.present && i < indices.type.elements(); ++i) {
    const int64_t index = load_int(indices.type.dtype, indices.data.data(), i);
    if (!bound.holds(index)) return cat(": an index is out of range, as its operand ", bound_text(bound, cat(index)));
  }
  return "";
}

// The node of a region whose result is the first that is not finite.
const DoneNode& Diagnosis::node_of(const Instruction& in, size_t output) const {
  const Attribute* text = in.query->attributes.find("expression");
  if (in.nodes.size() == 1 || text == nullptr) return in.nodes.front();
  const auto parsed = ScalarExpr::parse(std::get<std::string>(*text));
  if (!parsed.ok() || in.nodes.size() < parsed->code.size()) return in.nodes.front();
  const size_t count = parsed->code.size(), results = parsed->outputs.size();
  Shape shape;
  DType real = DType::f32;
  for (const Operand& operand : operands_) {
    if (!operand.present) return in.nodes.front();
    if (auto joined = broadcast_shapes(shape, operand.type.shape); joined.ok()) shape = *joined;
    if (is_float(operand.type.dtype)) real = operand.type.dtype;
  }
  constexpr size_t fine = SIZE_MAX;  // of what is finite, or was given
  const size_t sums = in.nodes.size() - count, stored = results - std::min(sums, results);
  const auto result = static_cast<size_t>(parsed->outputs[std::min(output, results - 1)]);
  std::vector<double> values(count);
  std::vector<size_t> began(count);  // the instruction in which what is not finite began
  for (int64_t element = 0; element < element_count(shape); ++element) {
    for (size_t i = 0; i < count; ++i) {
      const ScalarExpr::Instruction& x = parsed->code[i];
      const auto value = [&](int k) { return k < 0 ? 0.0 : values[static_cast<size_t>(k)]; };
      began[i] = fine;
      if (x.op == ScalarOp::input) {
        const Operand& operand = operands_[static_cast<size_t>(x.a)];
        values[i] =
            load_double(operand.type.dtype, operand.data.data(), broadcast_element(shape, operand.type.shape, element));
        continue;
      }
      values[i] = x.op == ScalarOp::constant ? x.value
                  : x.op == ScalarOp::cast   ? held(x.type, value(x.a))
                                           : computed(real, evaluate_scalar(x.op, value(x.a), value(x.b), value(x.c)));
      if (x.op == ScalarOp::constant || std::isfinite(values[i])) continue;
      for (int k : {x.a, x.b, x.c})
        if (k >= 0) began[i] = std::min(began[i], began[static_cast<size_t>(k)]);
      if (began[i] == fine) began[i] = i;
    }
    if (began[result] != fine) return in.nodes[began[result]];
    // What is stored is rounded, as a cast is inside.
    if (output < stored && !std::isfinite(held(real, values[result]))) return in.nodes[result];
  }
  const size_t sum = count + output - std::min(output, stored);
  return output >= stored && sum < in.nodes.size() ? in.nodes[sum] : in.nodes[result];
}

Executor::Origin Diagnosis::origin() const {
  const auto told = [](const Birth& birth, bool traced) {
    return Executor::Origin{.order = birth.order, .traced = traced, .node = birth.node, .text = birth.text};
  };
  if (target_ >= 0) return told(births_[static_cast<size_t>(target_)], true);
  for (const Birth& birth : births_)
    if (birth.left) return told(birth, false);
  return {};
}

}  // namespace epl
