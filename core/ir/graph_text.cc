// The .graph text form. See graph.h for what it keeps; tests/golden holds examples.
#include "core/base/check.h"
#include "core/ir/graph.h"
#include "core/ir/op.h"
#include "core/ir/text.h"

namespace epl {
namespace {

constexpr int64_t printed_elements = 16;  // larger constants print as a hash

std::string constant_text(const Tensor& data) {
  if (data.elements() <= printed_elements) return attribute_text(Attribute(data));
  uint64_t hash = 0xcbf29ce484222325;
  auto* bytes = static_cast<const unsigned char*>(data.data());
  for (int64_t i = 0; i < data.bytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  return cat("hash ", hash);
}

// Attributes that only repeat the op's default are left out.
Attributes without_defaults(const Node& node) {
  Attributes out;
  for (const Attributes::Entry& entry : node.attributes.entries()) {
    bool standard = false;
    for (const Option& spec : node.op->attributes) {
      standard |= spec.name == entry.name && !spec.required && identical(spec.value, entry.value);
    }
    if (!standard) out.set(entry.name, entry.value);
  }
  return out;
}

std::string node_text(const Graph& graph, const Node& node) {
  std::string out = "  ";
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueInfo& info = graph.value(node.outputs[i]);
    out += cat(i ? ", " : "", name_text(info.name), ": ", info.type.text());
  }
  out += cat(node.outputs.empty() ? "_" : "", " = ", node.op->name, "(");
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    out += cat(i ? ", " : "", node.inputs[i] ? name_text(graph.value(node.inputs[i]).name) : "_");
  }
  out += ")" + attributes_text(without_defaults(node));
  if (node.units != Units()) out += cat(" units ", node.units.count);
  if (node.units.outer != 1) out += cat(" outer ", node.units.outer);
  if (node.region != 0) out += cat(" region ", node.region);
  if (!node.origin.empty()) out += cat(" of ", name_text(node.origin));
  if (node.key_name() != node.name) out += cat(" key ", name_text(node.key));
  if (node.outputs.empty() || graph.value(node.outputs[0]).name != node.name) out += cat(" @ ", name_text(node.name));
  return out + "\n";
}

class GraphParser {
 public:
  explicit GraphParser(std::string_view text) : reader_(text) {}

  Result<Graph> parse() {
    if (!reader_.next_line() || !reader_.take("graph") || !reader_.name(graph_.name) || !reader_.take("(")) {
      return reader_.fail("expected graph name(");
    }
    EPL_TRY(parse_inputs());
    while (reader_.next_line()) {
      if (reader_.take("}")) {
        EPL_TRY(verify(graph_));
        return std::move(graph_);
      }
      EPL_TRY(parse_line());
    }
    return reader_.fail("the graph does not end with }");
  }

 private:
  Status parse_inputs() {
    for (bool first = true; !reader_.take(")"); first = false) {
      std::string name;
      TensorType type;
      int64_t batch = -1;
      if (!first && !reader_.take(",")) return reader_.fail("expected , or )");
      if (!reader_.name(name) || !reader_.take(":") || !reader_.type(type)) return reader_.fail("expected name: type");
      if (reader_.take("batch") && !reader_.integer(batch)) return reader_.fail("expected a dimension");
      if (graph_.find(name)) return reader_.fail("a name is used twice");
      graph_.add_input(name, type, static_cast<int>(batch));
    }
    return reader_.take("{") ? Status() : reader_.fail("expected {");
  }

  Status parse_line() {
    for (Phase phase : {Phase::forward, Phase::backward, Phase::update}) {
      std::string_view before = reader_.line();
      if (reader_.take(phase_name(phase)) && reader_.take(":") && reader_.at_end()) {
        phase_ = phase;
        return {};
      }
      reader_.line() = before;
    }
    std::string_view before = reader_.line();
    std::string name, other;
    if (reader_.take("output ") && reader_.name(name) && reader_.take("=") && reader_.name(other) && reader_.at_end()) {
      EPL_ASSIGN(Value value, lookup(other));
      graph_.outputs.push_back({name, value});
      return {};
    }
    reader_.line() = before;
    if (reader_.take("commit ") && reader_.name(name) && reader_.take("=") && reader_.name(other) && reader_.at_end()) {
      EPL_ASSIGN(Value state, lookup(name));
      EPL_ASSIGN(Value next, lookup(other));
      graph_.updates.push_back({state, next});
      return {};
    }
    reader_.line() = before;
    return parse_definition();
  }

  Result<Value> lookup(const std::string& name) {
    Value value = graph_.find(name);
    if (!value) return reader_.fail(cat("nothing is called ", name));
    return value;
  }

  Status parse_definition() {
    std::vector<std::string> names;
    std::vector<TensorType> types;
    std::string op_name;
    const std::string_view before = reader_.line();
    if (reader_.take("_ = ") && reader_.name(op_name)) return parse_node(op_name, {}, {});  // without a result
    reader_.line() = before;
    do {
      names.emplace_back();
      types.emplace_back();
      if (!reader_.name(names.back()) || !reader_.take(":") || !reader_.type(types.back())) {
        return reader_.fail("expected name: type");
      }
      if (graph_.find(names.back())) return reader_.fail("a name is used twice");
    } while (reader_.take(","));
    if (!reader_.take("=") || !reader_.name(op_name)) return reader_.fail("expected = and an op or a kind");
    for (ValueKind kind :
         {ValueKind::parameter, ValueKind::buffer, ValueKind::state, ValueKind::scalar, ValueKind::constant}) {
      if (op_name == value_kind_name(kind)) return parse_leaf(kind, names[0], types[0]);
    }
    return parse_node(op_name, std::move(names), std::move(types));
  }

  Status parse_leaf(ValueKind kind, const std::string& name, const TensorType& type) {
    Tensor data;
    if (kind == ValueKind::constant) {
      if (reader_.take("hash")) {
        uint64_t hash = 0;  // only printed: the data are not here
        std::string_view& line = reader_.line();
        while (!line.empty() && line[0] == ' ') line.remove_prefix(1);
        line.remove_prefix(std::from_chars(line.data(), line.data() + line.size(), hash).ptr - line.data());
      } else {
        auto value = parse_attribute(reader_.line());
        if (!value.ok() || !std::holds_alternative<Tensor>(*value))
          return reader_.fail("expected the constant's elements");
        data = std::get<Tensor>(*value);
        if (data.type() != type) return reader_.fail("the constant has another type");
      }
    }
    graph_.add_leaf(kind, name, type, std::move(data));
    return reader_.at_end() ? Status() : reader_.fail("text after a leaf");
  }

  Status parse_node(const std::string& op_name, std::vector<std::string> names, std::vector<TensorType> types) {
    Node node{.name = names.empty() ? op_name : names[0], .op = op_table().find(op_name)};
    node.phase = phase_;
    if (!node.op) return reader_.fail(cat("unknown op ", op_name));
    if (!reader_.take("(")) return reader_.fail("expected (");
    for (bool first = true; !reader_.take(")"); first = false) {
      if (!first && !reader_.take(",")) return reader_.fail("expected , or )");
      std::string name;
      if (!reader_.name(name)) return reader_.fail("expected an operand");
      if (name == "_") {
        node.inputs.push_back({});
        continue;
      }
      EPL_ASSIGN(Value value, lookup(name));
      node.inputs.push_back(value);
    }
    EPL_ASSIGN(node.attributes, reader_.attributes());
    if (Status status = complete_attributes(*node.op, node.attributes); !status.ok())
      return reader_.fail(status.message());
    if (reader_.take("units") && (!reader_.integer(node.units.count) || node.units.count < 1))
      return reader_.fail("expected a number of units");
    if (reader_.take("outer") && (!reader_.integer(node.units.outer) || node.units.outer < 1))
      return reader_.fail("expected a number of runs");
    if (int64_t region = 0; reader_.take("region")) {
      if (!reader_.integer(region)) return reader_.fail("expected a region");
      node.region = static_cast<int32_t>(region);
    }
    if (reader_.take("of") && !reader_.name(node.origin)) return reader_.fail("expected a node name");
    if (reader_.take("key") && !reader_.name(node.key)) return reader_.fail("expected a node name");
    if (reader_.take("@") && !reader_.name(node.name)) return reader_.fail("expected a node name");
    if (!reader_.at_end()) return reader_.fail("text after a node");
    graph_.add_node(std::move(node), std::move(types), std::move(names));
    return {};
  }

  TextReader reader_;
  Graph graph_;
  Phase phase_ = Phase::forward;
};

}  // namespace

std::string print_graph(const Graph& graph) {
  std::string out = cat("graph ", name_text(graph.name), "(");
  bool first = true;
  for (Value v : graph.leaves(ValueKind::input)) {
    const ValueInfo& info = graph.value(v);
    out += cat(first ? "" : ", ", name_text(info.name), ": ", info.type.text());
    if (info.batch_dim >= 0) out += cat(" batch ", info.batch_dim);
    first = false;
  }
  out += ") {\n";
  for (int i = 0; i < graph.value_count(); ++i) {
    const ValueInfo& info = graph.value(Value{i});
    if (info.kind == ValueKind::result || info.kind == ValueKind::input) continue;
    out += cat("  ", name_text(info.name), ": ", info.type.text(), " = ", value_kind_name(info.kind));
    if (info.kind == ValueKind::constant && !info.data.empty()) out += " " + constant_text(info.data);
    out += "\n";
  }
  bool any = false;
  Phase phase = Phase::forward;
  for (const Node& node : graph.nodes()) {
    if (!any || node.phase != phase) out += cat("  ", phase_name(node.phase), ":\n");
    any = true;
    phase = node.phase;
    out += node_text(graph, node);
  }
  for (const Graph::Output& output : graph.outputs) {
    out += cat("  output ", name_text(output.name), " = ", name_text(graph.value(output.value).name), "\n");
  }
  for (const Graph::Update& update : graph.updates) {
    out += cat("  commit ", name_text(graph.value(update.state).name), " = ", name_text(graph.value(update.next).name),
               "\n");
  }
  return out + "}\n";
}

Result<Graph> parse_graph(std::string_view text) { return GraphParser(text).parse(); }

}  // namespace epl
