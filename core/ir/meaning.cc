#include "core/ir/meaning.h"

#include <cstring>

#include "core/base/check.h"
#include "core/base/philox.h"

namespace epl {
namespace {

int64_t round_up(int64_t bytes) { return (bytes + 15) / 16 * 16; }

// How an operand that broadcasts is walked along the output's dimensions.
Shape broadcast_strides(const Shape& from, const Shape& to) {
  Shape strides(to.size(), 0);
  const Shape own = row_major_strides(from);
  const size_t added = to.size() - own.size();
  for (size_t d = 0; d < own.size(); ++d) strides[added + d] = from[d] == 1 ? 0 : own[d];
  return strides;
}

}  // namespace

Meaning::Meaning(const OpDef& op, const Attributes& attributes, const std::vector<const TensorType*>& inputs,
                 const std::vector<const TensorType*>& outputs, Units units)
    : op_(op), attributes_(attributes), units_(units) {
  for (const TensorType* type : inputs) input_types_.push_back(type ? *type : TensorType{});
  for (const TensorType* type : outputs) output_types_.push_back(*type);
  std::vector<const TensorType*> own_inputs, own_outputs;
  for (size_t i = 0; i < inputs.size(); ++i) own_inputs.push_back(inputs[i] ? &input_types_[i] : nullptr);
  for (const TensorType& type : output_types_) own_outputs.push_back(&type);
  query_ = std::make_unique<const OpQuery>(op_, attributes_, std::move(own_inputs), std::move(own_outputs));
}

Result<std::shared_ptr<const Meaning>> Meaning::make(const OpDef& op, const Attributes& attributes,
                                                     const std::vector<const TensorType*>& inputs,
                                                     const std::vector<const TensorType*>& outputs, Units units) {
  std::shared_ptr<Meaning> made(new Meaning(op, attributes, inputs, outputs, units));
  if (op.elementwise()) {
    made->prepare_elementwise();
  } else if (op.reference) {
    if (op.room) made->room_bytes_ = op.room(*made->query_, units);
  } else {
    EPL_TRY(made->prepare_body());
    return std::shared_ptr<const Meaning>(made);
  }
  made->room_bytes_ += Room::bytes<TensorView>(static_cast<int64_t>(inputs.size())) +
                       Room::bytes<TensorView>(static_cast<int64_t>(outputs.size()));
  for (const TensorType& type : made->output_types_) {  // nobody may want one of several
    if (outputs.size() > 1) made->room_bytes_ += Room::bytes<std::byte>(type.bytes());
  }
  return std::shared_ptr<const Meaning>(made);
}

void Meaning::run(const void* const* inputs, void* const* outputs, uint64_t seed, const LogicalElements& elements,
                  void* memory) const {
  Room room(memory, room_bytes_);
  if (!steps_.empty() || !body_results_.empty()) return run_body(room, inputs, outputs, seed);
  const auto in = room.take<TensorView>(static_cast<int64_t>(input_types_.size()));
  const auto out = room.take<TensorView>(static_cast<int64_t>(output_types_.size()));
  for (size_t i = 0; i < in.size(); ++i) in[i] = {&input_types_[i], const_cast<void*>(inputs[i])};
  for (size_t o = 0; o < out.size(); ++o) {
    const int64_t bytes = output_types_[o].bytes();
    void* data = outputs[o] || out.size() == 1 ? outputs[o] : room.take<std::byte>(bytes).data();
    if (data && bytes > 0) std::memset(data, 0, static_cast<size_t>(bytes));
    out[o] = {&output_types_[o], data};
  }
  if (op_.reference) return op_.reference(Reference(*query_, in, out, units_, seed, elements, room));
  if (unsigned_) return run_elementwise<uint64_t>(room, in, out);
  integral_ ? run_elementwise<int64_t>(room, in, out) : run_elementwise<double>(room, in, out);
}

void Meaning::prepare_elementwise() {
  expression_ = scalar_expression(*query_);
  integral_ = true;
  const Shape& shape = output_types_[0].shape;
  int64_t bytes = Room::bytes<int64_t>(static_cast<int64_t>(shape.size()));
  for (int i = 0; i < query_->inputs(); ++i) {
    integral_ &= !query_->has(i) || !is_float(query_->in(i).dtype);
    strides_.push_back(query_->has(i) ? broadcast_strides(query_->in(i).shape, shape) : Shape(shape.size(), 0));
  }
  for (const TensorType& type : output_types_) integral_ &= !is_float(type.dtype);
  for (const auto& instruction : expression_.code) {
    integral_ &= instruction.op != ScalarOp::cast || !is_float(instruction.type);
  }
  bool has_u64 = false, others = false;
  for (int i = 0; i < query_->inputs(); ++i) {
    if (!query_->has(i)) continue;
    has_u64 |= query_->in(i).dtype == DType::u64;
    others |= query_->in(i).dtype != DType::u64 && query_->in(i).dtype != DType::boolean;
  }
  for (const auto& instruction : expression_.code) {
    others |= instruction.op == ScalarOp::cast && instruction.type != DType::u64 && instruction.type != DType::boolean;
  }
  unsigned_ = integral_ && has_u64 && !others;
  for (size_t count : {input_types_.size(), input_types_.size(), output_types_.size(), expression_.code.size()}) {
    bytes += Room::bytes<double>(static_cast<int64_t>(count));
  }
  room_bytes_ = bytes;
}

template <class T>
void Meaning::run_elementwise(Room& room, std::span<const TensorView> in, std::span<const TensorView> out) const {
  const auto operands = static_cast<int64_t>(in.size());
  const Shape& shape = output_types_[0].shape;
  const auto index = room.take<int64_t>(static_cast<int64_t>(shape.size())), at = room.take<int64_t>(operands);
  const auto from = room.take<T>(operands), to = room.take<T>(static_cast<int64_t>(out.size()));
  const auto values = room.take<T>(static_cast<int64_t>(expression_.code.size()));
  const int64_t n = output_types_[0].elements();
  for (int64_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < in.size(); ++k) {
      if (!in[k].data()) continue;
      if constexpr (std::is_same_v<T, double>) {
        from[k] = in[k].get(at[k]);
      } else {
        from[k] = static_cast<T>(in[k].get_int(at[k]));
      }
    }
    expression_.evaluate(from.data(), to.data(), values.data());
    for (size_t o = 0; o < out.size(); ++o) {
      if constexpr (std::is_same_v<T, double>) {
        out[o].set(i, to[o]);
      } else {
        out[o].set_int(i, static_cast<int64_t>(to[o]));
      }
    }
    for (size_t d = shape.size(); d-- > 0;) {
      for (size_t k = 0; k < in.size(); ++k) at[k] += strides_[k][d];
      if (++index[d] < shape[d]) break;
      for (size_t k = 0; k < in.size(); ++k) at[k] -= strides_[k][d] * shape[d];
      index[d] = 0;
    }
  }
}

Status Meaning::prepare_body() {
  Builder builder(body_);
  std::vector<Var> leaves;
  for (int i = 0; i < query_->inputs(); ++i) {
    leaves.push_back(query_->has(i) ? builder.var(body_.add_input("x", query_->in(i))) : Var());
  }
  std::vector<int> operands(static_cast<size_t>(body_.value_count()), -1);
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i]) operands[static_cast<size_t>(leaves[i].value().index)] = static_cast<int>(i);
  }
  const std::vector<Var> results = expand_body(builder, op_, attributes_, leaves);
  EPL_TRY(builder.status());
  for (const Var& result : results) body_results_.push_back(result ? result.value() : Value{});
  operands.resize(static_cast<size_t>(body_.value_count()), -1);
  input_of_ = std::move(operands);
  offsets_.assign(static_cast<size_t>(body_.value_count()), 0);
  for (int v = 0; v < body_.value_count(); ++v) {
    const ValueInfo& info = body_.value(Value{v});
    if (info.kind != ValueKind::result) continue;
    offsets_[static_cast<size_t>(v)] = values_bytes_;
    values_bytes_ += round_up(info.type.bytes());
  }
  int64_t largest = 0;
  for (const Node& node : body_.nodes()) {
    std::vector<const TensorType*> inputs, outputs;
    for (Value v : node.inputs) inputs.push_back(v ? &body_.type(v) : nullptr);
    for (Value v : node.outputs) outputs.push_back(&body_.type(v));
    EPL_ASSIGN(auto meaning, Meaning::make(*node.op, node.attributes, inputs, outputs, node.units));
    largest = std::max(largest, meaning->room_bytes());
    max_operands_ = std::max(max_operands_, node.inputs.size() + node.outputs.size());
    steps_.push_back({std::move(meaning), node.key_name(), node.inputs, node.outputs});
  }
  room_bytes_ = Room::bytes<void*>(static_cast<int64_t>(max_operands_)) + values_bytes_ + round_up(largest);
  return {};
}

void Meaning::run_body(Room& room, const void* const* inputs, void* const* outputs, uint64_t seed) const {
  const auto pointers = room.take<void*>(static_cast<int64_t>(max_operands_));
  const auto values = room.take<std::byte>(values_bytes_);
  const auto rest =
      room.take<std::byte>(room_bytes_ - Room::bytes<void*>(static_cast<int64_t>(max_operands_)) - values_bytes_);
  const auto at = [&](Value v) -> void* {
    if (!v) return nullptr;
    const ValueInfo& info = body_.value(v);
    if (info.kind == ValueKind::result) return values.data() + offsets_[static_cast<size_t>(v.index)];
    const int operand = input_of_[static_cast<size_t>(v.index)];
    return const_cast<void*>(operand < 0 ? info.data.data() : inputs[operand]);
  };
  for (const Step& step : steps_) {
    for (size_t i = 0; i < step.inputs.size(); ++i) pointers[i] = at(step.inputs[i]);
    void** results = pointers.data() + step.inputs.size();
    for (size_t o = 0; o < step.outputs.size(); ++o) results[o] = at(step.outputs[o]);
    step.meaning->run(pointers.data(), results, random_key(seed, 0, step.key), 0, rest.data());
  }
  for (size_t o = 0; o < output_types_.size(); ++o) {
    const int64_t bytes = output_types_[o].bytes();
    if (outputs[o] && body_results_[o] && bytes > 0)
      std::memcpy(outputs[o], at(body_results_[o]), static_cast<size_t>(bytes));
  }
}

}  // namespace epl
