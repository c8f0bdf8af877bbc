// Shards of an op's operands by the factors of its sharding rule.
#pragma once

#include "tests/ops/variants.h"

namespace epl {

struct Shard {
  Attributes attributes;
  std::vector<Tensor> inputs;
  std::vector<TensorType> outputs;
  uint64_t first_element = 0;  // of the full result, for random ops
};

// The shard [begin, begin + count) of every part of one factor, which is `outer` parts.
struct Cut {
  const ShardingRule& rule;
  int factor;
  int64_t begin, count, outer = 1;

  bool cuts(const ShardingRule::Operand& dims) const {
    return std::ranges::any_of(dims, [&](const ShardingRule::Dim& dim) { return has_factor(dim, factor); });
  }
  int64_t size() const { return rule.factors[factor].size; }
  TensorType type(const ShardingRule::Operand& dims, TensorType type) const {
    for (size_t d = 0; d < dims.size(); ++d)
      if (has_factor(dims[d], factor)) type.shape[d] = type.shape[d] / size() * count * outer;
    return type;
  }
  // Index in the full dimension of local index i: dimensions are products of factors, major first.
  int64_t global_index(const ShardingRule::Dim& dim, int64_t i) const {
    int64_t index = 0, scale = 1;
    for (size_t k = dim.size(); k-- > 0;) {
      const int64_t full = rule.factors[dim[k]].size, local = dim[k] == factor ? count * outer : full;
      const int64_t at = i % local;
      index += (dim[k] == factor ? at / count * (full / outer) + begin + at % count : at) * scale;
      i /= local;
      scale *= full;
    }
    return index;
  }
  Tensor shard(const ShardingRule::Operand& dims, const Tensor& full) const {
    if (!cuts(dims)) return full;
    Tensor local(type(dims, full.type()));
    const Shape& shape = local.shape();
    for (int64_t i = 0; i < local.elements(); ++i) {
      int64_t rest = i, at = 0, scale = 1;
      for (size_t d = shape.size(); d-- > 0;) {
        const int64_t index = rest % shape[d];
        rest /= shape[d];
        at += (dims[d].empty() ? index : global_index(dims[d], index)) * scale;
        scale *= full.shape()[d];
      }
      is_float(full.dtype()) ? local.set(i, full.get(at)) : local.set_int(i, full.get_int(at));
    }
    return local;
  }

  // What a rank that has this shard computes it from.
  Shard of(const OpDef& op, const Attributes& attributes, const std::vector<Tensor>& inputs,
           const std::vector<Tensor>& outputs) const {
    Shard local{.attributes = attributes, .inputs = {}, .outputs = {}};
    std::vector<TensorType> input_types;
    for (size_t i = 0; i < inputs.size(); ++i) {
      local.inputs.push_back(inputs[i].empty() ? Tensor() : shard(rule.inputs[i], inputs[i]));
      input_types.push_back(local.inputs[i].type());
    }
    for (size_t i = 0; i < outputs.size(); ++i) local.outputs.push_back(type(rule.outputs[i], outputs[i].type()));
    if (op.localize) op.localize(local.attributes, input_types, local.outputs);
    for (size_t d = 0; d < outputs[0].shape().size(); ++d)
      if (has_factor(rule.outputs[0][d], factor))
        local.first_element = static_cast<uint64_t>(begin * elements_behind(outputs[0].shape(), d));
    return local;
  }
  static int64_t elements_behind(const Shape& shape, size_t dim) {
    return element_count(Shape(shape.begin() + static_cast<long>(dim) + 1, shape.end()));
  }
};

}  // namespace epl
