#include "core/program/padding.h"

#include <algorithm>
#include <limits>

namespace epl {

int64_t Padding::outer(const AxisCut& cut) const {
  int64_t outer = cut.outer;
  for (const AxisCut& major : cuts_) {
    if (major.of > 0 && major.outer < cut.outer) outer = outer / major.of * granules(major);
  }
  return outer;
}

std::vector<ReadPadding> padding_before(const Graph& graph, const Node& node, const ExtendedRule& rule,
                                        const NodeSharding& sharding, const std::vector<Sharding>& operands) {
  std::vector<ReadPadding> found;
  const Attribute* ignored = node.attributes.find("ignore_index");
  for (size_t f = 0; f < sharding.factors.size(); ++f) {
    const int factor = static_cast<int>(f);
    const auto lacks = [&](const ShardingRule::Operand& output) { return !stands_in(output, factor); };
    if (std::ranges::none_of(rule.rule.outputs, lacks)) continue;
    // What is gathered is never padding.
    if (rule.row && rule.row->indices >= 0 && f >= rule.added) continue;
    for (const AxisCut& cut : sharding.factors[f]) {
      if (cut.of == 0) continue;
      for (size_t i = 0; i < operands.size(); ++i) {
        for (size_t d = 0; d < operands[i].dims.size(); ++d) {
          const auto& dim = rule.rule.inputs[i][d];
          if (std::ranges::find(dim, factor) == dim.end()) continue;
          found.push_back({i, d, *find_cut(operands[i].dims[d], cut.axes.front()), rule.rule.factors[f].reduce});
          if (ignored && is_integer(graph.type(node.inputs[i]).dtype))
            found.back().ignored = std::get<int64_t>(*ignored);
        }
      }
    }
  }
  return found;
}

std::vector<ReadPadding> padding_of(const Sharding& sharding) {
  std::vector<ReadPadding> found;
  for (size_t d = 0; d < sharding.dims.size(); ++d) {
    for (const AxisCut& cut : sharding.dims[d]) {
      if (cut.of > 0) found.push_back({.dim = d, .cut = cut});
    }
  }
  return found;
}

Shape in_granules(const Mesh& mesh, const Shape& local, const Sharding& sharding, size_t dim, const AxisCut& cut) {
  Shape shape = {mesh.local_outer(cut.outer, sharding.dims[dim]), mesh.granules_of_shard(cut), 1};
  shape[2] = local[dim] / shape[0] / shape[1];
  for (size_t d = 0; d < dim; ++d) shape[0] *= local[d];
  for (size_t d = dim + 1; d < local.size(); ++d) shape[2] *= local[d];
  return shape;
}

Tensor neutral(const ReadPadding& read, DType dtype) {
  Tensor value(TensorType{dtype, {}});
  if (read.ignored) {
    value.set_int(0, *read.ignored);
    return value;
  }
  if (read.kind == ShardingRule::Reduce::sum) {
    is_float(dtype) ? value.set(0, 0) : value.set_int(0, 0);
    return value;
  }
  const bool largest = read.kind == ShardingRule::Reduce::min;
  if (is_float(dtype)) {
    value.set(0, largest ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity());
    return value;
  }
  const auto bits = static_cast<int>(8 * dtype_bytes(dtype));
  const bool is_signed = dtype == DType::i8 || dtype == DType::i16 || dtype == DType::i32 || dtype == DType::i64;
  const uint64_t ones = std::numeric_limits<uint64_t>::max() >> (64 - bits + (is_signed ? 1 : 0));
  const auto most = dtype == DType::boolean ? int64_t{1} : static_cast<int64_t>(ones);
  const int64_t least = is_signed ? -most - 1 : 0;
  value.set_int(0, largest ? most : least);
  return value;
}

}  // namespace epl
