#include "core/runtime/results.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/shown.h"

namespace epl {

Result<const Entry*> find_entry(const CompiledPlan& plan, EntryKind kind) {
  const Entry* entry = plan.entry(kind);
  if (!entry) return Status(Code::invalid_argument, cat("the plan has no ", entry_name(kind), " entry"));
  return entry;
}

// Room for what steps give, so that a step allocates nothing.
Results::Results(std::shared_ptr<const CompiledPlan> plan, const LocalRanks& ranks, bool predicts_only)
    : plan_(std::move(plan)), ranks_(ranks) {
  for (const Entry& entry : plan_->entries()) {
    OfEntry& made = entries_.emplace_back();
    // Of evaluate and predict the rest is wanted by few, who bring the room.
    for (const Port& port : entry.outputs) {
      const bool merged = entry.merges[made.last.size()].has_value();
      const bool kept = !predicts_only && (entry.kind == EntryKind::train ||
                                           (entry.kind == EntryKind::evaluate && (merged || port.name == "loss")));
      made.last.push_back(kept ? Tensor(port.global_type) : Tensor());
      made.next.push_back(kept ? Tensor(port.global_type) : Tensor());
    }
  }
}

// No number has a sign.
double Results::loss_of(const Entry& entry, const std::vector<Tensor>& outputs) {
  const double loss = outputs[static_cast<size_t>(entry.loss_output)].get(0);
  return std::isnan(loss) ? std::numeric_limits<double>::quiet_NaN() : loss;
}

// An update gives few numbers anew, and none of the samples: the others stay those of the batch.
bool Results::is_given(const Tensor& output, StepPhase phase) {
  return phase != StepPhase::update || output.elements() == 1;
}

void Results::begin_step(const Entry& entry, StepPhase phase, std::vector<void*>& pointers) {
  OfEntry& of = entries_[index_of(entry)];
  pointers.clear();
  for (size_t i = 0; i < of.next.size(); ++i) {
    Tensor& room = of.next[i];
    const bool wanted = is_given(room, phase);
    if (phase == StepPhase::update && wanted)
      std::memcpy(room.data(), of.last[i].data(), static_cast<size_t>(room.bytes()));
    pointers.push_back(wanted ? room.data() : nullptr);
  }
}

void Results::keep_step(const Entry& entry, StepPhase phase) {
  OfEntry& of = entries_[index_of(entry)];
  for (size_t i = 0; i < of.next.size(); ++i) {
    if (is_given(of.next[i], phase)) std::swap(of.last[i], of.next[i]);
  }
  if (phase != StepPhase::update) stepped_ = &entry;
}

void Results::keep_evaluation(const Entry& entry, int64_t samples) {
  OfEntry& of = entries_[index_of(entry)];
  std::swap(of.last, of.next);
  evaluated_ = &entry;
  evaluated_samples_ = samples;
}

const Tensor* Results::last_output(std::string_view name) const {
  if (stepped_ == nullptr) return nullptr;
  const auto port = std::ranges::find(stepped_->outputs, name, &Port::name);
  if (port == stepped_->outputs.end()) return nullptr;
  return &entries_[index_of(*stepped_)].last[static_cast<size_t>(port - stepped_->outputs.begin())];
}

Result<Tensor> Results::step_output(std::string_view name) const {
  const Entry& entry = stepped_ ? *stepped_ : plan_->entries().front();
  for (size_t i = 0; i < entry.outputs.size(); ++i) {
    if (entry.outputs[i].name == name) return entries_[index_of(entry)].last[i].clone();
  }
  return error(Code::not_found, "step has no output ", shown(name, 200));
}

// The samples that are merged.
SampleRange Results::given_range(const Entry& entry, size_t index, int64_t samples) const {
  SampleRange range{0, samples};
  if (entry.merges[index]->is_local()) {
    range = samples_of_ranks(*plan_, entry, ranks_.first(), ranks_.count());
    range.count = std::max<int64_t>(0, std::min(range.first + range.count, samples) - range.first);
  }
  return range;
}

Tensor Results::given_output(const Entry& entry, size_t index, const Tensor& full, int64_t samples) const {
  const int64_t batch = entry.samples.batch;
  const std::optional<OutputMerge>& merge = entry.merges[index];
  if (!merge) return first_samples(full, entry.samples.outputs[index], batch, samples);
  const SampleRange range = given_range(entry, index, samples);
  return merge_samples(full, *merge, batch, range.first, range.count);
}

TensorType Results::given_type(const Entry& entry, size_t index, int64_t samples) const {
  const int64_t batch = entry.samples.batch;
  const TensorType& full = entry.outputs[index].global_type;
  const std::optional<OutputMerge>& merge = entry.merges[index];
  if (merge) return merged_type(full, *merge, batch, given_range(entry, index, samples).count);
  return samples == batch ? full : partial_type(full, entry.samples.outputs[index], batch, samples);
}

Result<Tensor> Results::output(EntryKind kind, std::string_view name) const {
  if (kind == EntryKind::predict) return invalid("what a prediction gives is what the call returns");
  EPL_ASSIGN(const Entry* entry, find_entry(*plan_, kind));
  const bool is_train = kind == EntryKind::train;
  if (const Entry* last = is_train ? stepped_ : evaluated_) entry = last;
  const auto found = std::ranges::find(entry->outputs, name, &Port::name);
  const size_t i = static_cast<size_t>(found - entry->outputs.begin());
  if (found == entry->outputs.end() || entries_[index_of(*entry)].last[i].empty()) {
    return error(Code::not_found, entry_name(kind), " keeps no output ", shown(name, 200),
                 "; the strategy's keys outputs.global_concat and so on name those to keep");
  }
  if ((is_train ? stepped_ : evaluated_) == nullptr)
    return invalid("there was no ", is_train ? "step" : "evaluation", " yet");
  const int64_t samples = is_train ? entry->samples.batch : evaluated_samples_;
  if (samples != entry->samples.batch && entry->samples.outputs[i] < 0) {
    return unsupported("output ", name, " does not keep the samples of a batch apart, so it needs all ",
                       entry->samples.batch, "; the last evaluation had ", samples);
  }
  return given_output(*entry, i, entries_[index_of(*entry)].last[i], samples).clone();
}

Result<double> Results::step_scalar(std::string_view name) const {
  EPL_ASSIGN(Tensor value, step_output(name));
  if (value.elements() != 1) return invalid("step output ", shown(name, 200), " is not a scalar");
  return value.get(0);
}

}  // namespace epl
