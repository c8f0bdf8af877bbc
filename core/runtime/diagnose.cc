// Where the first NaN of a step comes from: the executor's part that looks at every result. It runs only after a step
// has been refused, so it may allocate, and reads everything through the host.
#include <cmath>
#include <optional>

#include "core/program/pieces.h"
#include "core/program/transfer.h"
#include "core/runtime/executor.h"

namespace epl {
namespace {

enum class Wanted : uint8_t { nan, infinity };

std::optional<int64_t> find(DType type, const void* data, int64_t elements, Wanted wanted) {
  for (int64_t i = 0; i < elements; ++i) {
    const double value = load_double(type, data, i);
    if (wanted == Wanted::nan ? std::isnan(value) : std::isinf(value)) return i;
  }
  return std::nullopt;
}

// "[3, 0]": the place of a row-major element.
std::string place(const Shape& shape, int64_t element) {
  Shape index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = element % shape[d];
    element /= shape[d];
  }
  return cat(index);
}

}  // namespace

// A NaN is worth more than an infinity, which a mask may hold on purpose; among equals the first counts.
void Executor::note_origin(bool nan, std::string node, std::string text) {
  if (origin_.order >= 0 && (origin_.nan || !nan)) return;
  origin_ = {.order = looked_at_, .nan = nan, .node = std::move(node), .text = std::move(text)};
}

void Executor::inspect_leaves() {
  origin_ = {};
  looked_at_ = 0;
  if (!device_.executes()) return;
  for (size_t i = 0; i < program_.inputs.size(); ++i) {
    const ProgramPort& port = program_.inputs[i];
    if (!is_float(port.global_type.dtype)) continue;
    if (auto at = find(port.global_type.dtype, request_->inputs[static_cast<size_t>(port.index)],
                       port.global_type.elements(), Wanted::nan)) {
      note_origin(true, port.name, cat("input ", port.name, " holds nan at ", place(port.global_type.shape, *at)));
      origin_.given = true;
      return;
    }
  }
  for (const StateSlot& slot : program_.state) {
    if (!is_float(slot.type.dtype) || !slot.sharding.dealt.is_at(program_.mesh, place_)) continue;
    seen_.resize(static_cast<size_t>(slot.local.bytes()));
    stream().download(seen_.data(), store_.data() + slot.offset, slot.local.bytes());
    if (!stream().synchronize().ok()) return;
    const auto at = find(slot.type.dtype, seen_.data(), slot.local.elements(), Wanted::nan);
    if (!at) continue;
    const int64_t element = global_element(slot.type, slot.sharding, program_.mesh, place_, *at);
    return note_origin(true, slot.name, cat(slot.name, " itself holds nan at ", place(slot.type.shape, element)));
  }
}

void Executor::inspect(const Instruction& in, int64_t micro_batch) {
  ++looked_at_;
  if (!device_.executes() || origin_.nan) return;
  if (in.transfer && in.transfer->at_last_turn && micro_batch + 1 != program_.micro_batches())
    return;  // nothing is there yet
  for (size_t o = 0; o < in.outputs.size(); ++o) {
    const TensorType& type = in.query->out(static_cast<int>(o));
    const void* from = at(in.outputs[o], micro_batch);
    if (!from || !is_float(type.dtype)) continue;
    seen_.resize(static_cast<size_t>(type.bytes()));
    stream().download(seen_.data(), from, type.bytes());
    if (!stream().synchronize().ok()) return;
    for (Wanted wanted : {Wanted::nan, Wanted::infinity}) {
      if (!find(type.dtype, seen_.data(), type.elements(), wanted)) continue;
      const bool nan = wanted == Wanted::nan;
      note_origin(nan, in.name,
                  cat(nan ? "nan" : "an infinity", " comes first out of node ", in.name, " (", in.query->op, ")"));
    }
  }
}

}  // namespace epl
