#include "core/runtime/input_slices.h"

#include <algorithm>

#include "core/base/device_memory.h"

namespace epl {
namespace {

bool lies_in_front(const TensorType& type, int dim) {
  return std::all_of(type.shape.begin(), type.shape.begin() + dim, [](int64_t size) { return size == 1; });
}

}  // namespace

Result<InputSlices> InputSlices::create(std::shared_ptr<const CompiledPlan> plan, int first_rank, int ranks) {
  InputSlices made;
  made.plan_ = std::move(plan);
  for (const Entry& entry : made.plan_->entries()) EPL_TRY(made.find(entry, first_rank, ranks));
  return made;
}

Status InputSlices::find(const Entry& entry, int first_rank, int ranks) {
  auto& ranges = ranges_.emplace_back();
  auto& staged = staged_.emplace_back();
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    const SampleRange range = samples_read(*plan_, entry, i, first_rank, ranks);
    const int dim = entry.samples.inputs[i];
    const bool is_part = dim >= 0 && range.count > 0 && range.count < entry.samples.batch;
    const TensorType& type = entry.inputs[i].global_type;
    ranges.push_back(range);
    staged.push_back(is_part && !lies_in_front(type, dim) ? Tensor(type) : Tensor());
  }
  const Graph& graph = *entry.plan.graph;
  for (const Graph::Output& output : graph.outputs) {
    if (graph.value(output.value).kind != ValueKind::input) continue;
    return unsupported("output ", output.name, " of ", entry_name(entry.kind),
                       " is an input as it is, which a process that takes a slice of the inputs does not have");
  }
  return check_differ(entry);
}

// That what this process is given tells which shape a call has: each process has to know it from its own slices.
Status InputSlices::check_differ(const Entry& entry) const {
  const auto& slices = ranges_[index_of(entry)];
  for (const Entry& other : plan_->entries()) {
    if (&other == &entry) return {};
    if (other.kind != entry.kind) continue;
    bool differ = false;
    for (size_t i = 0; i < slices.size() && !differ; ++i) {
      const SampleRange before = ranges_[index_of(other)][i];
      differ = (before.count == 0) != (slices[i].count == 0) ||
               (slices[i].count > 0 && slice_type(entry, i, slices[i]) != slice_type(other, i, before));
    }
    if (!differ)
      return unsupported("the slices that this process reads are the same for ", other.name(), " and ", entry.name(),
                         "; with several shapes, let each process take full batches");
  }
  return {};
}

Status InputSlices::check(const Entry& entry, std::span<const Tensor> inputs) const {
  const auto& slices = ranges_[index_of(entry)];
  for (size_t i = 0; i < inputs.size(); ++i) {
    const SampleRange range = slices[i];
    const TensorType wanted = slice_type(entry, i, range);
    if (range.count == 0 || (!inputs[i].empty() && inputs[i].type() == wanted)) continue;
    return invalid("input ", entry.inputs[i].name, " is ", wanted.text(), " in this process, samples ", range.first,
                   " to ", range.first + range.count - 1, " of ", entry.samples.batch, "; got ",
                   inputs[i].empty() ? "none" : inputs[i].type().text())
        .at(entry.inputs[i].name);
  }
  return {};
}

const void* InputSlices::memory_of(const Entry& entry, size_t i, const Tensor& input) {
  if (full()) return address_of(input);
  const SampleRange range = ranges_[index_of(entry)][i];
  if (range.count == 0) return nullptr;
  const int dim = entry.samples.inputs[i];
  if (dim < 0 || range.count == entry.samples.batch) return address_of(input);
  const TensorType& type = entry.inputs[i].global_type;
  if (lies_in_front(type, dim)) {
    const int64_t ahead = type.bytes() / entry.samples.batch * range.first;
    const auto at = reinterpret_cast<uintptr_t>(address_of(input));
    return reinterpret_cast<const void*>(at - static_cast<uintptr_t>(ahead));
  }
  Tensor& full = staged_[index_of(entry)][i];
  put_samples(input, dim, entry.samples.batch, range.first, full);
  return full.data();
}

std::vector<Tensor> InputSlices::full_batches(const Entry& entry, std::span<const Tensor> inputs) const {
  std::vector<Tensor> full;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const SampleRange range = ranges_[index_of(entry)][i];
    const TensorType& type = entry.inputs[i].global_type;
    const int dim = entry.samples.inputs[i];
    if (range.count > 0 && (dim < 0 || range.count == entry.samples.batch)) {
      full.push_back(inputs[i]);
      continue;
    }
    full.emplace_back(type);
    if (range.count > 0) put_samples(inputs[i], dim, entry.samples.batch, range.first, full.back());
  }
  return full;
}

}  // namespace epl
