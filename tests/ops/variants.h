// Generated samples: those of a record in other sizes, with other flags, and with operands transposed. What is special
// about a size of 0 or 1 (strides that say nothing, dimensions that merge, sums of nothing) nobody thinks of when
// writing a record.
#pragma once

#include <algorithm>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "core/ir/op.h"
#include "core/ir/text.h"
#include "core/ops/sample.h"

namespace epl {

// What a failure prints of them.
inline void PrintTo(const TensorType& type, std::ostream* out) { *out << type.text(); }
inline void PrintTo(const OpDef* op, std::ostream* out) { *out << op->name; }

struct Variant {
  std::string text;  // how it came from the sample, for messages
  Sample sample;
  bool shrinks_unshardable =
      false;  // a dimension that is taken in full is smaller than in the sample: indices may lie outside
};

inline Result<ShardingRule> rule_of(const OpDef& op, const Sample& sample, OutputTypes& outputs) {
  EPL_ASSIGN(outputs, infer_types(op, sample.attributes, sample.types()));
  std::vector<const TensorType*> types;
  for (const TensorType& type : outputs) types.push_back(&type);
  return sharding_rule(OpQuery(op, sample.attributes, sample.types(), types));
}

inline bool has_factor(const ShardingRule::Dim& dim, int factor) { return std::ranges::find(dim, factor) != dim.end(); }

// The sample with all dimensions that the factors are part of in another size; attributes that hold sizes follow.
inline Sample resized(const OpDef& op, const Sample& sample, const ShardingRule& rule, const OutputTypes& outputs,
                      const std::vector<int>& factors, int64_t size) {
  Sample other = sample;
  const auto resize = [&](const ShardingRule::Operand& dims, TensorType type) {
    for (size_t d = 0; d < dims.size(); ++d)
      for (int f : factors)
        if (has_factor(dims[d], f)) type.shape[d] = type.shape[d] / rule.factors[f].size * size;
    return type;
  };
  std::vector<TensorType> input_types, output_types;
  for (size_t i = 0; i < other.operands.size(); ++i) {
    if (other.operands[i].present) other.operands[i].type = resize(rule.inputs[i], other.operands[i].type);
    input_types.push_back(other.operands[i].present ? other.operands[i].type : TensorType{});
  }
  for (size_t i = 0; i < outputs.size(); ++i) output_types.push_back(resize(rule.outputs[i], outputs[i]));
  if (op.localize) op.localize(other.attributes, input_types, output_types);
  return other;
}

inline bool fits(const OpDef& op, const Sample& sample) {
  OutputTypes outputs;
  return rule_of(op, sample, outputs).ok();
}

// Every combination of boolean attributes, and every choice of operands with their last two dimensions swapped, that
// the op accepts.
inline std::vector<Variant> flag_variants(const OpDef& op, const std::string& text, const Sample& sample) {
  std::vector<Variant> out;
  std::vector<std::string> flags;
  for (const Attributes::Entry& entry : sample.attributes.entries())
    if (std::holds_alternative<bool>(entry.value)) flags.push_back(entry.name);
  std::vector<size_t> swappable;
  for (size_t i = 0; i < sample.operands.size() && swappable.size() < 3; ++i)
    if (sample.operands[i].present && sample.operands[i].type.ndim() >= 2) swappable.push_back(i);
  if (flags.empty()) swappable.clear();
  for (uint64_t set = 0; set < uint64_t{1} << flags.size(); ++set)
    for (uint64_t swap = 0; swap < uint64_t{1} << swappable.size(); ++swap) {
      Variant v{text, sample, false};
      for (size_t f = 0; f < flags.size(); ++f) {
        v.sample.attributes.set(flags[f], (set >> f & 1) != 0);
        v.text += cat(" ", flags[f], "=", set >> f & 1);
      }
      for (size_t s = 0; s < swappable.size(); ++s) {
        if (!(swap >> s & 1)) continue;
        Shape& shape = v.sample.operands[swappable[s]].type.shape;
        std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
        v.text += cat(" swapped ", swappable[s]);
      }
      if (fits(op, v.sample)) out.push_back(std::move(v));
    }
  return out;
}

inline std::string key_of(const Sample& sample) {
  std::string key = attributes_text(sample.attributes);
  for (const SampleOperand& o : sample.operands) key += cat(o.present ? o.type.text() : "-", " ");
  return key;
}

// The samples of an op with each dimension, and each part of one, in the sizes given, alone and (`pairs`) two at a
// time, under every flag and transposition. No two are alike; where there would be more than `most`, these are spread
// evenly.
inline std::vector<Variant> variants(const OpDef& op, const std::vector<int64_t>& sizes, bool pairs, size_t most) {
  std::vector<Variant> out;
  std::set<std::string> known;
  const auto keep = [&](Variant v) {
    if (fits(op, v.sample) && known.insert(key_of(v.sample)).second) out.push_back(std::move(v));
  };
  for (const std::string& text : op.samples) {
    auto sample = parse_sample(op, text);
    if (!sample.ok()) continue;
    for (const Variant& base : flag_variants(op, text, *sample)) {
      OutputTypes outputs;
      auto rule = rule_of(op, base.sample, outputs);
      if (!rule.ok()) continue;
      keep(base);
      const auto shrinks = [&](size_t f, int64_t size) {
        return rule->factors[f].unshardable && size < rule->factors[f].size;
      };
      for (size_t f = 0; f < rule->factors.size(); ++f) {
        // Full dimensions of equal size may belong together, which their factors do not say.
        std::vector<int> together;
        for (size_t g = 0; g < rule->factors.size(); ++g)
          if (rule->factors[g].size == rule->factors[f].size &&
              (g == f || (rule->factors[g].unshardable && rule->factors[f].unshardable)))
            together.push_back(static_cast<int>(g));
        if (rule->factors[f].size == 0) continue;
        for (int64_t size : sizes) {
          keep({cat(base.text, " factor ", f, " of ", size),
                resized(op, base.sample, *rule, outputs, {static_cast<int>(f)}, size), shrinks(f, size)});
          if (together.size() > 1)
            keep({cat(base.text, " factors like ", f, " of ", size),
                  resized(op, base.sample, *rule, outputs, together, size), shrinks(f, size)});
        }
        for (size_t g = 0; pairs && g < f; ++g) {
          if (rule->factors[g].size == 0) continue;
          for (int64_t size : sizes) {
            Sample both = resized(op, base.sample, *rule, outputs, {static_cast<int>(f), static_cast<int>(g)}, size);
            keep({cat(base.text, " factors ", g, " and ", f, " of ", size), std::move(both),
                  shrinks(f, size) || shrinks(g, size)});
          }
        }
      }
    }
  }
  if (out.size() <= most) return out;
  std::vector<Variant> some;
  for (size_t i = 0; i < most; ++i) some.push_back(std::move(out[i * out.size() / most]));
  return some;
}

}  // namespace epl
