#include "core/runtime/entry_data.h"

#include <algorithm>

#include "core/runtime/sample_slices.h"

namespace epl {
namespace {

Status check_field(const Dataset& dataset, int field, const InputBound& bound, const Stop& stop) {
  const Reader& reader = dataset.reader();
  const auto& [name, type] = reader.fields()[static_cast<size_t>(field)];
  if (!is_integer(type.dtype)) return {};
  Tensor sample(type);
  return dataset.visit(field, [&, &name = name](int64_t i) -> Status {
    EPL_TRY(stop.check());
    EPL_TRY(reader.read(i, field, sample.data()));
    const int64_t wrong = find_out_of_bounds(bound, sample);
    if (wrong < 0) return {};
    return invalid("field ", name, ", row ", reader.row(i), " (counted from 0), ",
                   bound_text(bound, sample.get_int(wrong)))
        .at(name);
  });
}

std::vector<std::pair<std::string, TensorType>> inputs_of(const Entry& entry) {
  std::vector<std::pair<std::string, TensorType>> inputs;
  for (const Port& port : entry.inputs) inputs.emplace_back(port.name, port.global_type);
  return inputs;
}

// Over how many ranks the batch is cut.
int64_t replicas_in(const Mesh& mesh, const Cuts& batch) {
  int64_t ranks = 1;
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    const MeshAxis& one = mesh.axes[axis];
    if (one.kind == MeshAxis::Kind::rank && find_cut(batch, static_cast<int>(axis))) ranks *= one.size;
  }
  return ranks;
}

}  // namespace

Status bind_dataset(Dataset& dataset, const Entry& entry) { return dataset.bind(inputs_of(entry)); }

Status bind_slice(Dataset& dataset, const CompiledPlan& plan, const Entry& entry, int first_rank, int ranks) {
  std::vector<SampleRange> parts;
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    const Port& port = entry.inputs[i];
    SampleRange part = samples_read(plan, entry, i, first_rank, ranks);
    const int dim = entry.samples.inputs[i];
    const bool is_whole = part.count == 0 || dim < 0 || part.count == entry.samples.batch;
    if (!is_whole && dim != 0) {
      return unsupported("samples of input ", port.name, " (", port.global_type.text(), ") lie in dimension ", dim,
                         "; a dataset gives slices of dimension 0")
          .at(port.name);
    }
    // Whole: all rows, which need not be samples.
    if (is_whole && part.count > 0) part = {0, port.global_type.ndim() > 0 ? port.global_type.shape[0] : 1};
    parts.push_back(part);
  }
  return dataset.bind(inputs_of(entry), parts);
}

Result<std::string> deal_files(Dataset& dataset, const Entry& entry) {
  if (entry.kind != EntryKind::train) return std::string();
  const Strategy& strategy = entry.plan.strategy;
  const auto wants = [&](std::string_view key) {
    const Attribute* value = strategy.config.find(key);
    return value && std::get<bool>(*value);
  };
  const SliceOptions options{.unbalanced = wants("io.unbalanced_io_slicing"),
                             .drop_last_files = wants("io.drop_last_files")};
  if (!wants("io.slicing")) {
    if (options.unbalanced || options.drop_last_files)
      return invalid(
          "io.unbalanced_io_slicing and io.drop_last_files say how files are dealt, which io.slicing asks for");
    EPL_TRY(dataset.slice(1, {}));
    return std::string();
  }
  if (options.unbalanced && options.drop_last_files)
    return invalid("io.unbalanced_io_slicing and io.drop_last_files exclude each other");
  int64_t replicas = 1;
  for (int t = 0; t < static_cast<int>(entry.plan.task_graphs.size()); ++t)
    replicas = std::max(replicas, replicas_in(entry.plan.mesh(t), entry.plan.batch_of(t)));
  if (entry.plan.apart && replicas > 1) {
    EPL_TRY(dataset.slice(1, {}));
    return std::string(
        "io.slicing: with batch.semantics = per_micro_batch each micro-batch is a run of samples that all replicas "
        "share, so each takes its part of batches of all files");
  }
  const Slices dealt(dataset.reader().file_samples(), replicas, options);
  if (replicas > 1 && !dealt.refused().empty() && !dataset.reader().file_samples().empty()) {
    EPL_TRY(dataset.slice(1, {}));
    return cat("io.slicing: ", dealt.refused(), "; so each replica takes its part of batches of all files");
  }
  EPL_TRY(dataset.slice(replicas, options));
  return std::string();
}

Status check_dataset(const Dataset& dataset, const Entry& entry, const Stop& stop) {
  for (const InputBound& bound : entry.bounds) {
    const int field = dataset.find(entry.inputs[static_cast<size_t>(bound.input)].name);
    if (field >= 0) EPL_TRY(check_field(dataset, field, bound, stop));
  }
  return {};
}

}  // namespace epl
