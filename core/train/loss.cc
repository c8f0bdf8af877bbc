#include "core/train/loss.h"

#include <algorithm>

#include "core/base/options.h"
#include "core/base/shown.h"
#include "core/base/suggestion.h"

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
  return invalid("the model has no output ", shown_plain(name, 200), choices(name, names));
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
  builder.set_source("loss");
  Var scalar = builder.reshape(builder.var(value), {});
  EPL_TRY(builder.status());
  return scalar.value();
}

const Node* producer(const Graph& graph, Value v) {
  const NodeId made_by = graph.value(v).producer;
  return made_by ? &graph.node(made_by) : nullptr;
}

// Ops that only move numbers.
bool moves_numbers(const Node& node) { return node.op->moves != Moves::none && node.op->moves != Moves::repeated; }

// Those of them that keep all numbers, so that they can follow the operand of the softmax instead of its result.
bool keeps_numbers(const Node& node) { return node.op->moves == Moves::all; }

// Where dimension `axis` of the operand is in the result, -1 where it is not a dimension of its own any more.
int axis_after(const Node& move, const Shape& before, const Shape& after, int axis) {
  if (axis < 0) return -1;
  if (move.attributes.has("perm")) {
    const Ints order = move.attributes.ints("perm");
    const auto at = std::ranges::find(order, axis);
    return at == order.end() ? -1 : static_cast<int>(at - order.begin());
  }
  const int64_t size = before[static_cast<size_t>(axis)],
                outer = element_count(Shape(before.begin(), before.begin() + axis));
  int64_t begins = 1;
  for (size_t d = 0; d < after.size(); ++d) {
    if (begins == outer && after[d] == size) return static_cast<int>(d);
    begins *= after[d];
  }
  return -1;
}

// Files for inference end in a softmax or a sigmoid, perhaps under another shape. A loss of scores means the operand of
// that. Applied to its result, the loss would take the softmax twice and train badly without an error.
void find_scores(LossBuilder& loss, const LossRow& row, std::vector<std::string>* notes) {
  const Graph& graph = loss.b.graph();
  const auto note = [&](std::string text) {
    if (notes) notes->push_back(std::move(text));
  };
  const Node* last = producer(graph, loss.output.value());
  std::vector<Node> moves;  // from the output backwards
  while (last && keeps_numbers(*last)) {
    moves.push_back(*last);
    last = producer(graph, last->inputs[0]);
  }
  if (last && last->op->probabilities) {
    const Shape* shape = &graph.type(last->outputs[0]).shape;
    int axis = static_cast<int>(last->attributes.integer_or("axis", 0));
    axis = axis < 0 ? axis + static_cast<int>(shape->size()) : axis;
    for (size_t k = moves.size(); k-- > 0; shape = &graph.type(moves[k].outputs[0]).shape)
      axis = axis_after(moves[k], *shape, graph.type(moves[k].outputs[0]).shape, axis);
    if (row.takes_operand_of(loss, *last, axis)) {
      const std::string op = last->op->name, where = last->name;
      loss.output = loss.b.var(last->inputs[0]);
      for (size_t k = moves.size(); k-- > 0;)
        loss.output = loss.b.emit(moves[k].op->name, {loss.output}, moves[k].attributes);
      note(cat("loss ", row.name, " takes scores, so it is applied to what the last ", op, " (node ", where,
               ") takes, not to its result; loss.peel = false applies it to the output as it is"));
      return;
    }
  }
  while (last && moves_numbers(*last) && last->inputs[0]) last = producer(graph, last->inputs[0]);
  if (last && last->op->probabilities) {
    note(cat("loss ", row.name, " takes scores, but the output comes from ", last->op->name, " (node ", last->name,
             "); name the tensor that holds the scores as loss.output, or choose a loss that fits"));
  }
}

}  // namespace

LossCounts loss_counts(const Graph& graph, Value loss) {
  LossCounts found{.all = true};
  std::vector<bool> seen(static_cast<size_t>(graph.value_count()), false);
  std::vector<Value> open = {loss};
  while (!open.empty()) {
    const Value value = open.back();
    open.pop_back();
    if (!value || seen[static_cast<size_t>(value.index)]) continue;
    seen[static_cast<size_t>(value.index)] = true;
    const ValueInfo& info = graph.value(value);
    if (info.kind == ValueKind::parameter) found.all = false;
    if (info.kind != ValueKind::result) continue;
    const Node& node = graph.node(info.producer);
    const Value count = node.op->counts < 0 ? Value() : node.inputs[static_cast<size_t>(node.op->counts)];
    if (count && graph.type(count).elements() == 1) {
      if (std::ranges::find(found.counts, count) == found.counts.end()) found.counts.push_back(count);
    } else {
      open.insert(open.end(), node.inputs.begin(), node.inputs.end());
    }
  }
  found.all = found.all && !found.counts.empty();
  return found;
}

Var LossBuilder::target(const TensorType& fallback) {
  Graph& graph = b.graph();
  if (Value taken = graph.find(spec_.target_input)) {
    if (graph.value(taken).kind != ValueKind::result) {
      b.fail(invalid("the model has ", value_kind_name(graph.value(taken).kind), " ", shown(spec_.target_input, 200),
                     ", and the loss needs this name for what it compares with; give that another name (loss.target, "
                     "--loss-target NAME), which the field of the data then has too"));
      return {};
    }
    graph.rename(taken, graph.unique_name(spec_.target_input));
  }
  const TensorType type = spec_.target.value_or(fallback);
  // One number for the batch (the target of a scalar output) has no dimension that could count samples.
  const int batch_dim = type.ndim() == 0 ? -1 : spec_.target_batch_dim;
  if (batch_dim >= type.ndim()) {
    b.fail(invalid("the target, ", type.text(), ", has no dimension ", batch_dim, " to count samples in"));
    return {};
  }
  return b.var(graph.add_input(spec_.target_input, type, batch_dim));
}

std::string_view loss_output_name(const LossSpec& spec) {
  return spec.name.starts_with(own_output) ? std::string_view(spec.name).substr(own_output.size())
                                           : std::string_view(spec.output);
}

namespace {

// The least of what counts in the means that a loss is made of; none where it is made of no such mean.
Result<Value> least_count(Graph& graph, Value loss) {
  Builder builder(graph);
  builder.set_scope("loss.counted");
  Var least;
  for (Value count : loss_counts(graph, loss).counts) {
    const Var one = builder.cast(builder.var(count), graph.type(loss).dtype);
    least = least ? builder.minimum(least, one) : one;
  }
  EPL_TRY(builder.status());
  return least ? least.value() : Value();
}

Result<MeasuredLoss> build_loss(Graph& graph, const LossSpec& spec, bool measures, std::vector<std::string>* notes) {
  if (spec.name.starts_with(own_output)) {
    EPL_ASSIGN(Value own, own_loss(graph, loss_output_name(spec)));
    MeasuredLoss made{.value = own};
    if (measures) {
      EPL_ASSIGN(made.counted, least_count(graph, own));
    }
    return made;
  }
  EPL_ASSIGN(const LossRow* row, find_named(loss_table(), spec.name, "loss", {"output:NAME"}));
  EPL_ASSIGN(Attributes options, complete_options(row->options, spec.options, cat("loss ", row->name)));
  EPL_ASSIGN(Value output, find_output(graph, spec.output));
  if (!is_float(graph.type(output).dtype)) {
    return invalid("loss ", row->name, " needs a floating-point output, got ", graph.type(output).text());
  }
  Builder builder(graph);
  builder.set_scope("loss");
  builder.set_source("loss");
  LossBuilder loss(builder, builder.var(output), options, spec);
  if (row->takes_operand_of && spec.peel) find_scores(loss, *row, notes);
  // A mean over many samples overflows and loses digits in 16 bits.
  const DType dtype = loss.output.dtype();
  if (dtype == DType::f16 || dtype == DType::bf16) loss.output = builder.cast(loss.output, DType::f32);
  loss.measures = measures;
  loss.facts.task = row->task;
  loss.facts.metrics = row->metrics;
  Result<Loss> made = row->build(loss);
  EPL_TRY(builder.status());
  if (!made.ok()) return made.status().with_context(cat("loss ", row->name));
  Var value = made->value ? made->value : loss_mean(*made);
  EPL_TRY(builder.status());
  return MeasuredLoss{.value = value.value(),
                      .terms = made->terms ? made->terms.value() : Value{},
                      .weights = made->weights ? made->weights.value() : Value{},
                      .scores = loss.output.value(),
                      .facts = loss.facts};
}

}  // namespace

Result<Value> add_loss(Graph& graph, const LossSpec& spec, LossFacts* facts, std::vector<std::string>* notes) {
  EPL_ASSIGN(MeasuredLoss made, build_loss(graph, spec, false, notes));
  if (facts) *facts = made.facts;
  return made.value;
}

Result<MeasuredLoss> add_measured_loss(Graph& graph, const LossSpec& spec) {
  return build_loss(graph, spec, true, nullptr);
}

}  // namespace epl
