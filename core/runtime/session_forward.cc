// Evaluations and predictions of a session.
#include <algorithm>
#include <cstring>

#include "core/runtime/mean_loss.h"
#include "core/runtime/session.h"
#include "core/runtime/sharing.h"

namespace epl {
namespace {

// The inputs as full batches.
std::vector<Tensor> padded(const Entry& entry, std::span<const Tensor> inputs) {
  std::vector<Tensor> full;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& type = entry.inputs[i].global_type;
    full.push_back(inputs[i].type() == type ? inputs[i] : Tensor(type));
    if (inputs[i].type() != type) pad_samples(inputs[i], entry.samples.inputs[i], full.back());
  }
  return full;
}

}  // namespace

Status Session::run(EntryKind kind, std::span<const Tensor> inputs, std::span<Tensor> outputs,
                    const CallOptions& options) {
  if (kind == EntryKind::train) return world_->give_up(invalid("a train entry runs in steps"));
  const auto fitting = fit(kind, inputs, options);
  EPL_TRY(world_->give_up(fitting.status()));
  const auto [entry, samples] = *fitting;
  EPL_TRY(world_->give_up(check_room(*entry, samples, outputs)));
  EPL_TRY(world_->give_up(foreign_->begin(*entry, inputs, outputs, options.stream)));
  place_outputs(outputs);
  if (samples == entry->samples.batch || !slices_.full()) return execute(*entry, inputs, options).status;
  const auto here = foreign_->load_all(inputs);
  EPL_TRY(world_->give_up(here.status()));
  return execute(*entry, padded(*entry, *here), options).status;
}

// Room for the outputs of a full batch of which so many samples count.
Status Session::check_room(const Entry& entry, int64_t samples, std::span<const Tensor> outputs) const {
  const auto& ports = entry.outputs;
  if (outputs.size() != ports.size())
    return invalid(entry_name(entry.kind), " gives ", ports.size(), " outputs, got room for ", outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].empty()) continue;
    if (outputs[i].type() != ports[i].global_type) {
      return invalid("output ", ports[i].name, " is ", ports[i].global_type.text(), ", got room for ",
                     outputs[i].type().text());
    }
    if (samples != entry.samples.batch && entry.samples.outputs[i] < 0) {
      return unsupported("output ", ports[i].name, " does not keep the samples of a batch apart, so it needs all ",
                         entry.samples.batch, "; got ", samples)
          .at(ports[i].name);
    }
  }
  return {};
}

Status Session::evaluate(std::span<const Tensor> inputs, double& loss, const CallOptions& options) {
  const auto fitting = fit(EntryKind::evaluate, inputs, options);
  EPL_TRY(world_->give_up(fitting.status()));
  const auto [entry, samples] = *fitting;
  std::vector<Tensor>& results = results_->next(*entry);
  if (samples == entry->samples.batch) {
    EPL_TRY(run(EntryKind::evaluate, inputs, results, options));
    loss = Results::loss_of(*entry, results);
  } else {
    if (entry->loss_terms < 0) {
      return world_->give_up(unsupported("the model computes its own loss of a full batch, ", entry->samples.batch,
                                         " samples; got ", samples));
    }
    MeanLoss mean;
    std::vector<Tensor> terms = MeanLoss::room(*entry);
    for (size_t i = 0; i < terms.size(); ++i) {
      if (terms[i].empty() && entry->merges[i] && entry->samples.outputs[i] >= 0) terms[i] = results[i];
    }
    EPL_TRY(run(EntryKind::evaluate, inputs, terms, options));
    mean.add(*entry, terms, samples);
    loss = mean.value();
  }
  results_->keep_evaluation(*entry, samples);
  return {};
}

Status Session::predict_into(std::span<const Tensor> inputs, std::span<Tensor> outputs, const CallOptions& options) {
  const auto fitting = fit(EntryKind::predict, inputs, options);
  EPL_TRY(world_->give_up(fitting.status()));
  const auto [entry, samples] = *fitting;
  const auto& ports = entry->outputs;
  const bool partial = samples != entry->samples.batch;
  bool direct = outputs.size() == ports.size();  // else `run` says what is wrong
  // Processes give each other what they have, in memory of the host.
  if (world_->over_processes()) direct = direct && !ForeignTensors::any(outputs);
  for (size_t i = 0; i < std::min(outputs.size(), ports.size()); ++i) {
    const bool can_be_given = !partial || entry->samples.outputs[i] >= 0;  // the same
    if (outputs[i].empty() || !can_be_given) continue;
    const TensorType type = results_->given_type(*entry, i, samples);
    if (outputs[i].type() != type)
      return world_->give_up(
          invalid("output ", ports[i].name, " is ", type.text(), ", got room for ", outputs[i].type().text())
              .at(ports[i].name));
    direct = direct && !partial && !entry->merges[i];
  }
  if (direct) return run(EntryKind::predict, inputs, outputs, options);
  EPL_TRY(world_->give_up(foreign_->begin(*entry, inputs, outputs, options.stream)));  // before anything runs
  std::vector<Tensor> full(outputs.size());
  for (size_t i = 0; i < std::min(outputs.size(), ports.size()); ++i) {
    if (!outputs[i].empty()) full[i] = Tensor(ports[i].global_type);
  }
  EPL_TRY(run(EntryKind::predict, inputs, full, options));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].empty()) continue;
    const Tensor given = results_->given_output(*entry, i, full[i], samples);
    if (device_memory_of(outputs[i]) != nullptr) {
      EPL_TRY(foreign_->store(given, outputs[i]));
    } else {
      std::memcpy(outputs[i].data(), given.data(), static_cast<size_t>(given.bytes()));
    }
  }
  return {};
}

// The ranks that read the input have its samples; any virtual device that reads it has all.
Result<Tensor> Session::full_input(const Entry& entry, size_t input, const Tensor& tensor) {
  EPL_ASSIGN(const Tensor given, foreign_->load(tensor));
  if (slices_.full() || !world_->over_processes()) return given;
  const SampleRange range = slices_.range(entry, input);
  for (size_t t = 0; t < entry.programs.size(); ++t) {
    const std::vector<ProgramPort>& ports = entry.programs[t].inputs;
    const auto port = std::ranges::find(ports, static_cast<int>(input), &ProgramPort::index);
    if (port == ports.end()) continue;
    Tensor full(port->global_type);
    const int dim = entry.samples.inputs[input];
    if (range.count > 0 && dim < 0) {
      std::memcpy(full.data(), given.data(), static_cast<size_t>(given.bytes()));
    } else if (range.count > 0) {
      put_samples(given, dim, entry.samples.batch, range.first, full);
    }
    EPL_TRY(
        share_output(*world_, entry.mesh(static_cast<int>(t)), *port, static_cast<std::byte*>(full.data()), parts_));
    return full;
  }
  return unsupported("no rank reads input ", entry.inputs[input].name, ", so that no process has all of its samples");
}

}  // namespace epl
