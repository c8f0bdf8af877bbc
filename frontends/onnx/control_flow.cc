#include "frontends/onnx/control_flow.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/base/shown.h"
#include "core/base/text.h"
#include "frontends/onnx/file_check.h"

namespace epl::onnx {
namespace {

bool same_constant(const Slot& a, const Slot& b) {
  return !a.constant.empty() && !b.constant.empty() && a.type == b.type &&
         std::memcmp(a.constant.data(), b.constant.data(), static_cast<size_t>(a.constant.bytes())) == 0;
}

}  // namespace

bool is_control_flow(const Node& node) {
  return is_standard(node.domain) &&
         (node.op_type == "If" || node.op_type == "Loop" || node.op_type == "Scan" || node.op_type == "SequenceMap");
}

Status ControlFlow::run() {
  if (scope_.depth >= max_call_depth)
    return Status(Code::invalid_model, cat("graphs within nodes nest more than ", max_call_depth, " deep"), name_);
  const auto run = [&] {
    if (node_.op_type == "If") return run_if();
    if (node_.op_type == "Loop") return run_loop();
    if (node_.op_type == "SequenceMap") return map_sequence();
    return importer_.opset("") < 9 ? run_batched_scan() : run_scan();
  };
  Status status = run();
  if (status.ok()) status = importer_.builder_.status();
  return status.ok() || !status.where().empty() ? status : status.at(name_);
}

const epl::onnx::Graph* ControlFlow::graph(std::string_view name) const {
  for (const Attribute& attribute : node_.attributes) {
    if (attribute.name == name) return attribute.g.get();
  }
  return nullptr;
}

Ints ControlFlow::ints(std::string_view name, size_t count) const {
  for (const Attribute& attribute : node_.attributes) {
    if (attribute.name == name && attribute.ints.size() == count) return attribute.ints;
  }
  return Ints(count, 0);
}

Result<Slot*> ControlFlow::operand(size_t k) {
  if (k >= node_.inputs.size() || node_.inputs[k].empty()) return static_cast<Slot*>(nullptr);
  Slot* slot = importer_.find(node_.inputs[k], scope_);
  if (!slot) return error(Code::invalid_model, "uses ", shown(node_.inputs[k], 200), ", which is not defined");
  if (slot->not_computed) {
    return unsupported_here(cat("uses ", shown(node_.inputs[k], 200), ", ",
                                slot->why ? *slot->why : "a result that is not computed in this mode"));
  }
  return slot;
}

Result<ControlFlow::Slots> ControlFlow::operands(size_t from, size_t to) {
  Slots out;
  for (size_t k = from; k < to; ++k) {
    EPL_ASSIGN(const Slot* slot, operand(k));
    if (slot == nullptr) return error(Code::invalid_model, "input ", k, " is missing");
    out.push_back(*slot);
    out.back().held_bytes = 0;  // counted where it is
  }
  return out;
}

void ControlFlow::set(size_t k, Slot slot) {
  if (k >= node_.outputs.size() || node_.outputs[k].empty()) return;
  slot.held_bytes = 0;
  scope_.values[node_.outputs[k]] = std::move(slot);
}

Status ControlFlow::unsupported_here(const std::string& what) const { return unsupported(what).at(name_); }

// The nodes of a graph, with these values for its inputs.
Result<ControlFlow::Slots> ControlFlow::run_body(const epl::onnx::Graph& body, const Slots& inputs,
                                                 const std::string& prefix, const Var& taken) {
  if (inputs.size() != body.inputs.size()) {
    return error(Code::invalid_model, "its graph has ", body.inputs.size(), " inputs where ", inputs.size(),
                 " are given");
  }
  // Iterations of nothing count as well: loops in loops have no end otherwise.
  if (++importer_.imported_ > max_nodes)
    return error(Code::invalid_model, "its loops unfold into more than ", max_nodes, " nodes");
  Scope inner;
  inner.outer = &scope_;
  inner.within = &scope_;
  inner.prefix = prefix;
  inner.depth = scope_.depth + 1;
  inner.taken = taken;
  for (const Tensor& tensor : body.initializers) {
    EPL_ASSIGN(inner.values[tensor.name], importer_.held_tensor(tensor, tensor.name, inner));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    inner.values[body.inputs[i].name] = taken ? guarded(importer_.builder_, inputs[i], taken) : inputs[i];
  }
  std::vector<std::string_view> names;
  for (const ValueInfo& output : body.outputs) names.push_back(output.name);
  EPL_TRY(importer_.run_nodes(body.nodes, inner, names));
  Slots out;
  for (std::string_view name : names) {
    const Slot* slot = importer_.find(name, inner);
    if (!slot) return error(Code::invalid_model, "its graph does not define its output ", shown(name, 200));
    out.push_back(*slot);
  }
  return out;
}

Slot ControlFlow::guarded(Builder& b, const Slot& slot, const Var& taken) {
  Slot out = slot;
  out.held_bytes = 0;
  if (slot.sequence) {
    Sequence items = *slot.sequence;
    for (Sequence::Item& item : items.items) item.value = guarded(b, item.value, taken);
    out.sequence = std::make_shared<const Sequence>(std::move(items));
  }
  if (!slot.var || !slot.constant.empty() || !is_float(slot.type.dtype)) return out;
  const ValueKind kind = b.graph().value(slot.var.value()).kind;
  if (kind == ValueKind::input || kind == ValueKind::buffer) return out;  // they have no gradient
  out.var = b.select(taken, slot.var, b.like(slot.var, 0));
  out.through_rounding = {};
  return out;
}

// Of nodes from `first_node` on, which gave the slot, those that are known now are computed now.
Result<Slot> ControlFlow::emitted(int first_node, Slot slot) {
  EPL_TRY(importer_.builder_.status());
  std::vector<Slot> results = {std::move(slot)};
  EPL_TRY(importer_.fold(first_node, results));
  return std::move(results[0]);
}

Result<Slot> ControlFlow::part(const Slot& slot, int64_t axis, int64_t index) {
  const int first = importer_.graph_.node_count();
  const Var v = importer_.take({slot, axis, index, index + 1, true});
  Slot out{.var = v, .type = v.type(), .in_file = slot.in_file, .outer = slot.outer};
  if (out.in_file) out.in_file->erase(out.in_file->begin() + axis);
  return emitted(first, std::move(out));
}

Result<Slot> ControlFlow::stack(const Slots& rows, int64_t axis, std::string_view output) {
  const int first = importer_.graph_.node_count();
  std::vector<Var> parts;
  const TensorType type = rows.front().type;
  axis = axis < 0 ? axis + type.ndim() + 1 : axis;
  if (axis < 0 || axis > type.ndim())
    return error(Code::invalid_model, "axis ", axis, " of scan output ", shown(output, 200), ", of which a row is ",
                 type.text());
  for (const Slot& row : rows) {
    if (row.sequence) return error(Code::invalid_model, "scan output ", shown(output, 200), " is a sequence");
    if (!(row.type == type))
      return error(Code::invalid_model, "scan output ", shown(output, 200), " is ", type.text(),
                   " in one iteration and ", row.type.text(), " in another");
    Slot copy = row;
    Shape shape = type.shape;
    shape.insert(shape.begin() + axis, 1);
    parts.push_back(importer_.builder_.reshape(importer_.materialize(copy), shape));
  }
  const Var all = parts.size() == 1 ? parts[0] : importer_.builder_.concat(parts, axis);
  Slot out{.var = all, .type = all.type(), .in_file = rows.front().in_file, .outer = rows.front().outer};
  if (out.in_file) out.in_file->insert(out.in_file->begin() + axis, static_cast<int64_t>(rows.size()));
  return emitted(first, std::move(out));
}

// Of a loop that does not run: as the graph declares a row.
Result<Slot> ControlFlow::empty_stack(const epl::onnx::Graph& body, size_t output) {
  const ValueInfo& info = body.outputs[output];
  EPL_ASSIGN(const DType dtype, dtype_of(info.elem_type));
  TensorType type{dtype, {0}};
  for (const Dim& dim : info.dims) {
    if (dim.value < 0 || !info.has_shape)
      return unsupported_here(cat("scan output ", shown(info.name, 200),
                                  " of a loop without iterations, whose graph does not "
                                  "declare its shape"));
    type.shape.push_back(dim.value);
  }
  return Slot{{}, epl::Tensor(type), type, {}};
}

Var ControlFlow::scalar(const Slot& slot) {
  Slot copy = slot;
  return importer_.builder_.reshape(importer_.materialize(copy), {});
}

// ` (it depends on input "x")`.
std::string ControlFlow::depends_on(const Var& v) const {
  const epl::Graph& graph = importer_.graph_;
  std::set<int32_t> seen;
  std::vector<Value> left = {v.value()};
  std::vector<std::string> inputs;
  while (!left.empty()) {
    const Value value = left.back();
    left.pop_back();
    if (!value || !seen.insert(value.index).second) continue;
    const epl::ValueInfo& info = graph.value(value);
    if (info.kind == ValueKind::input) inputs.push_back(cat(shown(info.name, 200)));
    if (info.producer) {
      for (Value operand : graph.node(info.producer).inputs) left.push_back(operand);
    }
  }
  if (inputs.empty()) return "";
  std::ranges::sort(inputs);
  return cat(" (input ", join(inputs, ", "), ")");
}

Result<Slot> ControlFlow::selected(const Var& condition, const Slot& yes, const Slot& no, const std::string& what) {
  if (yes.not_computed || no.not_computed) return yes.not_computed ? yes : no;
  if (same_constant(yes, no) || (yes.var && no.var && yes.var.value() == no.var.value())) return yes;
  const auto differ = [&](const std::string& a, const std::string& b) {
    return unsupported_here(cat(what, " is ", a, " or ", b, ", as data says", depends_on(condition),
                                "; a plan has one shape. Make what decides a constant (--value NAME=V), or "
                                "export the model for one case"));
  };
  if (yes.sequence || no.sequence) {
    if (!yes.sequence || !no.sequence || yes.sequence->items.size() != no.sequence->items.size())
      return differ(yes.sequence ? cat("a sequence of ", yes.sequence->items.size()) : yes.type.text(),
                    no.sequence ? cat("a sequence of ", no.sequence->items.size()) : no.type.text());
    Sequence items;
    for (size_t i = 0; i < yes.sequence->items.size(); ++i) {
      const Var a = importer_.take(yes.sequence->items[i]), b = importer_.take(no.sequence->items[i]);
      EPL_ASSIGN(Slot item, selected(condition, {.var = a, .type = a.type()}, {.var = b, .type = b.type()}, what));
      items.items.push_back({std::move(item)});
    }
    Slot out = yes;
    out.sequence = std::make_shared<const Sequence>(std::move(items));
    return out;
  }
  if (!(yes.type == no.type)) return differ(yes.type.text(), no.type.text());
  Slot a = yes, b = no;
  const Var v = importer_.builder_.select(condition, importer_.materialize(a), importer_.materialize(b));
  EPL_TRY(importer_.builder_.status());
  return Slot{.var = v, .type = v.type(), .in_file = yes.in_file, .outer = yes.outer};
}

// Running statistics that are learnt where the condition says so.
ControlFlow::Updates ControlFlow::selected(const Var& condition, const Updates& yes, const Updates& no) {
  const auto next = [](const Updates& updates, Value state) {
    const auto it = std::ranges::find(updates, state, &epl::Graph::Update::state);
    return it == updates.end() ? state : it->next;
  };
  Updates out = yes;
  for (const epl::Graph::Update& one : no) {
    if (std::ranges::find(out, one.state, &epl::Graph::Update::state) == out.end())
      out.push_back({one.state, one.state});
  }
  Builder& b = importer_.builder_;
  for (epl::Graph::Update& one : out) {
    const Value other = next(no, one.state);
    if (one.next != other) one.next = b.select(condition, b.var(one.next), b.var(other)).value();
  }
  return out;
}

Status ControlFlow::run_if() {
  EPL_ASSIGN(const Slot* condition, operand(0));
  if (condition == nullptr || condition->sequence || condition->type.elements() != 1)
    return error(Code::invalid_model, "the condition of an If is one truth value");
  Slots results;
  if (const auto taken = known_number(*condition)) {
    const epl::onnx::Graph* branch = graph(*taken != 0 ? "then_branch" : "else_branch");
    if (branch == nullptr) return error(Code::invalid_model, "an If without the branch that it takes");
    EPL_ASSIGN(results, run_body(*branch, {}, name_, {}));
  } else {
    EPL_ASSIGN(results, both_branches(*condition));
  }
  if (results.size() < node_.outputs.size())
    return error(Code::invalid_model, "a branch gives ", results.size(), " values, the If ", node_.outputs.size());
  for (size_t i = 0; i < node_.outputs.size(); ++i) set(i, std::move(results[i]));
  return {};
}

Result<ControlFlow::Slots> ControlFlow::both_branches(const Slot& condition) {
  importer_.builder_.set_scope(name_);
  const Var taken = scalar(condition), other = importer_.builder_.unary("logical_not", taken);
  const Updates before = importer_.graph_.updates;
  std::vector<Slots> results;
  std::vector<Updates> updates;
  for (const char* name : {"then_branch", "else_branch"}) {
    const epl::onnx::Graph* branch = graph(name);
    if (branch == nullptr) return error(Code::invalid_model, "an If without ", name);
    importer_.graph_.updates = before;
    auto made = run_body(*branch, {}, cat(name_, "/", name), results.empty() ? taken : other);
    if (!made.ok())
      return made.status().with_context(
          cat("both branches of the If ", name_, " are computed, because data says which counts", depends_on(taken)));
    results.push_back(*std::move(made));
    updates.push_back(importer_.graph_.updates);
  }
  if (results[0].size() != results[1].size())
    return error(Code::invalid_model, "the branches of an If give ", results[0].size(), " and ", results[1].size(),
                 " values");
  importer_.builder_.set_scope(name_);
  importer_.graph_.updates = selected(taken, updates[0], updates[1]);
  Slots out;
  for (size_t i = 0; i < results[0].size(); ++i) {
    const std::string_view given = i < node_.outputs.size() ? node_.outputs[i] : "";
    EPL_ASSIGN(Slot slot,
               selected(taken, results[0][i], results[1][i], cat("output ", shown(given, 200), " of an If")));
    out.push_back(std::move(slot));
  }
  return out;
}

}  // namespace epl::onnx
