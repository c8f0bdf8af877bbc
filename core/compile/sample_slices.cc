#include "core/compile/sample_slices.h"

#include <algorithm>

#include "core/program/shards.h"

namespace epl {
namespace {

// Widens `range` by what cuts of a dimension of samples leave to a rank in all its micro-batches.
void add_samples(const Cuts& cuts, const Mesh& mesh, int rank, int64_t batch, SampleRange& range) {
  const TensorType samples{DType::u8, {batch}};
  Sharding sharding;
  sharding.dims = {cuts};
  for (int64_t m = 0; m < mesh.size(micro_batch_axis); ++m) {
    for_each_run(samples, sharding, mesh, mesh.coordinates(rank, m),
                 [&](int64_t first, int64_t, int64_t count) { range = range.with({first, count}); });
  }
}

}  // namespace

SampleRange samples_read(const CompiledPlan& plan, const Entry& entry, size_t input, int first_rank, int ranks) {
  SampleRange range;
  for (int rank = first_rank; rank < first_rank + ranks; ++rank) {
    const int at = plan.virtual_device_of_rank(rank);
    const std::vector<ProgramPort>& ports = entry.programs[static_cast<size_t>(at)].inputs;
    const auto port = std::ranges::find(ports, static_cast<int>(input), &ProgramPort::index);
    if (port == ports.end()) continue;
    const int dim = port->dim();
    if (dim < 0 || port->sharding.outer(batch_axis) != 1) return {0, entry.samples.batch};
    add_samples(port->sharding.dims[static_cast<size_t>(dim)], entry.mesh(at), rank, entry.samples.batch, range);
  }
  return range;
}

SampleRange samples_of_ranks(const CompiledPlan& plan, const Entry& entry, int first_rank, int ranks) {
  SampleRange range;
  for (int rank = first_rank; rank < first_rank + ranks && entry.samples.batch > 0; ++rank) {
    const int at = plan.virtual_device_of_rank(rank);
    add_samples(entry.programs[static_cast<size_t>(at)].batch.cuts(), entry.mesh(at), rank, entry.samples.batch, range);
  }
  return range;
}

TensorType slice_type(const Entry& entry, size_t input, SampleRange samples) {
  const TensorType& type = entry.inputs[input].global_type;
  const int dim = entry.samples.inputs[input];
  return dim < 0 ? type : partial_type(type, dim, entry.samples.batch, samples.count);
}

}  // namespace epl
