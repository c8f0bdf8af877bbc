#include "core/program/shard_nodes.h"

#include "core/base/philox.h"
#include "core/ir/partition_rule.h"

namespace epl {

Status count_over_time(const LocalWriter& w, const Graph& global, Node& node) {
  const PartitionRule* row = partition_rule_table().find(node.op->name);
  if (!row || row->counts < 0)
    return unsupported("batch.semantics = per_micro_batch cannot be had: op ", node.op->name,
                       " draws the random numbers of all samples in one order")
        .at(node.name);
  const int64_t count = global.type(node.outputs[0]).elements();
  Tensor firsts({DType::i64, {w.mesh().size(micro_batch_axis)}});
  for (int64_t m = 0; m < firsts.elements(); ++m) firsts.set_int(m, m * count);
  node.inputs.resize(static_cast<size_t>(row->counts) + 1);
  EPL_ASSIGN(node.inputs.back(), w.of_shard(firsts, {w.mesh().find(micro_batch_axis)}, node));
  node.attributes.set("run", count);
  node.attributes.set("stride", count);
  return {};
}

Status count_on(const LocalWriter& w, const Plan& plan, Node& node, const ShardCut& cut,
                const OperandShardings& operands) {
  const TensorType& all_type = plan.graph->type(node.outputs[0]);
  const Sharding& lies = operands.outputs[0];
  const auto dim = static_cast<size_t>(lies.cut_dim(cut.axes.front()));
  const Shape& shape = all_type.shape;
  int64_t stride = shape[dim] / lies.outer(cut.axes.front());
  for (size_t d = dim + 1; d < shape.size(); ++d) stride *= shape[d];
  const int64_t shards = w.mesh().shards(cut.axes);
  // Where shards are uneven, the numbers of padding are those of what comes behind it.
  const AxisCut& of_dim = *find_cut(lies.dims[dim], cut.axes.front());
  const int64_t run = of_dim.of > 0 ? stride / of_dim.of * w.mesh().granules_of_shard(of_dim) : stride / shards;
  // What draws in full does so anew for each micro-batch that is independent.
  const Attribute* full = node.attributes.find(draws_in_full);
  const bool anew = plan.independent_micro_batches && full && std::get<bool>(*full);
  const int64_t iterations = anew ? w.mesh().size(micro_batch_axis) : 1, all = all_type.elements();
  Tensor firsts({DType::i64, {iterations * shards}});
  for (int64_t i = 0; i < iterations * shards; ++i) firsts.set_int(i, i / shards * all + i % shards * run);
  std::vector<int> axes = cut.axes;
  if (anew) axes.insert(axes.begin(), w.mesh().find(micro_batch_axis));
  node.inputs.resize(static_cast<size_t>(cut.rule.row->counts) + 1);
  EPL_ASSIGN(node.inputs.back(), w.of_shard(firsts, axes, node));
  node.attributes.set("run", run);
  node.attributes.set("stride", stride);
  return {};
}

Result<Value> own_rows(const LocalWriter& w, Value& indices, const ShardCut& cut, const Node& old) {
  const Cuts cuts = {{.axes = cut.axes, .of = cut.of}};
  const int64_t shards = w.mesh().shards(cut.axes), rows = w.mesh().local_size(cut.size(), cuts);
  const DType dtype = w.type(indices).dtype;
  Tensor firsts({dtype, {shards}});
  for (int64_t p = 0; p < shards; ++p) firsts.set_int(p, p * rows);
  EPL_ASSIGN(const Value first, w.of_shard(firsts, cut.axes, old));
  return w.write(old, ".own", [&](Builder& b) {
    const OwnIndices made = own_indices(b, b.var(indices), b.reshape(b.var(first), {}), rows, cut.size(), cut.of > 0);
    indices = made.indices.value();
    return made.elsewhere.value();
  });
}

Value zero_elsewhere(const LocalWriter& w, Value given, Value elsewhere, const ShardCut& cut, size_t o,
                     const Node& old) {
  const Shape& indices = w.type(elsewhere).shape;
  const bool alike = indices == w.type(given).shape;  // one for each element
  const Shape shape = alike ? indices : cut.beside(o, indices);
  return w.write(old, ".here", [&](Builder& b) {
    const Var y = b.var(given);
    return b.select(b.reshape(b.var(elsewhere), shape), b.like(y, -0.0), y).value();
  });
}

}  // namespace epl
