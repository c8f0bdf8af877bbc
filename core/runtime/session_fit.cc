// Which entry of the plan takes the inputs of a call, and how many samples they hold.
#include "core/runtime/session.h"

namespace epl {
namespace {

// How many samples an input has, 0 where nothing counts them; an error if its type is not that of the plan but for this
// number.
Result<int64_t> samples_in(const Port& port, const TensorType& type, int dim, int64_t batch) {
  if (type == port.global_type) return dim < 0 ? 0 : batch;
  TensorType fitting = port.global_type;
  if (dim >= 0 && type.ndim() > dim) fitting.shape[static_cast<size_t>(dim)] = type.shape[static_cast<size_t>(dim)];
  const int64_t samples = dim >= 0 && type.ndim() > dim ? type.shape[static_cast<size_t>(dim)] : -1;
  if (fitting == type && samples > 0 && samples < batch) return samples;
  return invalid("input ", port.name, " is ", port.global_type.text(), " in the plan, got ", type.text()).at(port.name);
}

}  // namespace

Result<Session::Fit> Session::fit(EntryKind kind, std::span<const Tensor> inputs, const CallOptions& options) const {
  EPL_ASSIGN(const Entry* first, find_entry(*plan_, kind));
  Status why;
  Fit partial;
  std::string shapes;
  for (const Entry& entry : plan_->entries()) {
    if (entry.kind != kind) continue;
    const auto samples = samples_of(entry, inputs, options);
    if (samples.ok() && *samples == entry.samples.batch) return Fit{&entry, *samples};
    if (samples.ok() && partial.entry == nullptr) partial = {&entry, *samples};
    if (!samples.ok() && &entry == first) why = samples.status();
    if (plan_->shapes() > 1 && !samples.ok()) shapes += cat(shapes.empty() ? "" : "; ", inputs_text(entry));
  }
  if (partial.entry != nullptr) return partial;
  if (plan_->shapes() == 1 || inputs.size() != first->inputs.size()) return why;
  return Status(why.code(), cat(why.message(), "; no shape of the plan is like this: ", shapes), why.where());
}

// How many samples of the entry's batch these inputs hold.
Result<int64_t> Session::samples_of(const Entry& entry, std::span<const Tensor> inputs,
                                    const CallOptions& options) const {
  const bool is_train = entry.kind == EntryKind::train;
  if (inputs.size() != entry.inputs.size()) {
    std::string names;
    for (const Port& port : entry.inputs)
      names += cat(names.empty() ? "" : ", ", port.name, ": ", port.global_type.text());
    return invalid(entry_name(entry.kind), " takes ", entry.inputs.size(), " tensors (", names, "), got ",
                   inputs.size());
  }
  if (options.samples != 0 && slices_.full())
    return invalid("samples is ", options.samples, "; it is for slices, and these inputs are full batches");
  const int64_t batch = entry.samples.batch;
  const bool is_part = options.samples != 0 && options.samples != batch;
  if (options.samples < 0 || options.samples > batch || (is_part && is_train)) {
    return invalid("samples is ", options.samples, ", of a batch of ", batch,
                   is_train ? ", of which a step takes all" : "");
  }
  if (!slices_.full()) {
    EPL_TRY(slices_.check(entry, inputs));
    return options.samples > 0 ? options.samples : batch;
  }
  int64_t samples = 0;
  size_t first = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Port& port = entry.inputs[i];
    if (inputs[i].empty())
      return invalid("input ", port.name, " (", port.global_type.text(), ") is missing").at(port.name);
    EPL_ASSIGN(int64_t here, samples_in(port, inputs[i].type(), entry.samples.inputs[i], batch));
    if (here == 0) continue;
    if (samples != 0 && here != samples) {
      return invalid("input ", port.name, " holds ", here, " samples, input ", entry.inputs[first].name, " ", samples)
          .at(port.name);
    }
    if (samples == 0) first = i;
    samples = here;
  }
  samples = samples == 0 ? batch : samples;
  if (is_train && samples != batch) {
    return invalid("a step takes the full batch of the plan, ", batch, " samples; got ", samples, " (input ",
                   entry.inputs[first].name, " ", inputs[first].type().text(),
                   "). Keep them for the next batch, or give the trainer a shape of ", samples,
                   " as well. Evaluation and prediction take fewer")
        .at(entry.inputs[first].name);
  }
  return samples;
}

}  // namespace epl
