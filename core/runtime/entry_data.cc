#include "core/runtime/entry_data.h"

#include <algorithm>

#include "core/compile/sample_slices.h"
#include "core/data/convert.h"

namespace epl {
namespace {

// A sample as the file has it, and as the input takes it.
class FieldCheck {
 public:
  FieldCheck(const Dataset& dataset, int field, DType wanted, std::vector<const InputBound*> bounds)
      : reader_(dataset.reader()), field_(field), bounds_(std::move(bounds)) {
    TensorType type = reader_.fields()[static_cast<size_t>(field)].second;
    sample_ = Tensor(type);
    type.dtype = wanted;
    given_ = sample_.dtype() == wanted ? sample_ : Tensor(type);
  }

  Status operator()(int64_t index) {
    EPL_TRY(reader_.read(index, field_, sample_.data()));
    const int64_t count = sample_.elements();
    if (converts() && !convert(0, count).ok()) {
      int64_t at = 0;  // the first that cannot be had
      while (convert(at, 1).ok()) ++at;
      const double number = sample_.get(at);
      const std::string value =
          sample_.dtype() == DType::f32 ? number_text(static_cast<float>(number)) : number_text(number);
      const Status why = convert(at, 1);
      const bool as_it_is = !bounds_.empty() && bounds_.front()->arithmetic.empty();
      return wrong(index, as_it_is ? bound_text(*bounds_.front(), value) : why.message());
    }
    for (const InputBound* bound : bounds_) {
      const int64_t at = find_out_of_bounds(*bound, given_);
      if (at >= 0) return wrong(index, bound_text(*bound, given_, at));
    }
    return {};
  }

 private:
  bool converts() const { return sample_.dtype() != given_.dtype(); }
  Status convert(int64_t first, int64_t count) {
    const auto at = [&](Tensor& of) {
      return static_cast<std::byte*>(of.data()) + first * (of.bytes() / std::max<int64_t>(of.elements(), 1));
    };
    return convert_elements(sample_.dtype(), at(sample_), given_.dtype(), at(given_), count);
  }
  Status wrong(int64_t index, const std::string& what) const {
    const std::string& name = reader_.fields()[static_cast<size_t>(field_)].first;
    return invalid("field ", name, ", ", position_of(reader_, index), ", ", what).at(name);
  }

  const Reader& reader_;
  const int field_;
  const std::vector<const InputBound*> bounds_;
  Tensor sample_, given_;
};

std::vector<std::pair<std::string, TensorType>> inputs_of(const Entry& entry) {
  std::vector<std::pair<std::string, TensorType>> inputs;
  for (const Port& port : entry.inputs) inputs.emplace_back(port.name, port.global_type);
  return inputs;
}

}  // namespace

Status bind_dataset(Dataset& dataset, const Entry& entry) { return dataset.bind(inputs_of(entry)); }

Status bind_slice(Dataset& dataset, const CompiledPlan& plan, const Entry& entry, int first_rank, int ranks) {
  std::vector<SampleRange> parts;
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    const Port& port = entry.inputs[i];
    SampleRange part = samples_read(plan, entry, i, first_rank, ranks);
    const int dim = entry.samples.inputs[i];
    const bool is_full = part.count == 0 || dim < 0 || part.count == entry.samples.batch;
    if (!is_full && dim != 0) {
      return unsupported("samples of input ", port.name, " (", port.global_type.text(), ") lie in dimension ", dim,
                         "; a dataset gives slices of dimension 0")
          .at(port.name);
    }
    // Full: all rows, which need not be samples.
    if (is_full && part.count > 0) part = {0, port.global_type.ndim() > 0 ? port.global_type.shape[0] : 1};
    parts.push_back(part);
  }
  return dataset.bind(inputs_of(entry), parts);
}

Result<std::string> shard_files(Dataset& dataset, const Entry& entry) {
  if (entry.kind != EntryKind::train) return std::string();
  const Strategy& strategy = entry.plan.strategy;
  const auto wants = [&](std::string_view key) {
    const Attribute* value = strategy.config.find(key);
    return value && std::get<bool>(*value);
  };
  const SliceOptions options{.unbalanced = wants("io.unbalanced_io_slicing"),
                             .drop_last_files = wants("io.drop_last_files")};
  if (!wants("io.slicing")) {
    EPL_TRY(dataset.slice(1, {}));
    return std::string();
  }
  if (options.unbalanced && options.drop_last_files)
    return invalid("io.unbalanced_io_slicing and io.drop_last_files exclude each other");
  int64_t replicas = 1;
  for (int t = 0; t < static_cast<int>(entry.plan.task_graphs.size()); ++t)
    replicas = std::max(replicas, entry.plan.mesh(t).shards(entry.plan.batch_of(t).rank_axes(entry.plan.mesh(t))));
  if (entry.plan.shares_micro_batches() && replicas > 1) {
    EPL_TRY(dataset.slice(1, {}));
    return cat("io.slicing: with ",
               entry.plan.independent_micro_batches ? "batch.semantics = per_micro_batch"
                                                    : "micro-batches that come first (batch.order, zero.level)",
               " each micro-batch is a run of samples that all replicas share, so each takes its part of batches of "
               "all files");
  }
  const Slices sharded(dataset.reader().file_samples(), replicas, options);
  if (replicas > 1 && !sharded.refused().empty() && !dataset.reader().file_samples().empty()) {
    EPL_TRY(dataset.slice(1, {}));
    return cat("io.slicing: ", sharded.refused(), "; so each replica takes its part of batches of all files");
  }
  EPL_TRY(dataset.slice(replicas, options));
  return std::string();
}

Status check_dataset(const Dataset& dataset, const Entry& entry, const Stop& stop) {
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    const Port& port = entry.inputs[i];
    const int field = dataset.find(port.name);
    if (field < 0) continue;
    std::vector<const InputBound*> bounds;
    for (const InputBound& bound : entry.bounds) {
      if (bound.input == static_cast<int>(i)) bounds.push_back(&bound);
    }
    const DType stored = dataset.reader().fields()[static_cast<size_t>(field)].second.dtype;
    // Into these not every number goes; the first one that does not would end a step.
    const DType wanted = port.global_type.dtype;
    const bool narrow = is_integer(wanted) || wanted == DType::boolean || wanted == DType::f16;
    if (bounds.empty() && (!narrow || stored == port.global_type.dtype)) continue;
    FieldCheck check(dataset, field, port.global_type.dtype, std::move(bounds));
    EPL_TRY(dataset.visit(field, [&](int64_t sample) -> Status {
      EPL_TRY(stop.check());
      return check(sample);
    }));
  }
  return {};
}

}  // namespace epl
