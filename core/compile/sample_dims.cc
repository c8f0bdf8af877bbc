#include "core/compile/sample_dims.h"

#include <algorithm>
#include <cstring>

namespace epl {
namespace {

// Values that rest on a sum over the batch, so that no sample's share of them is its own. Where each sample is a
// micro-batch that is independent there are none.
ByValue<bool> mixed_values(const Plan& plan) {
  const Graph& graph = *plan.graph;
  ByValue<bool> carries(graph.value_count()), mixed = carries;
  if (plan.single_samples()) return mixed;
  for (Value v : graph.leaves(ValueKind::input)) carries[v] = graph.value(v).batch_dim >= 0;
  for (const Node& node : graph.nodes()) {
    bool any = false, mixes = false;
    for (Value v : node.inputs) {
      if (!v) continue;
      any = any || carries[v];
      mixes = mixes || mixed[v];
    }
    for (Value v : node.outputs) {
      if (!v) continue;
      carries[v] = any;
      // What comes of samples and has no dimension for them is of all of them together.
      mixed[v] = mixes || (any && plan.shardings[v].cut_dim(batch_axis) < 0);
    }
  }
  return mixed;
}

// A tensor seen from its sample dimension: `outer` runs of `run` bytes for each full batch.
struct Runs {
  int64_t outer = 1, run = 0;
};
Runs runs_of(const TensorType& type, int dim) {
  Runs runs{1, static_cast<int64_t>(dtype_bytes(type.dtype))};
  for (int d = 0; d < type.ndim(); ++d) (d < dim ? runs.outer : runs.run) *= type.shape[static_cast<size_t>(d)];
  return runs;
}

}  // namespace

SampleDims sample_dims(const Plan& plan) {
  SampleDims dims;
  dims.batch = plan.batch;
  const Graph& graph = *plan.graph;
  for (Value v : graph.leaves(ValueKind::input)) dims.inputs.push_back(graph.value(v).batch_dim);
  const ByValue<bool> mixed = mixed_values(plan);
  for (const Graph::Output& output : graph.outputs) {
    const Sharding& sharding = plan.shardings[output.value];
    const int dim = sharding.outer(batch_axis) == 1 ? sharding.cut_dim(batch_axis)
                                                    : -1;  // else each step of a sequence has its own run of samples
    const bool full =
        dim >= 0 && plan.batch > 0 && plan.global_type(output.value).shape[static_cast<size_t>(dim)] % plan.batch == 0;
    dims.outputs.push_back(full && !mixed[output.value] ? dim : -1);
  }
  return dims;
}

TensorType partial_type(const TensorType& type, int dim, int64_t batch, int64_t samples) {
  TensorType part = type;
  part.shape[static_cast<size_t>(dim)] = type.shape[static_cast<size_t>(dim)] / batch * samples;
  return part;
}

void pad_samples(const Tensor& part, int dim, Tensor& full) {
  const Runs from = runs_of(part.type(), dim), to = runs_of(full.type(), dim);
  const int64_t sample = from.run / part.shape()[static_cast<size_t>(dim)];
  const auto* source = static_cast<const std::byte*>(part.data());
  auto* target = static_cast<std::byte*>(full.data());
  for (int64_t i = 0; i < to.outer; ++i, source += from.run, target += to.run) {
    std::memcpy(target, source, static_cast<size_t>(from.run));
    for (int64_t at = from.run; at < to.run; at += sample)
      std::memcpy(target + at, source + from.run - sample, static_cast<size_t>(sample));
  }
}

Tensor first_samples(const Tensor& full, int dim, int64_t batch, int64_t samples) {
  if (samples == batch) return full;
  const TensorType type = partial_type(full.type(), dim, batch, samples);
  // The view keeps the full tensor alive.
  if (runs_of(type, dim).outer == 1) return Tensor(type, std::make_shared<const Tensor>(full), full.data());
  return take_samples(full, dim, batch, 0, samples);
}

Tensor take_samples(const Tensor& full, int dim, int64_t batch, int64_t first, int64_t count) {
  Tensor out(partial_type(full.type(), dim, batch, count));
  const Runs from = runs_of(full.type(), dim), to = runs_of(out.type(), dim);
  const auto* source = static_cast<const std::byte*>(full.data()) + from.run / batch * first;
  for (int64_t i = 0; i < to.outer; ++i)
    std::memcpy(static_cast<std::byte*>(out.data()) + i * to.run, source + i * from.run, static_cast<size_t>(to.run));
  return out;
}

void put_samples(const Tensor& part, int dim, int64_t batch, int64_t first, Tensor& full) {
  const Runs from = runs_of(part.type(), dim), to = runs_of(full.type(), dim);
  auto* target = static_cast<std::byte*>(full.data()) + to.run / batch * first;
  for (int64_t i = 0; i < to.outer; ++i)
    std::memcpy(target + i * to.run, static_cast<const std::byte*>(part.data()) + i * from.run,
                static_cast<size_t>(from.run));
}

}  // namespace epl
