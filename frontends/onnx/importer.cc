#include "frontends/onnx/importer.h"

#include <algorithm>
#include <memory>

#include "core/base/check.h"
#include "core/base/shown.h"
#include "core/ir/evaluate.h"
#include "core/ir/host_op.h"
#include "core/ir/op.h"
#include "core/ir/rewriter.h"
#include "frontends/onnx/control_flow.h"
#include "frontends/onnx/file_check.h"
#include "frontends/onnx/function_call.h"
#include "frontends/onnx/host_ops.h"
#include "frontends/onnx/missing.h"
#include "frontends/onnx/operators.h"
#include "frontends/onnx/uses.h"

namespace epl::onnx {
namespace {

constexpr int64_t max_elements = int64_t{1} << 46;    // of one value: sizes and offsets stay far from overflow
constexpr int64_t max_held_bytes = int64_t{1} << 28;  // of constants, beside eight times the file
constexpr double max_folding_work = 1 << 26;          // operations
constexpr int max_ndim = 16;                          // EPL_MAX_NDIM: what a caller can be told of

}  // namespace

Status check_size(const TensorType& type) {
  if (type.ndim() > max_ndim)
    return unsupported("a value has ", type.ndim(), " dimensions, and tensors have up to ", max_ndim, "; merge some");
  int64_t elements = 1;
  for (int64_t size : type.shape) {
    if (size < 0 || __builtin_mul_overflow(elements, std::max<int64_t>(size, 1), &elements) ||
        elements > max_elements) {
      return Status(Code::invalid_model, cat("a value of ", type.text(), " is too large for any machine"));
    }
  }
  return {};
}

Importer::Importer(const OnnxModel& model, const Binding& binding)
    : model_(model), binding_(binding), rule_(model), builder_(graph_) {
  graph_.name = model.file().graph.name.empty() ? "main" : std::string(model.file().graph.name);
}

Value Importer::updated(Value state) const {
  auto it = std::ranges::find(graph_.updates, state, &epl::Graph::Update::state);
  return it == graph_.updates.end() ? state : it->next;
}

void Importer::update(Value state, Value next) {
  auto it = std::ranges::find(graph_.updates, state, &epl::Graph::Update::state);
  if (it == graph_.updates.end()) {
    graph_.updates.push_back({state, next});
  } else {
    it->next = next;
  }
}

int64_t Importer::opset(std::string_view domain) const { return std::max<int64_t>(model_.opset(domain), 1); }

Result<epl::Graph> Importer::run() {
  EPL_TRY(check_operators(model_, binding_.inner_outputs));
  EPL_TRY(bind_inputs());
  EPL_TRY(add_initializers());
  EPL_TRY(run_nodes(model_.file().graph.nodes, top_, wanted()));
  EPL_TRY(finish_outputs());
  graph_ = without_dead_nodes(graph_);
  EPL_TRY(verify(graph_));
  return std::move(graph_);
}

Result<Slot> Importer::stored(std::string_view name, const std::string& known_as, const Tensor& tensor, bool in_node) {
  EPL_ASSIGN(epl::Tensor value, stored_tensor(tensor, model_.stored()));
  const bool statistic = rule_.is_statistic(name);
  const bool named = is_float(value.dtype()) && std::ranges::any_of(binding_.parameters, [&](const std::string& glob) {
                       return glob_match(glob, known_as);
                     });
  const bool parameter = named || (in_node ? rule_.judge(name, tensor, true) : rule_.judge(tensor)).parameter;
  if (!statistic && !parameter) {
    EPL_ASSIGN(value, value.load());  // a constant, which shapes and rewrites may look at
    return Slot{{}, value, value.type(), {}};
  }
  Value leaf = graph_.add_leaf(statistic ? ValueKind::buffer : ValueKind::parameter, known_as, value.type(), value);
  return Slot{builder_.var(leaf), {}, value.type(), {}};
}

Status Importer::add_initializers() {
  for (const Tensor& tensor : model_.file().graph.initializers) {
    if (top_.values.contains(tensor.name) || model_.quantized().only_serves(tensor.name)) continue;
    EPL_ASSIGN(top_.values[tensor.name], stored(tensor.name, std::string(tensor.name), tensor, false));
  }
  return {};
}

Result<Slot> Importer::held_tensor(const Tensor& tensor, std::string_view name, const Scope& scope) {
  const auto guarded = [&](Slot slot) {
    for (const Scope* s = &scope; s != nullptr; s = s->within) {
      if (s->taken) slot = ControlFlow::guarded(builder_, slot, s->taken);
    }
    return slot;
  };
  if (auto it = held_tensors_.find(tensor.at); it != held_tensors_.end()) return guarded(it->second);
  Slot slot;
  if (const std::string* weight = model_.weight_name(tensor)) {
    EPL_ASSIGN(slot, stored(name, *weight, tensor, true));
  } else {
    EPL_ASSIGN(epl::Tensor value, tensor_value(tensor, model_.stored()));
    slot = {builder_.constant(value), value, value.type(), {}};  // once, for all iterations
  }
  held_tensors_[tensor.at] = slot;
  return guarded(std::move(slot));
}

Slot* Importer::find(std::string_view name, Scope& scope) {
  if (auto it = scope.values.find(name); it != scope.values.end()) return &it->second;
  Slot* found = scope.outer != nullptr ? find(name, *scope.outer) : nullptr;
  if (found == nullptr || !scope.taken) return found;
  builder_.set_scope(scope.prefix);
  return &(scope.values[name] = ControlFlow::guarded(builder_, *found, scope.taken));
}

std::string Importer::node_name(const Node& node, const Scope& scope) const {
  std::string_view own = !node.name.empty() ? node.name : !node.outputs.empty() ? node.outputs[0] : node.op_type;
  return scope.prefix.empty() ? std::string(own) : cat(scope.prefix, "/", own);
}

std::vector<std::string_view> Importer::wanted() const {
  std::vector<std::string_view> names;
  for (const ModelPort& port : model_.outputs()) names.push_back(port.name);
  names.insert(names.end(), binding_.inner_outputs.begin(), binding_.inner_outputs.end());
  return names;
}

Status Importer::run_nodes(const std::vector<Node>& nodes, Scope& scope, const std::vector<std::string_view>& wanted) {
  Uses uses(nodes, wanted);
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (!uses.needs(n)) continue;
    if (Status status = run_node(nodes[n], scope); !status.ok()) {
      if (leave_out(nodes[n], scope, status)) continue;
      return status.where().empty() ? status.at(node_name(nodes[n], scope)) : status;
    }
    uses.done(nodes[n], [&](std::string_view name) {
      auto it = scope.values.find(name);
      if (it == scope.values.end()) return;
      held_bytes_ -= it->second.held_bytes;
      scope.values.erase(it);
    });
  }
  return {};
}

// If the loss names an output, the others may need unsupported operators.
bool Importer::leave_out(const Node& node, Scope& scope, const Status& status) {
  if (&scope != &top_ || binding_.inner_outputs.empty() || status.code() != Code::unsupported) return false;
  if (!builder_.status().ok()) {  // a new one at the place of the old one, which values refer to
    std::destroy_at(&builder_);
    std::construct_at(&builder_, graph_);
  }
  Status reason = status.where().empty() ? status.at(node_name(node, scope)) : status;
  for (std::string_view name : node.inputs) {
    if (auto it = left_out_.find(name); it != left_out_.end()) reason = it->second;  // the first one's
  }
  for (std::string_view name : node.outputs) {
    if (name.empty()) continue;
    left_out_[name] = reason;
    scope.values[name] = Slot{.not_computed = true};
  }
  return true;
}

// Constants may not take unlimited memory: a small file can ask for very large ones.
Status Importer::hold(int64_t bytes) {
  held_bytes_ += bytes;
  const int64_t max_bytes = max_held_bytes + 8 * static_cast<int64_t>(model_.stored()->bytes().size());
  if (held_bytes_ <= max_bytes) return {};
  return Status(Code::invalid_model,
                cat("constants that are computed when the model is bound take more than ", max_bytes >> 20, " MiB"));
}

Status Importer::run_node(const Node& node, Scope& scope) {
  if (&scope == &top_) {
    source_ = node_name(node, scope);
    builder_.set_source(source_);
  }
  if (++imported_ > max_nodes)
    return Status(Code::invalid_model, cat("its functions unfold into more than ", max_nodes, " nodes"));
  if (const Function* function = model_.function(node.domain, node.op_type, node.overload))
    return call_function(*function, node, scope);
  if (is_control_flow(node)) return ControlFlow(*this, node, scope).run();
  if (node.op_type == "Constant" && node.attributes.size() == 1 && node.attributes[0].t &&
      (scope.outer != nullptr || model_.weight_name(*node.attributes[0].t) != nullptr)) {
    EPL_ASSIGN(scope.values[node.outputs[0]], held_tensor(*node.attributes[0].t, node.outputs[0], scope));
    return {};
  }
  if (&scope == &top_ && node.outputs.size() == 1 &&
      model_.quantized().contains(node.outputs[0])) {  // a weight, stored as integers
    const epl::Tensor value = model_.quantized().value(node.outputs[0], model_.shared_from_this());
    const Value leaf = graph_.add_leaf(ValueKind::parameter, std::string(node.outputs[0]), value.type(), value);
    scope.values[node.outputs[0]] = Slot{builder_.var(leaf), {}, value.type(), {}};
    return {};
  }
  if (&scope == &top_ && model_.quantized().only_serves(node)) return {};
  const OnnxOpRow* row = onnx_op_table().find(node.domain, node.op_type, opset(node.domain));
  if (!row && host_op(model_, node) == nullptr) return unsupported("operator ", node.op_type, " is not supported");
  return run_row(row ? *row : host_op_row(), node, scope);
}

Status Importer::run_row(const OnnxOpRow& row, const Node& node, Scope& scope) {
  std::vector<Slot*> inputs;
  for (std::string_view name : node.inputs) {
    inputs.push_back(name.empty() ? nullptr : find(name, scope));
    if (!name.empty() && !inputs.back())
      return Status(Code::invalid_model, cat("uses ", shown(name, 200), ", which is not defined"));
    if (inputs.back() && inputs.back()->not_computed) {
      return unsupported("uses ", shown(name, 200), ", ",
                         inputs.back()->why ? *inputs.back()->why : "a result that is not computed in this mode")
          .at(node_name(node, scope));
    }
    if (training() && inputs.back() && inputs.back()->through_rounding && row.quantizes != Quantizes::takes) {
      return unsupported("uses the quantised ", shown(name, 200),
                         ", which a gradient comes through at a DequantizeLinear alone; train the model before it "
                         "was quantised")
          .at(node_name(node, scope));
    }
  }
  std::string name = node_name(node, scope);
  std::vector<const TensorType*> types;
  for (const Slot* slot : inputs) types.push_back(slot && !slot->sequence ? &slot->type : nullptr);
  if (Status status = check_types(node, opset(node.domain), types); !status.ok()) return status.at(name);
  builder_.set_scope(name);
  const int first_node = graph_.node_count(), first_value = graph_.value_count();
  const int64_t index = imported_;
  std::vector<Slot> freed, operands;  // replacements of operands; the operands themselves, where the batch is freed
  if (batch_.to > 0 && index < static_cast<int64_t>(in_file_->size())) {
    Status status = free_operands(node, (*in_file_)[static_cast<size_t>(index)], batch_, builder_, inputs, freed);
    if (!status.ok()) return status.with_context("the batch cannot be freed").at(name);
    for (const Slot* slot : inputs) operands.push_back(slot ? *slot : Slot());
  }
  Import import(*this, builder_, node, std::move(inputs), std::vector<Slot>(node.outputs.size()));
  row.run(import);
  if (!builder_.status().ok()) return builder_.status().with_context(cat("importing ", node.op_type)).at(name);
  for (int n = first_node; n < graph_.node_count(); ++n) {
    for (Value v : graph_.node(NodeId{n}).outputs) {
      if (Status status = check_size(graph_.type(v)); !status.ok()) return status.at(name);
    }
  }
  std::vector<Slot> results = import.results();
  EPL_TRY(fold(first_node, results));
  for (int v = first_value; v < graph_.value_count(); ++v) {
    const epl::ValueInfo& info = graph_.value(Value{v});
    if (info.kind == ValueKind::constant) EPL_TRY(hold(info.data.bytes()));
  }
  follow_shapes(node, index, operands, results);
  for (size_t i = 0; i < results.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    if (!results[i].var && !results[i].constant.empty()) {
      results[i].held_bytes = results[i].constant.bytes();
      EPL_TRY(hold(results[i].held_bytes));
    }
    results[i].not_computed = !results[i].var && results[i].constant.empty() && !results[i].sequence;
    scope.values[node.outputs[i]] = std::move(results[i]);
  }
  return {};
}

void Importer::follow_shapes(const Node& node, int64_t index, const std::vector<Slot>& operands,
                             std::vector<Slot>& results) {
  if (noted_) {
    noted_->resize(static_cast<size_t>(index) + 1);
    for (const Slot& slot : results) noted_->back().push_back(slot.type.shape);
  }
  if (batch_.to == 0 || index >= static_cast<int64_t>(in_file_->size())) return;
  const std::vector<Shape>& shapes = (*in_file_)[static_cast<size_t>(index)];
  for (size_t i = 0; i < std::min(shapes.size(), results.size()); ++i) {
    if (shapes[i].size() != results[i].type.shape.size()) continue;
    results[i].in_file = shapes[i];
    results[i].outer = outer_of_result(node, operands, results[i]);
  }
}

// Computes those of the node's ops that depend only on constants. The nodes stay in the graph, dead, and are removed
// later.
Status Importer::fold(int first_node, std::vector<Slot>& results) {
  std::unordered_map<int32_t, epl::Tensor> known;  // results of the ops that were computed
  auto value_of = [&](Value v) {
    auto it = known.find(v.index);
    if (it != known.end()) return it->second;
    const epl::ValueInfo& info = graph_.value(v);
    return info.kind == ValueKind::constant ? info.data : epl::Tensor();
  };
  for (int n = first_node; n < graph_.node_count(); ++n) {
    const epl::Node node = graph_.node(NodeId{n});
    std::vector<epl::Tensor> inputs;
    bool constant = !node.op->random && !is_host_op(*node.op);
    for (Value v : node.inputs) {
      inputs.push_back(v ? value_of(v) : epl::Tensor());
      constant = constant && (!v || !inputs.back().empty());
    }
    for (Value v : node.outputs) constant = constant && graph_.type(v).elements() <= max_folded_elements;
    if (constant && may_fold(node)) {
      auto outputs = evaluate_op(*node.op, node.attributes, inputs);
      if (!outputs.ok()) return outputs.status().with_context(cat("folding ", node.name));
      for (size_t o = 0; o < node.outputs.size(); ++o) known[node.outputs[o].index] = (*outputs)[o];
      continue;
    }
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      auto it = node.inputs[k] ? known.find(node.inputs[k].index) : known.end();
      if (it != known.end())
        graph_.node(NodeId{n}).inputs[k] = graph_.add_constant(cat(node.name, ".folded"), it->second);
    }
  }
  for (Slot& slot : results) {
    if (!slot.var) continue;
    epl::Tensor value = value_of(slot.var.value());
    if (!value.empty()) slot = {{}, value, value.type(), {}};
  }
  return {};
}

// Nodes that take too much work or memory are left to the run.
bool Importer::may_fold(const epl::Node& node) {
  std::vector<const TensorType*> inputs, outputs;
  int64_t bytes = 0;
  for (Value v : node.inputs) inputs.push_back(v ? &graph_.type(v) : nullptr);
  for (Value v : node.outputs) {
    outputs.push_back(&graph_.type(v));
    bytes += outputs.back()->bytes();
  }
  const double work = op_flops(OpQuery(*node.op, node.attributes, std::move(inputs), std::move(outputs)));
  if (folding_work_ + work > max_folding_work || held_bytes_ + 2 * bytes > max_held_bytes) return false;
  folding_work_ += work;
  return true;
}

Var Importer::materialize(Slot& slot) {
  if (!slot.var) {
    slot.var = builder_.constant(slot.constant);
    held_bytes_ -= slot.held_bytes;  // counted as a constant of the graph from now on
    slot.held_bytes = 0;
  }
  return slot.var;
}

Var Importer::take(const Sequence::Item& item) {
  Slot slot = item.value;
  Var v = materialize(slot);
  if (item.axis < 0 || !v) return v;
  Var slice = builder_.slice(v, {item.axis}, {item.begin}, {item.end});
  if (!item.squeeze) return slice;
  Shape shape = slice.shape();
  if (item.axis < static_cast<int64_t>(shape.size())) shape.erase(shape.begin() + item.axis);
  return builder_.reshape(slice, shape);
}

Status Importer::call_function(const Function& function, const Node& node, Scope& scope) {
  if (scope.depth >= max_call_depth)
    return Status(Code::invalid_model, cat("function ", function.name, " calls itself, or calls nest too deeply"));
  if (node.inputs.size() > function.inputs.size() || node.outputs.size() > function.outputs.size()) {
    return Status(Code::invalid_model, cat("function ", function.name, " has fewer operands than the node"));
  }
  Scope inner;
  inner.within = &scope;
  inner.function = &function;
  inner.prefix = node_name(node, scope);
  inner.depth = scope.depth + 1;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i].empty()) continue;
    Slot* slot = find(node.inputs[i], scope);
    if (!slot) return Status(Code::invalid_model, cat("uses ", shown(node.inputs[i], 200), ", which is not defined"));
    inner.values[function.inputs[i]] = *slot;
    inner.values[function.inputs[i]].held_bytes = 0;  // counted where it is
  }
  auto body = body_of(model_, function, node);
  if (!body.ok()) return body.status().at(cat(inner.prefix, "/", body.status().where()));
  EPL_TRY(run_nodes(*body, inner, function.outputs));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    Slot* slot = find(function.outputs[i], inner);
    if (!slot)
      return Status(Code::invalid_model,
                    cat("function ", function.name, " does not define its output ", function.outputs[i]));
    scope.values[node.outputs[i]] = *slot;
  }
  return {};
}

}  // namespace epl::onnx
