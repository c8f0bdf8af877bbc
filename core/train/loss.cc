#include "core/train/loss.h"

#include <algorithm>

#include "core/ir/options.h"

namespace epl {
namespace {

constexpr std::string_view own_output = "output:";

std::vector<std::string> output_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Graph::Output& output : graph.outputs) names.push_back(output.name);
  return names;
}

Result<Value> find_output(const Graph& graph, std::string_view name) {
  const std::vector<std::string> names = output_names(graph);
  if (names.empty()) return invalid("the model has no outputs, so there is nothing to apply a loss to");
  if (name.empty()) return graph.outputs[0].value;
  for (const Graph::Output& output : graph.outputs) {
    if (output.name == name) return output.value;
  }
  const std::string near = nearest(name, names);
  return invalid("the model has no output ", name, near.empty() ? "" : "; did you mean ", near, "? It has ", join(names, ", "));
}

// A scalar output of the graph, as it is.
Result<Value> own_loss(Graph& graph, std::string_view name) {
  EPL_ASSIGN(Value value, find_output(graph, name));
  const TensorType& type = graph.type(value);
  if (!is_float(type.dtype) || type.elements() != 1) {
    return invalid("output ", name, " is ", type.text(), "; a loss must be one floating-point number");
  }
  if (type.ndim() == 0) return value;
  Builder builder(graph);
  builder.set_scope("loss");
  Var scalar = builder.reshape(builder.var(value), {});
  EPL_TRY(builder.status());
  return scalar.value();
}

Result<const LossRow*> find_loss(std::string_view name) {
  std::vector<std::string> names;
  for (const LossRow& row : loss_table().rows) {
    if (row.name == name) return &row;
    names.push_back(row.name);
  }
  const std::string near = nearest(name, names);
  return invalid("no loss ", name, near.empty() ? "" : "; did you mean ", near, "? Known are ", join(names, ", "),
                 " and output:<name>");
}

}  // namespace

Var LossBuilder::target(const TensorType& fallback) {
  Graph& graph = b.graph();
  if (Value taken = graph.find(target_name)) {
    if (graph.value(taken).kind != ValueKind::result) {
      b.fail(invalid("the model has ", value_kind_name(graph.value(taken).kind), " ", target_name,
                     "; the loss needs this name for its target"));
      return {};
    }
    graph.rename(taken, graph.unique_name(target_name));
  }
  return b.var(graph.add_input(std::string(target_name), wanted_target_.value_or(fallback), 0));
}

const LossTable& loss_table() {
  static const LossTable table = [] {
    LossTable made;
    fill_loss_table(made);
    return made;
  }();
  return table;
}

Result<Value> add_loss(Graph& graph, const LossSpec& spec) {
  if (spec.name.starts_with(own_output)) return own_loss(graph, std::string_view(spec.name).substr(own_output.size()));
  EPL_ASSIGN(const LossRow* row, find_loss(spec.name));
  EPL_ASSIGN(Attributes options, complete_options(row->options, spec.options, cat("loss ", row->name)));
  EPL_ASSIGN(Value output, find_output(graph, spec.output));
  if (!is_float(graph.type(output).dtype)) {
    return invalid("loss ", row->name, " needs a floating-point output, got ", graph.type(output).text());
  }
  Builder builder(graph);
  builder.set_scope("loss");
  LossBuilder loss(builder, builder.var(output), options, spec.target);
  Result<Var> made = row->build(loss);
  EPL_TRY(builder.status());
  if (!made.ok()) return made.status().with_context(cat("loss ", row->name));
  return made->value();
}

}  // namespace epl
