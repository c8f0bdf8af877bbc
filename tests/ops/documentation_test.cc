// docs/ops.md, from the records: each op by name with its signature, meaning, attributes with defaults, gradient, and
// how one sample may be cut. Run with EPL_UPDATE_DOCS=1 to write the page again.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "core/ir/op.h"
#include "core/ir/partition_rule.h"
#include "core/ir/text.h"
#include "core/ops/sample.h"
#include "tests/page.h"

namespace epl::documentation_test {
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
  const bool unshardable = rule.rule.factors[f].unshardable && f < rule.added;
  return static_cast<char>((unshardable ? 'A' : 'a') + static_cast<int>(f) % 26);
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

// How one sample is cut, and how many of the factors that stand in its operands may be.
struct SampleCuts {
  std::string text;
  int cut = 0, all = 0;
};

SampleCuts cuts_of(const OpDef& op, const std::string& sample_text) {
  auto sample = parse_sample(op, sample_text);
  EPL_CHECK(sample.ok(), sample.status().to_string());
  auto outputs = infer_types(op, sample->attributes, sample->types());
  EPL_CHECK(outputs.ok(), outputs.status().to_string());
  std::vector<const TensorType*> types;
  for (const TensorType& type : *outputs) types.push_back(&type);
  auto extended = extended_rule(OpQuery(op, sample->attributes, sample->types(), types));
  EPL_CHECK(extended.ok(), extended.status().to_string());
  const ShardingRule* rule = &extended->rule;
  SampleCuts found{.text = cat("`", sample_text, "`: `")};
  std::set<int> standing;
  const auto note = [&](const ShardingRule::Operand& dims) {
    for (const ShardingRule::Dim& dim : dims) standing.insert(dim.begin(), dim.end());
    return operand_text(*extended, dims);
  };
  for (size_t i = 0; i < rule->inputs.size(); ++i)
    found.text += cat(i ? ", " : "", sample->operands[i].present ? note(rule->inputs[i]) : "-");
  found.text += " -> ";
  for (size_t i = 0; i < rule->outputs.size(); ++i) found.text += cat(i ? ", " : "", note(rule->outputs[i]));
  found.text += "`";
  std::string added, windows;
  for (int f : standing) {
    const bool is_added = static_cast<size_t>(f) >= extended->added;
    found.cut += is_added || !rule->factors[static_cast<size_t>(f)].unshardable;
    if (is_added) (extended->window(f) >= 0 ? windows : added) += letter(*extended, static_cast<size_t>(f));
  }
  found.all = static_cast<int>(standing.size());
  if (!added.empty()) {
    const PartitionRule& row = *extended->row;
    found.text += cat(row.indices >= 0  ? "; ranks index what they have along `"
                      : row.counts >= 0 ? "; ranks count their elements along `"
                      : row.sums        ? "; ranks sum in an order of their own along `"
                                        : "; its body is cut along `",
                      added, "`");
  }
  if (!windows.empty()) found.text += cat("; windows read over the borders of shards along `", windows, "`");
  return found;
}

// Of the sample that may be cut most.
std::string sharding_of(const OpDef& op) {
  if (op.boundary) return "none: a plan inserts it where cuts meet";
  if (op.takes_any_operands) return "none: it looks at each operand by itself, so at shards as they are";
  SampleCuts best;
  for (const std::string& sample : op.samples) {
    SampleCuts cuts = cuts_of(op, sample);
    if (best.text.empty() || cuts.cut > best.cut) best = std::move(cuts);
  }
  return cat(best.cut, " of ", best.all, best.all == 1 ? " factor; " : " factors; ", best.text);
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

std::string op_documentation() {
  std::string out =
      "# Ops\n\nMade from the records in `core/ops`; do not edit. A trailing `?` marks an optional operand, `*` any "
      "number of them.\n"
      "*Cuts* counts the factors that may be cut, of those of the sample that may be cut most, and shows how its "
      "dimensions\n"
      "correspond: one letter a factor, capitals may not be cut, a factor that a result lacks is summed over (or "
      "reduced "
      "by\n"
      "maximum or minimum), `1` is a dimension of size one, `.` a scalar.\n";
  for (const OpDef* op : op_table().all()) {
    out += cat("\n## ", op->name, "\n\n`", op->signature, "` (", kind_of(*op), ")\n\n", op->doc, "\n\n");
    if (!op->attributes.empty()) out += cat("- Attributes: ", attributes_of(*op), "\n");
    out += cat("- Gradient: ", gradient_of(*op), "\n");
    out += cat("- Cuts: ", sharding_of(*op), "\n");
  }
  return out;
}

TEST(Documentation, IsUpToDate) { expect_page("docs/ops.md", op_documentation(), "test_ops"); }

// An op that can be cut counts its factors; one that cannot says why.
TEST(Documentation, CountsTheFactorsOfEveryOp) {
  std::istringstream lines(op_documentation());
  int counted = 0, none = 0;
  for (std::string line, op; std::getline(lines, line);) {
    if (line.starts_with("## ")) op = line.substr(3);
    if (!line.starts_with("- Cuts: ")) continue;
    const std::string cuts = line.substr(8);
    EXPECT_FALSE(cuts.starts_with("0 of ")) << op << " cannot be cut, and does not say why";
    ++(cuts.starts_with("none: ") ? none : counted);
  }
  EXPECT_EQ(static_cast<size_t>(counted + none), op_table().all().size());
  EXPECT_LT(none, counted);
}

}  // namespace
}  // namespace epl::documentation_test
