// What a session's caller gets of the outputs of its calls.
#include <algorithm>
#include <cstring>

#include "core/base/shown.h"
#include "core/runtime/session_rank.h"

namespace epl {

Result<Tensor> Session::step_output(std::string_view name) const {
  const Entry& entry = stepped_ ? *stepped_ : plan_->entries().front();
  for (size_t i = 0; i < entry.outputs.size(); ++i) {
    if (entry.outputs[i].name == name) return results_[index_of(entry)][i].clone();
  }
  return error(Code::not_found, "step has no output ", shown(name, 200));
}

Status Session::predict_into(std::span<const Tensor> inputs, std::span<Tensor> outputs, const CallOptions& options) {
  const auto fitting = fit(EntryKind::predict, inputs, options);
  EPL_TRY(refuse(fitting.status()));
  const auto [entry, samples] = *fitting;
  const auto& ports = entry->outputs;
  const bool partial = samples != entry->samples.batch;
  bool direct = outputs.size() == ports.size();  // else `run` says what is wrong
  for (size_t i = 0; i < std::min(outputs.size(), ports.size()); ++i) {
    const bool can_be_given = !partial || entry->samples.outputs[i] >= 0;  // the same
    if (outputs[i].empty() || !can_be_given) continue;
    const TensorType type = given_type(*entry, i, samples);
    if (outputs[i].type() != type)
      return refuse(invalid("output ", ports[i].name, " is ", type.text(), ", got room for ", outputs[i].type().text())
                        .at(ports[i].name));
    direct = direct && !partial && !entry->merges[i];
  }
  if (direct) return run(EntryKind::predict, inputs, outputs, options);
  std::vector<Tensor> whole(outputs.size());
  for (size_t i = 0; i < std::min(outputs.size(), ports.size()); ++i) {
    if (!outputs[i].empty()) whole[i] = Tensor(ports[i].global_type);
  }
  EPL_TRY(run(EntryKind::predict, inputs, whole, options));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].empty()) continue;
    const Tensor given = given_output(*entry, i, whole[i], samples);
    std::memcpy(outputs[i].data(), given.data(), static_cast<size_t>(given.bytes()));
  }
  return {};
}

// The samples that are merged.
SampleRange Session::given_range(const Entry& entry, size_t index, int64_t samples) const {
  SampleRange range{0, samples};
  if (entry.merges[index]->is_local()) {
    range = samples_of_ranks(*plan_, entry, options_.first_rank, static_cast<int>(ranks_.size()));
    range.count = std::max<int64_t>(0, std::min(range.first + range.count, samples) - range.first);
  }
  return range;
}

Tensor Session::given_output(const Entry& entry, size_t index, const Tensor& whole, int64_t samples) const {
  const int64_t batch = entry.samples.batch;
  const std::optional<OutputMerge>& merge = entry.merges[index];
  if (!merge) return first_samples(whole, entry.samples.outputs[index], batch, samples);
  const SampleRange range = given_range(entry, index, samples);
  return merge_samples(whole, *merge, batch, range.first, range.count);
}

TensorType Session::given_type(const Entry& entry, size_t index, int64_t samples) const {
  const int64_t batch = entry.samples.batch;
  const TensorType& whole = entry.outputs[index].global_type;
  const std::optional<OutputMerge>& merge = entry.merges[index];
  if (merge) return merged_type(whole, *merge, batch, given_range(entry, index, samples).count);
  return samples == batch ? whole : partial_type(whole, entry.samples.outputs[index], batch, samples);
}

Result<Tensor> Session::output(EntryKind kind, std::string_view name) const {
  if (kind == EntryKind::predict) return invalid("what a prediction gives is what the call returns");
  EPL_ASSIGN(const Entry* entry, find_entry(kind));
  const bool is_train = kind == EntryKind::train;
  if (const Entry* last = is_train ? stepped_ : evaluated_) entry = last;
  const auto found = std::ranges::find(entry->outputs, name, &Port::name);
  const size_t i = static_cast<size_t>(found - entry->outputs.begin());
  if (found == entry->outputs.end() || results_[index_of(*entry)][i].empty()) {
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
  return given_output(*entry, i, results_[index_of(*entry)][i], samples).clone();
}

Result<double> Session::step_scalar(std::string_view name) const {
  EPL_ASSIGN(Tensor value, step_output(name));
  if (value.elements() != 1) return invalid("step output ", shown(name, 200), " is not a scalar");
  return value.get(0);
}

}  // namespace epl
