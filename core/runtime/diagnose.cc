// Where the first NaN of a step comes from: the executor's part that looks at every result, and the session's, which
// compares what its ranks have found. It runs only after a step has been refused, so it may allocate, and reads
// everything through the host.
#include <cmath>
#include <optional>
#include <sstream>

#include "core/program/pieces.h"
#include "core/program/transfer.h"
#include "core/runtime/session_rank.h"

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

namespace {

// The first number that is not finite, and the rank that has met it; -1: the caller gave it.
struct FirstOfRank {
  Executor::Origin origin;
  int rank = -1;
};

std::string told(const FirstOfRank& first) {
  const Executor::Origin& origin = first.origin;
  return cat(origin.order, " ", int{origin.nan}, " ", first.rank, " ", origin.node.size(), " ", origin.node,
             origin.text);
}

// "ORDER NAN RANK LENGTH NODETEXT", as a process tells it.
FirstOfRank read_first(const std::string& said) {
  FirstOfRank out;
  std::istringstream in(said);
  int nan = 0;
  size_t length = 0;
  in >> out.origin.order >> nan >> out.rank >> length;
  in.ignore(1);
  out.origin.nan = nan != 0;
  const auto at = std::min(said.size(), static_cast<size_t>(std::max<std::streamoff>(in.tellg(), 0)));
  out.origin.node = said.substr(at, length);
  out.origin.text = said.substr(std::min(said.size(), at + length));
  return out;
}

}  // namespace

// Why a step was skipped. Nothing has changed, so the same step again meets the same NaN and can look for where it
// begins.
Status Session::reason(const Entry& entry, std::span<const Tensor> inputs, RunRequest request, int64_t verdict) {
  const size_t index = index_of(entry);
  const double loss = next_results_[index][static_cast<size_t>(entry.loss_output)].get(0);
  const std::string& name = plan_->trained()[static_cast<size_t>(std::max<int64_t>(verdict, 1) - 1)];
  std::string all = name;  // that stand in its place, of which each rank has looked at its own
  for (size_t i = 0; i < entry.plan.value_leader.size(); ++i) {
    const Value v{static_cast<int>(i)}, leader = entry.plan.leader_of(v);
    if (leader != v && entry.plan.graph->value(leader).name == name)
      all += cat(" or ", entry.plan.graph->value(v).name);
  }
  const Status failure =
      verdict == 0 || !std::isfinite(loss)
          ? Status(Code::not_finite, cat("loss is ", number_text(loss), "; the step was not applied"), "loss")
          : Status(Code::not_finite,
                   cat("the gradient of ", all, " is not finite, though the loss is; the step was not applied"), name);
  request.diagnose = true;
  std::vector<Tensor> whole;
  if (!slices_.empty()) {  // all of the inputs is looked at
    whole = whole_inputs(entry, inputs);
    for (size_t i = 0; i < whole.size(); ++i) input_pointers_[i] = whole[i].data();
  }
  if (!run_ranks(index, request).status.ok()) return failure;
  FirstOfRank first;
  const auto consider = [&](const FirstOfRank& other) {
    const Executor::Origin &a = other.origin, &b = first.origin;
    const bool better = a.nan != b.nan ? a.nan : a.order != b.order ? a.order < b.order : other.rank < first.rank;
    if (a.order >= 0 && (b.order < 0 || better)) first = other;
  };
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const Executor::Origin& origin = ranks_[r]->executors[index]->origin();
    consider({origin, origin.given ? -1 : options_.first_rank + static_cast<int>(r)});
  }
  // Of all processes, so that each gives the same reason.
  auto said = tell(told(first));
  for (const std::string& other : said.ok() ? *said : std::vector<std::string>()) consider(read_first(other));
  if (first.origin.order < 0) return failure;
  return Status(Code::not_finite, cat(failure.message(), ". ", first.origin.text), first.origin.node)
      .of_rank(first.rank);
}

}  // namespace epl
