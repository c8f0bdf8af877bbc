#include "core/program/local_writer.h"

#include "core/program/batch_runs.h"

namespace epl {

Value LocalWriter::append(const Move& move, std::string name, std::vector<Value> operands, Phase phase) const {
  Node node{.name = std::move(name), .op = &op_named(move.op), .attributes = move.attributes};
  node.inputs = std::move(operands);
  if (move.factor != 1) {
    const std::string factor = local_.graph.unique_name(cat(node.name, ".factor"));
    node.inputs.push_back(local_.graph.add_constant(factor, Tensor::scalar(move.type.dtype, move.factor)));
  }
  node.phase = this->phase(phase);
  node.region = block_;
  std::vector<TensorType> types;
  if (move.gives) types.push_back(move.type);
  const Node& made = local_.graph.node(local_.graph.add_node(std::move(node), types));
  return move.gives ? made.outputs[0] : Value{};
}

Value LocalWriter::append(const std::vector<Move>& moves, const std::string& name, Value v, Phase phase) const {
  for (const Move& move : moves) v = append(move, cat(name, move.suffix), {v}, phase);
  return v;
}

Value LocalWriter::sum(std::vector<Value> runs, const std::string& name, Phase phase) const {
  const Move add{.op = "add", .type = type(runs[0])};
  while (runs.size() > 1) {
    std::vector<Value> sums;
    for (size_t i = 0; i < runs.size(); i += 2) {
      const bool pair = i + 1 < runs.size();
      sums.push_back(pair ? append(add, name, {runs[i], runs[i + 1]}, phase) : runs[i]);
    }
    runs = std::move(sums);
  }
  return runs[0];
}

Value LocalWriter::join(const std::vector<Value>& runs, const Sharding& sharding, const Node& old, int axis,
                        int64_t inside) const {
  const int dim = sharding.cut_dim(axis);
  const auto count = static_cast<int64_t>(runs.size());
  const RunJoin join = join_runs(mesh(), type(runs[0]), sharding.dims[dim], dim, count, inside);
  std::vector<Value> views;
  for (Value v : runs) views.push_back(append(join.each, cat(old.name, join.each.suffix), {v}, old.phase));
  const Value all = append(join.joined, cat(old.name, join.joined.suffix), views, old.phase);
  return append(join.all, cat(old.name, join.all.suffix), {all}, old.phase);
}

Result<Value> LocalWriter::of_shard(const Tensor& all, const std::vector<int>& axes, const Node& old) const {
  const Value table = local_.graph.add_constant(local_.graph.unique_name(cat(old.name, ".firsts")), all);
  const Sharding replicated{.dims = {{}}}, own{.dims = {{{.axes = axes}}}};
  EPL_ASSIGN(const std::vector<Move> moves, reshard(mesh(), batch(), all.type(), replicated, own));
  Value first = table;
  for (const Move& move : moves) first = append(move, cat(old.name, ".first"), {first}, old.phase);
  return first;
}

}  // namespace epl
