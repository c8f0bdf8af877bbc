#include "core/ops/documentation.h"

#include <algorithm>

#include "core/ir/op.h"
#include "core/ir/piece_rule.h"
#include "core/ir/text.h"
#include "core/ops/sample.h"

namespace epl {
namespace {

std::string attributes_of(const OpDef& op) {
  std::string text;
  for (const Option& spec : op.attributes) {
    text += cat(text.empty() ? "" : ", ", "`", spec.name, "` ");
    text += spec.required ? std::string("(required)") : cat("= ", attribute_text(spec.value));
  }
  return text;
}

std::string gradient_of(const OpDef& op) {
  std::string text = op.gradient               ? "yes"
                     : !op.no_gradient.empty() ? cat("none: ", op.no_gradient)
                     : op.body                 ? "through the body"
                                               : "none";
  if (!op.no_gradient.empty()) return text;
  for (int i : op.no_gradient_inputs) text += cat("; never for operand ", i);
  return text;
}

// Factors as letters, unshardable ones in capitals; a dimension of several factors in parentheses.
char letter(const ExtendedRule& rule, size_t f) {
  const bool whole = rule.rule.factors[f].unshardable && f < rule.added;
  return static_cast<char>((whole ? 'A' : 'a') + static_cast<int>(f) % 26);
}
std::string operand_text(const ExtendedRule& rule, const ShardingRule::Operand& dims) {
  std::string text;
  for (const ShardingRule::Dim& dim : dims) {
    std::string letters;
    for (int f : dim) letters += letter(rule, static_cast<size_t>(f));
    text += cat(text.empty() ? "" : " ", dim.empty() ? "1" : dim.size() == 1 ? letters : cat("(", letters, ")"));
  }
  return text.empty() ? "." : text;
}

// The rule of the first sample.
std::string sharding_of(const OpDef& op) {
  if (op.samples.empty()) return {};
  auto sample = parse_sample(op, op.samples[0]);
  EPL_CHECK(sample.ok(), sample.status().to_string());
  auto outputs = infer_types(op, sample->attributes, sample->types());
  EPL_CHECK(outputs.ok(), outputs.status().to_string());
  std::vector<const TensorType*> types;
  for (const TensorType& type : *outputs) types.push_back(&type);
  auto extended = extended_rule(OpQuery(op, sample->attributes, sample->types(), types));
  EPL_CHECK(extended.ok(), extended.status().to_string());
  const ShardingRule* rule = &extended->rule;
  std::string text = cat("`", op.samples[0], "`: `");
  for (size_t i = 0; i < rule->inputs.size(); ++i) {
    text += cat(i ? ", " : "", sample->operands[i].present ? operand_text(*extended, rule->inputs[i]) : "-");
  }
  text += " -> ";
  for (size_t i = 0; i < rule->outputs.size(); ++i)
    text += cat(i ? ", " : "", operand_text(*extended, rule->outputs[i]));
  text += "`";
  std::string added;
  for (size_t f = extended->added; f < rule->factors.size(); ++f) added += letter(*extended, f);
  if (added.empty()) return text;
  const PieceRule& row = *extended->row;
  return cat(text,
             row.indices >= 0  ? "; ranks pick what they have along `"
             : row.counts >= 0 ? "; ranks count their elements along `"
             : row.sums        ? "; ranks sum in an order of their own along `"
                               : "; its body is cut along `",
             added, "`");
}

std::string kind_of(const OpDef& op) {
  std::string kind = op.boundary        ? "boundary"
                     : op.elementwise() ? "elementwise"
                     : op.reference     ? "primitive"
                                        : "composite";
  if (op.random) kind += ", random";
  if (op.view) kind += ", view";
  return kind;
}

}  // namespace

std::string op_documentation() {
  std::string out =
      "# Ops\n\nMade from the records in `core/ops`; do not edit. A trailing `?` marks an optional operand, `*` any "
      "number of them.\n"
      "*Cuts* shows how the dimensions of the first sample correspond: one letter a factor, capitals may not be cut, a "
      "factor\n"
      "that a result lacks is summed over (or reduced by maximum or minimum), `1` is a dimension of size one, `.` a "
      "scalar.\n";
  for (const OpDef* op : op_table().all()) {
    out += cat("\n## ", op->name, "\n\n`", op->signature, "` (", kind_of(*op), ")\n\n", op->doc, "\n\n");
    if (!op->attributes.empty()) out += cat("- Attributes: ", attributes_of(*op), "\n");
    out += cat("- Gradient: ", gradient_of(*op), "\n");
    if (const std::string cuts = sharding_of(*op); !cuts.empty()) out += cat("- Cuts: ", cuts, "\n");
  }
  return out;
}

}  // namespace epl
