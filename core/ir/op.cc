#include "core/ir/op.h"

#include <algorithm>

#include "core/base/check.h"

namespace epl {
namespace {

// The signature's operand names, split at commas; "x, w, bias? -> y" has inputs {x, w, bias?} and outputs {y}.
struct Signature {
  std::vector<std::string> inputs, outputs;
};

std::vector<std::string> split_names(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    size_t comma = text.find(',');
    std::string_view name = text.substr(0, comma);
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    if (!name.empty()) names.emplace_back(name);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return names;
}

Signature parse_signature(const std::string& text) {
  size_t arrow = text.find("->");
  EPL_CHECK(arrow != std::string::npos, "signature without ->: ", text);
  std::string_view view = text;
  return {split_names(view.substr(0, arrow)), split_names(view.substr(arrow + 2))};
}

}  // namespace

int OpQuery::axis(std::string_view name, int ndim) const {
  int64_t axis = attributes_.integer(name);
  return static_cast<int>(axis < 0 ? axis + ndim : axis);
}

int OpDef::min_inputs() const {
  int count = 0;
  for (const std::string& name : parse_signature(signature).inputs) count += name.back() != '?' && name.back() != '*';
  return count;
}

int OpDef::max_inputs() const {
  auto names = parse_signature(signature).inputs;
  if (!names.empty() && names.back().back() == '*') return -1;
  return static_cast<int>(names.size());
}

int OpDef::output_count() const {
  auto names = parse_signature(signature).outputs;
  return static_cast<int>(names.size());
}

void OpTable::add(std::string_view name, OpDef op) {
  op.name = name;
  auto [it, inserted] = ops_.emplace(std::string(name), std::make_unique<OpDef>(std::move(op)));
  EPL_CHECK(inserted, "two records of op ", name);
  order_.insert(std::ranges::upper_bound(order_, it->second->name, {}, [](const OpDef* o) { return o->name; }),
                it->second.get());
}

const OpDef* OpTable::find(std::string_view name) const {
  auto it = ops_.find(std::string(name));
  return it == ops_.end() ? nullptr : it->second.get();
}

const OpDef& op_named(std::string_view name) {
  const OpDef* op = op_table().find(name);
  EPL_CHECK(op != nullptr, "no op ", name);
  return *op;
}

Status complete_attributes(const OpDef& op, Attributes& attributes) {
  for (const Option& spec : op.attributes) {
    const Attribute* given = attributes.find(spec.name);
    if (!given) {
      if (spec.required) return invalid("needs attribute ", spec.name);
      attributes.set(spec.name, spec.value);
      continue;
    }
    if (given->index() == spec.value.index()) continue;
    // An empty list of numbers reads back as an empty list of integers; an integer may stand for a number.
    if (std::holds_alternative<Doubles>(spec.value) && std::holds_alternative<Ints>(*given)) {
      const Ints& ints = std::get<Ints>(*given);
      attributes.set(spec.name, Doubles(ints.begin(), ints.end()));
    } else if (std::holds_alternative<double>(spec.value) && std::holds_alternative<int64_t>(*given)) {
      attributes.set(spec.name, static_cast<double>(std::get<int64_t>(*given)));
    } else {
      return invalid("attribute ", spec.name, " = ", attribute_text(*given), " has another type than ",
                     attribute_text(spec.value));
    }
  }
  for (const Attributes::Entry& entry : attributes.entries()) {
    bool known = std::ranges::any_of(op.attributes, [&](const Option& spec) { return spec.name == entry.name; });
    if (!known) return invalid("has no attribute ", entry.name);
  }
  return {};
}

namespace {

Result<OutputTypes> infer_elementwise(const OpDef& op, const OpQuery& query) {
  TensorType type;
  bool first = true;
  for (int i = 0; i < query.inputs(); ++i) {
    if (!query.has(i)) continue;
    if (first) {
      type = query.in(i);
      first = false;
    } else {
      if (query.in(i).dtype != type.dtype) {
        return invalid("operands have types ", type.text(), " and ", query.in(i).text());
      }
      EPL_ASSIGN(type.shape, broadcast_shapes(type.shape, query.in(i).shape));
    }
  }
  if (op.truth) type.dtype = DType::boolean;
  return OutputTypes(op.output_count(), type);
}

}  // namespace

Result<OutputTypes> infer_types(const OpDef& op, const Attributes& attributes,
                                const std::vector<const TensorType*>& inputs) {
  int count = static_cast<int>(inputs.size());
  if (count < op.min_inputs() || (op.max_inputs() >= 0 && count > op.max_inputs())) {
    return invalid("takes ", op.signature, ", got ", count, " operands");
  }
  for (int i = 0; i < std::min(count, op.min_inputs()); ++i) {
    if (!inputs[i]) return invalid("operand ", i, " is missing (", op.signature, ")");
  }
  OpQuery query(op, attributes, inputs);
  if (op.infer) return op.infer(query);
  EPL_CHECK(op.elementwise(), "op ", op.name, " has no shape rule");
  return infer_elementwise(op, query);
}

ScalarExpr scalar_expression(const OpQuery& query) {
  ScalarExpr expr;
  if (query.op().scalar) {
    query.op().scalar(expr);
  } else {
    query.op().scalar_of(expr, query);
  }
  expr.inputs = std::max(expr.inputs, query.inputs());
  return expr;
}

Result<ShardingRule> sharding_rule(const OpQuery& query) {
  const OpDef& op = query.op();
  if (op.sharding_of) return op.sharding_of(query);
  std::vector<TensorType> inputs, outputs;
  for (int i = 0; i < query.inputs(); ++i) inputs.push_back(query.has(i) ? query.in(i) : TensorType{});
  for (int i = 0; i < query.outputs(); ++i) outputs.push_back(query.has_output(i) ? query.out(i) : TensorType{});
  if (!op.sharding.empty()) return parse_sharding_rule(op.sharding, inputs, outputs);
  if (op.elementwise()) return elementwise_rule(inputs, outputs);
  return unsupported("op ", op.name, " has no sharding rule");
}

double op_flops(const OpQuery& query) {
  if (query.op().flops) return query.op().flops(query);
  double work = 0;
  for (int i = 0; i < query.outputs(); ++i)
    work += query.has_output(i) ? static_cast<double>(query.out(i).elements()) : 0;
  return work;
}

std::vector<Var> expand_body(Builder& builder, const OpDef& op, const Attributes& attributes,
                             const std::vector<Var>& inputs) {
  EPL_CHECK(op.body != nullptr, "op ", op.name, " has no body");
  Body body(builder, attributes, inputs, op.output_count());
  op.body(body);
  return body.outputs();
}

}  // namespace epl
