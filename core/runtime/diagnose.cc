// A run that looks for what made a step not finite: the executor's part, which has each instruction looked at, and the
// session's, which compares what its ranks have found. It runs only after a step has been refused, so it may allocate,
// and reads everything through the host.
#include <cmath>
#include <optional>
#include <sstream>
#include <tuple>

#include "core/program/shards.h"
#include "core/program/transfer.h"
#include "core/runtime/diagnosis.h"
#include "core/runtime/session.h"

namespace epl {
namespace {

std::optional<int64_t> find_nan(DType type, const void* data, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i)
    if (std::isnan(load_double(type, data, i))) return i;
  return std::nullopt;
}

// "[3, 0]": the index of a row-major element.
std::string index_text(const Shape& shape, int64_t element) {
  Shape index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = element % shape[d];
    element /= shape[d];
  }
  return cat(index);
}

}  // namespace

Executor::~Executor() = default;

void Executor::inspect_leaves() {
  origin_ = {};
  if (!device_.executes()) return;
  for (size_t i = 0; i < program_.inputs.size(); ++i) {
    const ProgramPort& port = program_.inputs[i];
    const TensorType& type = port.global_type;
    if (!is_float(type.dtype)) continue;
    const auto at = find_nan(type.dtype, request_->inputs[static_cast<size_t>(port.index)], type.elements());
    if (!at) continue;
    origin_ = {.order = 0,
               .traced = true,
               .given = true,
               .node = port.name,
               .text = cat("input ", port.name, " holds nan at ", index_text(type.shape, *at))};
    return;
  }
  std::vector<std::byte> seen;
  for (const StateSlot& slot : program_.state) {
    if (!is_float(slot.type.dtype) || !slot.sharding.rank_local.is_at(program_.mesh, coordinates_)) continue;
    seen.resize(static_cast<size_t>(slot.local.bytes()));
    stream().download(seen.data(), store_.at(slot), slot.local.bytes());
    if (!stream().synchronize().ok()) return;
    const auto at = find_nan(slot.type.dtype, seen.data(), slot.local.elements());
    if (!at) continue;
    const int64_t element = global_element(slot.type, slot.sharding, program_.mesh, coordinates_, *at);
    origin_ = {.order = 0,
               .traced = true,
               .node = slot.name,
               .text = cat(slot.name, " itself holds nan at ", index_text(slot.type.shape, element))};
    return;
  }
  diagnosis_ = std::make_unique<Diagnosis>(stream(), request_->refused);
}

LookedAt Executor::looked_at(const Instruction& in, int64_t micro_batch) {
  LookedAt values;
  for (const Location& location : in.inputs) values.inputs.push_back(at(location, micro_batch));
  for (const Location& location : in.outputs) values.outputs.push_back(at(location, micro_batch));
  values.empty = in.transfer && in.transfer->at_last_iteration && micro_batch + 1 != program_.micro_batches();
  return values;
}

Status Executor::end_diagnosis() {
  if (diagnosis_) origin_ = diagnosis_->origin();
  diagnosis_.reset();
  return synchronize();
}

namespace {

// The first number that is not finite, and the rank that has met it; -1: the caller gave it.
struct FirstOfRank {
  Executor::Origin origin;
  int rank = -1;
};

std::string told(const FirstOfRank& first) {
  const Executor::Origin& origin = first.origin;
  return cat(origin.order, " ", int{origin.traced}, " ", first.rank, " ", origin.node.size(), " ", origin.node,
             origin.text);
}

// "ORDER TRACED RANK LENGTH NODETEXT", as a process tells it.
FirstOfRank read_first(const std::string& said) {
  FirstOfRank out;
  std::istringstream in(said);
  int traced = 0;
  size_t length = 0;
  in >> out.origin.order >> traced >> out.rank >> length;
  in.ignore(1);
  out.origin.traced = traced != 0;
  const auto at = std::min(said.size(), static_cast<size_t>(std::max<std::streamoff>(in.tellg(), 0)));
  out.origin.node = said.substr(at, length);
  out.origin.text = said.substr(std::min(said.size(), at + length));
  return out;
}

}  // namespace

// That of a parameter, or of one of several that stand in its place, of which each rank has looked at its own.
std::string gradient_text(const Entry& entry, const std::string& parameter) {
  std::string all = parameter;
  for (const Value v : entry.plan.value_representative.ids()) {
    const Value representative = entry.plan.representative_of(v);
    if (representative != v && entry.plan.graph->value(representative).name == parameter)
      all += cat(" or ", entry.plan.graph->value(v).name);
  }
  return cat("the gradient of ", all);
}

// Why a step was skipped. Nothing has changed, so the same step again meets the same NaN and can look for where it
// begins.
Status Session::reason(const Entry& entry, std::span<const Tensor> inputs, RunRequest request, int64_t verdict) {
  const size_t index = index_of(entry);
  const double loss = results_->next(entry)[static_cast<size_t>(entry.loss_output)].get(0);
  const std::string& name = plan_->trained()[static_cast<size_t>(std::max<int64_t>(verdict, 1) - 1)];
  const Status failure =
      verdict == 0 || !std::isfinite(loss)
          ? Status(Code::not_finite, cat("loss is ", number_text(loss), "; the step was not applied"), "loss")
          : Status(Code::not_finite,
                   cat(gradient_text(entry, name), " is not finite, though the loss is; the step was not applied"),
                   name);
  request.diagnose = true;
  request.refused = verdict;
  const auto here = foreign_->load_all(inputs);
  if (!here.ok()) return failure;
  if (ForeignTensors::any(inputs)) {  // which is looked at on the host
    for (size_t i = 0; i < here->size(); ++i) input_pointers_[i] = slices_.memory_of(entry, i, (*here)[i]);
    request.input_devices = {};
  }
  inputs = *here;
  std::vector<Tensor> full;
  if (!slices_.full()) {  // all of the inputs is looked at
    full = slices_.full_batches(entry, inputs);
    for (size_t i = 0; i < full.size(); ++i) input_pointers_[i] = full[i].data();
  }
  if (!run_ranks(index, request).status.ok()) return failure;
  FirstOfRank first;
  const auto consider = [&](const FirstOfRank& other) {
    const Executor::Origin &a = other.origin, &b = first.origin;
    const auto key = [](const Executor::Origin& o, int64_t rank) { return std::tuple(!o.traced, o.order, rank); };
    const bool better = key(a, other.rank) < key(b, first.rank);
    if (a.order >= 0 && (b.order < 0 || better)) first = other;
  };
  for (const auto& rank : world_->ranks()) {
    const Executor::Origin& origin = rank->executors[index]->origin();
    consider({origin, origin.given ? -1 : rank->number});
  }
  // Of all processes, so that each gives the same reason.
  auto said = world_->tell(told(first));
  for (const std::string& other : said.ok() ? *said : std::vector<std::string>()) consider(read_first(other));
  if (first.origin.order < 0) return failure;
  return Status(Code::not_finite, cat(failure.message(), ". ", first.origin.text), first.origin.node)
      .of_rank(first.rank);
}

}  // namespace epl
