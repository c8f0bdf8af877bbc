// Sequences of tensors, which live at import alone: exporters split a tensor into one and take its items out again.
#include <algorithm>

#include "core/ir/op.h"
#include "frontends/onnx/onnx_op.h"

namespace epl::onnx {
namespace {

constexpr int64_t max_items = 1 << 16;

// The position that input `at` names in a sequence of `size`; the last one when it is absent.
int64_t position(Import& i, int at, int64_t size, int64_t max) {
  if (!i.has(at)) return max;
  Ints given = i.ints(at);
  int64_t index = given.size() == 1 ? (given[0] < 0 ? given[0] + size : given[0]) : -1;
  if (index < 0 || index > max) {
    i.fail(cat("position ", given, " in a sequence of ", size));
    return 0;
  }
  return index;
}

}  // namespace

EPL_ONNX_OP(SplitToSequence) {
  return {.run = [](Import& i) {
    const TensorType type = i.type(0);
    const int64_t axis = i.axis("axis", 0, type.ndim());
    if (!i.b.status().ok()) return;
    const int64_t size = type.dim(static_cast<int>(axis));
    if (size > max_items)
      return i.fail(unsupported("a sequence of ", size, " items is too long; up to ", max_items, " are unrolled"));
    Ints parts = i.has(1) ? i.ints(1) : Ints(size, 1);
    const bool equal = i.has(1) && i.type(1).ndim() == 0;  // one number: parts of that size, the last one smaller
    if (equal) {
      const int64_t each = parts.empty() ? 0 : parts[0];
      if (each < 1 || each > std::max<int64_t>(size, 1)) return i.fail(cat("parts of size ", each));
      parts.assign((size + each - 1) / each, each);
      if (!parts.empty()) parts.back() = size - each * static_cast<int64_t>(parts.size() - 1);
    }
    Sequence sequence;
    int64_t at = 0;
    for (int64_t part : parts) {
      if (part < 0 || part > size - at)
        return i.fail(cat("parts ", parts, " do not make up dimension ", axis, " of ", type.text()));
      sequence.items.push_back({i.slot(0), axis, at, at + part, !i.has(1) && i.integer("keepdims", 1) == 0});
      at += part;
    }
    i.set_sequence(0, std::move(sequence));
  }};
}

EPL_ONNX_OP(SequenceConstruct) {
  return {.run = [](Import& i) {
    Sequence sequence;
    for (int k = 0; k < i.inputs(); ++k) sequence.items.push_back({i.slot(k)});
    i.set_sequence(0, std::move(sequence));
  }};
}

EPL_ONNX_OP(SequenceEmpty) {
  return {.run = [](Import& i) { i.set_sequence(0, {}); }};
}

EPL_ONNX_OP(SequenceAt) {
  return {.run = [](Import& i) {
    const Sequence* sequence = i.sequence(0);
    if (!sequence) return;
    const int64_t size = static_cast<int64_t>(sequence->items.size()), at = position(i, 1, size, size - 1);
    if (at >= 0 && at < size && i.b.status().ok()) i.set(0, i.take(sequence->items[at]));
  }};
}

EPL_ONNX_OP(SequenceLength) {
  return {.run = [](Import& i) {
    const Sequence* sequence = i.sequence(0);
    if (sequence)
      i.set_constant(0, epl::Tensor::from_ints({static_cast<int64_t>(sequence->items.size())}).reshaped({}));
  }};
}

EPL_ONNX_OP(SequenceInsert) {
  return {.run = [](Import& i) {
    const Sequence* sequence = i.sequence(0);
    if (!sequence) return;
    Sequence longer = *sequence;
    const int64_t size = static_cast<int64_t>(longer.items.size()), at = position(i, 2, size, size);
    longer.items.insert(longer.items.begin() + at, Sequence::Item{i.slot(1)});
    i.set_sequence(0, std::move(longer));
  }};
}

EPL_ONNX_OP(SequenceErase) {
  return {.run = [](Import& i) {
    const Sequence* sequence = i.sequence(0);
    if (!sequence) return;
    Sequence shorter = *sequence;
    const int64_t size = static_cast<int64_t>(shorter.items.size()), at = position(i, 1, size, size - 1);
    if (at < 0 || at >= size) return i.fail("the sequence is empty");
    shorter.items.erase(shorter.items.begin() + at);
    i.set_sequence(0, std::move(shorter));
  }};
}

EPL_ONNX_OP(ConcatFromSequence) {
  return {.run = [](Import& i) {
    const Sequence* sequence = i.sequence(0);
    if (!sequence) return;
    const bool stack = i.integer("new_axis", 0) != 0;
    std::vector<Var> parts;
    int64_t axis = 0;
    for (const Sequence::Item& item : sequence->items) {
      Var part = i.take(item);
      axis = i.axis("axis", 0, part.ndim() + (stack ? 1 : 0));
      if (!i.b.status().ok()) return;
      if (stack) {
        Shape shape = part.shape();
        shape.insert(shape.begin() + axis, 1);
        part = i.b.reshape(part, shape);
      }
      parts.push_back(part);
    }
    if (parts.empty()) return i.fail("the sequence is empty");
    i.set(0, i.b.emit("concat", parts, {{"axis", axis}}));
  }};
}

}  // namespace epl::onnx
