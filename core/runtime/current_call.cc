#include "core/runtime/current_call.h"

#include "core/base/hash.h"
#include "core/runtime/tensor_hash.h"

namespace epl {
namespace {

constexpr int64_t looked_at_bytes = 16 << 10;  // of an input, at each call
constexpr int64_t run_bytes = 256;

// Of parts spread over the tensor, so that a large batch takes no longer than a small one.
uint64_t glance_at(const Tensor& tensor) {
  const auto* bytes = static_cast<const std::byte*>(tensor.data());
  const int64_t size = tensor.bytes(), runs = looked_at_bytes / run_bytes;
  Hash64 hash;
  if (size <= looked_at_bytes) {
    hash.add(bytes, static_cast<size_t>(size));
    return hash.value();
  }
  for (int64_t i = 0; i < runs; ++i)
    hash.add(bytes + (size - run_bytes) / (runs - 1) * i, static_cast<size_t>(run_bytes));
  return hash.value();
}

const char* program_name(EntryKind kind, StepPhase phase) {
  static constexpr const char* names[] = {"epl_session_step", "epl_session_gradients", "epl_session_apply"};
  if (kind == EntryKind::train) return names[static_cast<size_t>(phase)];
  return kind == EntryKind::evaluate ? "epl_session_evaluate" : "epl_session_predict";
}

}  // namespace

void CurrentCall::begin(const char* name) {
  name_ = name;
  program_ = nullptr;
  told_ = false;
  call_.numbers.clear();
}

void CurrentCall::begin_program(EntryKind kind, StepPhase phase) {
  program_ = program_name(kind, phase);
  told_ = false;
  call_.numbers.clear();
}

void CurrentCall::describe_run(int64_t step, const Entry& entry, std::span<const Tensor> inputs) {
  call_.numbers.emplace_back("step", static_cast<uint64_t>(step));
  std::vector<std::string>& keys = keys_[&entry];
  if (keys.empty()) {
    for (const Port& port : entry.inputs) keys.push_back(cat("input ", port.name, " of the batch, as a hash"));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].empty()) call_.numbers.emplace_back(keys[i], glance_at(inputs[i]));
  }
}

Status CurrentCall::note_value_set(std::string_view name, const Tensor& value) {
  EPL_ASSIGN(values_set_[std::string(name)], hash_of_bytes(value));
  lines_ = nullptr;
  return {};
}

void CurrentCall::forget_values_set() {
  values_set_.clear();
  lines_ = nullptr;
}

void CurrentCall::restart() {
  call_.number = 0;
  told_ = false;
}

const JobCall& CurrentCall::tell(const HostState& host_state) {
  if (!lines_ || version_ != host_state.version()) {
    std::string lines = host_state.lines();
    for (const auto& [name, hash] : values_set_)
      lines += told_line(cat("the value set for ", name, ", as a hash"), cat(hash));
    lines_ = std::make_shared<const std::string>(std::move(lines));
    version_ = host_state.version();
  }
  told_ = true;
  ++call_.number;
  call_.name = program_ != nullptr ? program_ : name_ != nullptr ? name_ : "a call";
  call_.lines = lines_;
  call_.sign();
  return call_;
}

}  // namespace epl
