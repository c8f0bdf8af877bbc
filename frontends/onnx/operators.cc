// Nodes against the standard. See operators.h.
#include "frontends/onnx/operators.h"

#include <algorithm>
#include <tuple>

#include "core/base/text.h"
#include "frontends/onnx/operator_table.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx {
namespace {

namespace attribute_codes = schema::AttributeProto;

// The types of attributes, as the table spells them, with the field that holds a value.
struct AttributeKind {
  std::string_view name;
  int32_t type;
  uint32_t field;
};
constexpr AttributeKind kinds[] = {
    {"float", attribute_codes::AttributeType_FLOAT, attribute_codes::f},
    {"int", attribute_codes::AttributeType_INT, attribute_codes::i},
    {"string", attribute_codes::AttributeType_STRING, attribute_codes::s},
    {"tensor", attribute_codes::AttributeType_TENSOR, attribute_codes::t},
    {"graph", attribute_codes::AttributeType_GRAPH, attribute_codes::g},
    {"sparse_tensor", attribute_codes::AttributeType_SPARSE_TENSOR, attribute_codes::sparse_tensor},
    {"type_proto", attribute_codes::AttributeType_TYPE_PROTO, attribute_codes::tp},
    {"floats", attribute_codes::AttributeType_FLOATS, attribute_codes::floats},
    {"ints", attribute_codes::AttributeType_INTS, attribute_codes::ints},
    {"strings", attribute_codes::AttributeType_STRINGS, attribute_codes::strings},
    {"tensors", attribute_codes::AttributeType_TENSORS, attribute_codes::tensors},
    {"graphs", attribute_codes::AttributeType_GRAPHS, attribute_codes::graphs},
    {"sparse_tensors", attribute_codes::AttributeType_SPARSE_TENSORS, attribute_codes::sparse_tensors},
    {"type_protos", attribute_codes::AttributeType_TYPE_PROTOS, attribute_codes::type_protos}};

const AttributeKind* kind_of(int32_t type) {
  const AttributeKind* kind = std::ranges::find(kinds, type, &AttributeKind::type);
  return kind == std::end(kinds) ? nullptr : kind;
}
const AttributeKind* kind_of(std::string_view name) {
  const AttributeKind* kind = std::ranges::find(kinds, name, &AttributeKind::name);
  return kind == std::end(kinds) ? nullptr : kind;
}

struct AttributeRule {
  std::string_view name, type;
  bool required = false;
};

// Calls f with each attribute of a list "alpha:float axes:ints!".
template <class F> void for_each_rule(std::string_view list, F&& f) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(' '), list.size()), colon = list.find(':');
    std::string_view type = list.substr(colon + 1, end - colon - 1);
    const bool required = type.ends_with('!');
    if (required) type.remove_suffix(1);
    f(AttributeRule{list.substr(0, colon), type, required});
    list.remove_prefix(std::min(end + 1, list.size()));
  }
}

bool lists(std::string_view list, std::string_view name) {  // with commas
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == name) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

std::string names_of(std::string_view attributes) {
  std::vector<std::string> names;
  for_each_rule(attributes, [&](const AttributeRule& rule) { names.emplace_back(rule.name); });
  return names.empty() ? "it has none" : "there are: " + join(names, ", ");
}

std::string count_text(int32_t min, int32_t max) {
  if (max == OperatorVersion::any) return cat(min, " or more");
  return min == max ? cat(min) : cat(min, " to ", max);
}

Status check_counts(const Node& node, const OperatorVersion& version) {
  auto given = [](const std::vector<std::string_view>& names) {  // names left empty at the end say nothing
    size_t count = names.size();
    while (count > 0 && names[count - 1].empty()) --count;
    return static_cast<int64_t>(count);
  };
  const int64_t inputs = given(node.inputs), outputs = given(node.outputs);
  if (static_cast<int64_t>(node.inputs.size()) < version.min_inputs || inputs > version.max_inputs) {
    return error(Code::invalid_model, inputs, " inputs; ", node.op_type, " of opset ", version.since, " takes ",
                 count_text(version.min_inputs, version.max_inputs));
  }
  if (static_cast<int64_t>(node.outputs.size()) < version.min_outputs || outputs > version.max_outputs) {
    return error(Code::invalid_model, outputs, " outputs; ", node.op_type, " of opset ", version.since, " gives ",
                 count_text(version.min_outputs, version.max_outputs));
  }
  return {};
}

Status check_attributes(const Node& node, const OperatorVersion& version) {
  for (size_t k = 0; k < node.attributes.size(); ++k) {
    const Attribute& attribute = node.attributes[k];
    for (size_t before = 0; before < k; ++before) {
      if (node.attributes[before].name == attribute.name)
        return error(Code::invalid_model, "attribute ", attribute.name, " is given twice");
    }
    if (attribute.name.starts_with("__")) continue;  // notes that runtimes leave for themselves
    AttributeRule found;
    for_each_rule(version.attributes, [&](const AttributeRule& rule) {
      if (rule.name == attribute.name) found = rule;
    });
    if (found.name.empty()) {
      return error(Code::invalid_model, node.op_type, " of opset ", version.since, " has no attribute ", attribute.name,
                   "; ", names_of(version.attributes));
    }
    if (attribute.ref.empty()) EPL_TRY(check_attribute(attribute, kind_of(found.type)->type));
  }
  Status missing;
  for_each_rule(version.attributes, [&](const AttributeRule& rule) {
    if (!rule.required || !missing.ok()) return;
    if (std::ranges::find(node.attributes, rule.name, &Attribute::name) == node.attributes.end()) {
      missing = error(Code::invalid_model, "attribute ", rule.name, " is missing");
    }
  });
  return missing;
}

}  // namespace

// One that says one type and holds another would be read as zero.
Status check_attribute(const Attribute& attribute, int32_t type) {
  const AttributeKind* kind = kind_of(type);
  const std::string_view wanted = kind == nullptr ? "of a known type" : kind->name;
  if (!attribute.ref.empty())
    return error(Code::invalid_model, "attribute ", attribute.name, " refers to attribute ", attribute.ref,
                 " of a function, which gives it no value");
  const AttributeKind* given = kind_of(attribute.type);
  if (!given)
    return error(Code::invalid_model, "attribute ", attribute.name, " does not say its type; it must be ", wanted);
  if (given->type != type)
    return error(Code::invalid_model, "attribute ", attribute.name, " is of type ", given->name, "; it must be ",
                 wanted);
  for (const AttributeKind& other : kinds) {
    if (other.field != given->field && (attribute.fields >> other.field & 1) != 0) {
      return error(Code::invalid_model, "attribute ", attribute.name, " says that it is of type ", given->name,
                   ", and holds a value of type ", other.name);
    }
  }
  return {};
}

const OperatorVersion* find_operator(std::string_view domain, std::string_view name, int64_t opset) {
  if (domain == "ai.onnx") domain = "";
  auto key = [](const OperatorVersion& v) { return std::tie(v.domain, v.name); };
  auto range = std::ranges::equal_range(operator_table, std::tie(domain, name), {}, key);
  if (range.empty()) return nullptr;
  const OperatorVersion* found = &*range.begin();
  for (const OperatorVersion& version : range) {
    if (version.since <= opset) found = &version;
  }
  return found;
}

Status check_types(const Node& node, int64_t opset, std::span<const TensorType* const> inputs) {
  const OperatorVersion* version = find_operator(node.domain, node.op_type, opset);
  if (!version) return {};
  std::string_view rest = version->types, types;
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (!rest.empty()) {
      types = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(rest.size(), types.size() + 1));
    }
    if (!inputs[k] || types.empty() || types == "*") continue;
    const DType dtype = inputs[k]->dtype;
    if (lists(types, is_float(dtype) ? "real" : dtype_name(dtype))) continue;
    std::string known = types.starts_with("real") ? cat("real numbers", types.substr(4)) : std::string(types);
    for (size_t at = known.find(','); at != std::string::npos; at = known.find(',', at + 2)) known.replace(at, 1, ", ");
    return error(Code::invalid_model, "input ", k, " is ", inputs[k]->text(), ", and the standard's ", node.op_type,
                 " takes there ", known, "; cast it before");
  }
  return {};
}

Status check_node(const Node& node, int64_t opset) {
  const OperatorVersion* version = find_operator(node.domain, node.op_type, opset);
  if (!version) return {};
  EPL_TRY(check_counts(node, *version));
  return check_attributes(node, *version);
}

}  // namespace epl::onnx
