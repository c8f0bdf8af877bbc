#include "core/ir/host_op.h"

#include <algorithm>
#include <new>

#include "core/base/check.h"
#include "core/base/shown.h"

namespace epl {

// Records that know the host's functions: of the op, and of its gradient.
struct HostRecord : OpDef {
  const HostRecords* all = nullptr;
};
struct HostRecords {
  HostOp host;
  HostRecord forward, backward;
};

namespace {

const HostRecords& records_of(const OpDef& op) { return *static_cast<const HostRecord&>(op).all; }

// What a node of a gradient knows besides the op's own attributes.
constexpr std::string_view json = "attributes", operands = "operands", wanted = "wanted";

const std::string& text_of(const Attributes& attributes) { return std::get<std::string>(*attributes.find(json)); }

// Calls a function of the host in a step. What it meets ends the step.
template <class F> void call_host(F&& f) {
  Status status;
  try {
    status = f();
  } catch (const std::bad_alloc&) {
    status = Status::no_memory();
  }
  if (!status.ok()) throw HostFailure{status};
}

HostTensor input(const Reference& r, int i) {
  return r.has(i) ? HostTensor{&r.in(i).type(), r.in(i).data()} : HostTensor();
}
HostTensor output(const Reference& r, int o) { return {&r.out(o).type(), r.out(o).data()}; }

// --- the op ---

Result<OutputTypes> infer_host(const OpQuery& q) {
  const HostOp& op = records_of(q.op()).host;
  std::vector<const TensorType*> inputs;
  for (int i = 0; i < q.inputs(); ++i) inputs.push_back(q.has(i) ? &q.in(i) : nullptr);
  EPL_ASSIGN(OutputTypes types, op.infer(text_of(q.attributes()), inputs));
  EPL_CHECK(types.size() == static_cast<size_t>(op.outputs), "op ", q.op().name, " gives ", types.size(), " types");
  return types;
}

void run_host(const Reference& r) {
  call_host([&]() -> Status {
    std::vector<HostTensor> inputs, outputs;
    for (int i = 0; i < r.query().inputs(); ++i) inputs.push_back(input(r, i));
    for (int o = 0; o < r.query().outputs(); ++o) outputs.push_back(output(r, o));
    return records_of(r.query().op()).host.run(text_of(r.attributes()), inputs, outputs);
  });
}

bool has_factor(const ShardingRule::Operand& operand, int factor) {
  return std::ranges::any_of(operand, [&](const auto& dim) { return std::ranges::find(dim, factor) != dim.end(); });
}

Status check_sizes(const OpDef& op, const ShardingRule& rule, const std::vector<ShardingRule::Operand>& operands,
                   const std::vector<TensorType>& types) {
  for (size_t i = 0; i < types.size(); ++i) {
    for (size_t d = 0; d < types[i].shape.size(); ++d) {
      int64_t size = 1;
      for (const int factor : operands[i][d]) size *= rule.factors[static_cast<size_t>(factor)].size;
      if (size != types[i].shape[d])
        return invalid("the sharding rule ", shown(records_of(op).host.sharding, 200), " says that dimension ", d,
                       " of ", types[i].text(), " has ", size, " elements");
    }
  }
  return {};
}

// Only what all results have may be cut: then each rank computes its part of them, and nothing is summed.
Result<ShardingRule> host_rule(const OpQuery& q) {
  std::vector<TensorType> inputs, outputs;
  for (int i = 0; i < q.inputs(); ++i) inputs.push_back(q.has(i) ? q.in(i) : TensorType{});
  for (int o = 0; o < q.outputs(); ++o) outputs.push_back(q.has_output(o) ? q.out(o) : TensorType{});
  ShardingRule rule;
  if (records_of(q.op()).host.sharding.empty()) {
    const auto uncut = [&](const std::vector<TensorType>& types) {
      std::vector<ShardingRule::Operand> operands;
      for (const TensorType& type : types) {
        operands.emplace_back();
        for (const int64_t size : type.shape)
          operands.back().push_back(size == 1 ? ShardingRule::Dim{} : ShardingRule::Dim{rule.add_factor(size, true)});
      }
      return operands;
    };
    rule.inputs = uncut(inputs);
    rule.outputs = uncut(outputs);
    return rule;
  }
  EPL_ASSIGN(rule, parse_sharding_rule(records_of(q.op()).host.sharding, inputs, outputs));
  EPL_TRY(check_sizes(q.op(), rule, rule.inputs, inputs));
  EPL_TRY(check_sizes(q.op(), rule, rule.outputs, outputs));
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    const auto has = [&](const ShardingRule::Operand& one) { return has_factor(one, static_cast<int>(f)); };
    const bool passes = std::ranges::all_of(rule.outputs, has) && std::ranges::any_of(rule.inputs, has);
    if (!passes) rule.factors[f].unshardable = true;
  }
  return rule;
}

// --- its gradient: operands are the inputs, the outputs and what flows back through them ---

int count_of(const Attributes& attributes) { return static_cast<int>(attributes.integer(operands)); }

// Those of the op itself, which the node of the gradient has as its first operands.
OpQuery forward_query(const OpQuery& q) {
  const OpDef& forward = records_of(q.op()).forward;
  std::vector<const TensorType*> inputs, outputs;
  for (int i = 0; i < count_of(q.attributes()); ++i) inputs.push_back(q.has(i) ? &q.in(i) : nullptr);
  for (int o = 0; o < records_of(q.op()).host.outputs; ++o) outputs.push_back(&q.in(count_of(q.attributes()) + o));
  return OpQuery(forward, q.attributes(), std::move(inputs), std::move(outputs));
}

Result<OutputTypes> infer_gradient(const OpQuery& q) {
  OutputTypes types;
  for (const int64_t input : q.attributes().ints(wanted)) types.push_back(q.in(static_cast<int>(input)));
  return types;
}

// A factor that a gradient lacks is summed over: the gradient of a weight, over rows. The host sums what it is given,
// so such a factor must be rows of all operands that have it; then each unit of them is a call of its own.
Result<ShardingRule> gradient_rule(const OpQuery& q) {
  EPL_ASSIGN(const ShardingRule forward, host_rule(forward_query(q)));
  ShardingRule rule;
  rule.factors = forward.factors;
  rule.inputs = forward.inputs;
  for (int times = 0; times < 2; ++times)
    rule.inputs.insert(rule.inputs.end(), forward.outputs.begin(), forward.outputs.end());
  const int outputs = records_of(q.op()).host.outputs, first = q.inputs() - outputs;
  for (int o = 0; o < outputs; ++o) {
    if (!q.has(first + o)) rule.inputs[static_cast<size_t>(first + o)].clear();
  }
  for (const int64_t input : q.attributes().ints(wanted))
    rule.outputs.push_back(forward.inputs[static_cast<size_t>(input)]);
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    const int factor = static_cast<int>(f);
    const auto has = [&](const ShardingRule::Operand& one) { return has_factor(one, factor); };
    const auto is_rows = [&](const ShardingRule::Operand& one) {
      return !has(one) || (one[0] == ShardingRule::Dim{factor} &&
                           std::ranges::none_of(one.begin() + 1, one.end(), [&](const ShardingRule::Dim& dim) {
                             return std::ranges::find(dim, factor) != dim.end();
                           }));
    };
    if (std::ranges::all_of(rule.outputs, has)) continue;
    if (!std::ranges::all_of(rule.inputs, is_rows)) rule.factors[f].unshardable = true;
  }
  return rule;
}

// The factor that units are of: rows that some gradient lacks. -1: there is none.
int summed_rows(const ShardingRule& rule) {
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    const bool summed = std::ranges::any_of(
        rule.outputs, [&](const ShardingRule::Operand& one) { return !has_factor(one, static_cast<int>(f)); });
    if (summed && !rule.factors[f].unshardable) return static_cast<int>(f);
  }
  return -1;
}

// A part of a tensor's rows, with a type of its own.
struct Rows {
  TensorType type;
  HostTensor part;
  Rows(const HostTensor& of, int64_t unit, int64_t units) : type(*of.type) {
    type.shape[0] /= units;
    part = {&type, static_cast<std::byte*>(of.data) + of.bytes() / units * unit};
  }
};

// A gradient for each unit, and their sum by the binary tree.
class UnitSums {
 public:
  UnitSums(const HostTensor& out, int64_t units) : out_(out), memory_(static_cast<size_t>(out.bytes() * units)) {}
  HostTensor unit(int64_t u) { return {out_.type, memory_.data() + out_.bytes() * u}; }
  void finish(int64_t units) {
    for (int64_t step = 1; step < units; step *= 2) {
      for (int64_t u = 0; u + step < units; u += 2 * step) {
        const TensorView to(out_.type, unit(u).data), from(out_.type, unit(u + step).data);
        for (int64_t i = 0; i < to.elements(); ++i) to.set(i, to.get(i) + from.get(i));
      }
    }
    std::copy_n(memory_.data(), out_.bytes(), static_cast<std::byte*>(out_.data));
  }

 private:
  HostTensor out_;
  std::vector<std::byte> memory_;
};

// Operands of one call of the host's gradient: all of them, or one unit of the rows of those that have any.
struct GradientCall {
  std::vector<HostTensor> operands, gradients;
  Status run(const Reference& r) const {
    const HostOp& op = records_of(r.query().op()).host;
    const std::span<const HostTensor> all = operands;
    const auto inputs = static_cast<size_t>(count_of(r.attributes())), outputs = static_cast<size_t>(op.outputs);
    return op.gradient(text_of(r.attributes()), all.first(inputs), all.subspan(inputs, outputs),
                       all.subspan(inputs + outputs), gradients);
  }
};

Status run_units(const Reference& r, const GradientCall& full) {
  const int64_t units = r.units().count;
  EPL_ASSIGN(const ShardingRule rule, gradient_rule(r.query()));
  const int rows = summed_rows(rule);
  EPL_CHECK(rows >= 0 && r.units().outer == 1, "op ", r.query().op().name, ": units of no rows");
  const Ints& of = r.attributes().ints(wanted);
  std::vector<UnitSums> sums;
  for (size_t g = 0; g < of.size(); ++g) {
    if (!has_factor(rule.outputs[g], rows)) sums.emplace_back(output(r, static_cast<int>(g)), units);
  }
  for (int64_t u = 0; u < units; ++u) {
    std::vector<std::unique_ptr<Rows>> parts;
    const auto rows_of = [&](const HostTensor& tensor) {
      return parts.emplace_back(std::make_unique<Rows>(tensor, u, units))->part;
    };
    GradientCall one = full;
    for (size_t i = 0; i < one.operands.size(); ++i) {
      if (one.operands[i].type != nullptr && has_factor(rule.inputs[i], rows))
        one.operands[i] = rows_of(full.operands[i]);
    }
    auto sum = sums.begin();
    for (size_t g = 0; g < of.size(); ++g) {
      HostTensor& gradient = one.gradients[static_cast<size_t>(of[g])];
      gradient = has_factor(rule.outputs[g], rows) ? rows_of(gradient) : (sum++)->unit(u);
    }
    EPL_TRY(one.run(r));
  }
  for (UnitSums& one : sums) one.finish(units);
  return {};
}

void run_host_gradient(const Reference& r) {
  call_host([&] {
    GradientCall call;
    call.gradients.resize(static_cast<size_t>(count_of(r.attributes())));
    for (int i = 0; i < r.query().inputs(); ++i) call.operands.push_back(input(r, i));
    const Ints& of = r.attributes().ints(wanted);
    for (size_t g = 0; g < of.size(); ++g) call.gradients[static_cast<size_t>(of[g])] = output(r, static_cast<int>(g));
    return r.units().count > 1 ? run_units(r, call) : call.run(r);
  });
}

void host_gradient(Grad& g) {
  const HostRecords& records = records_of(*g.node().op);
  const HostOp& op = records.host;
  std::vector<Var> all;
  Ints of;
  for (int i = 0; i < g.inputs(); ++i) {
    all.push_back(g.in(i));
    if (g.needs(i)) of.push_back(i);
  }
  for (int o = 0; o < op.outputs; ++o) all.push_back(g.out(o));
  for (int o = 0; o < op.outputs; ++o) all.push_back(g.upstream(o));
  const std::vector<Var> made = emit_host_op(g.b, records.backward, all,
                                             {{std::string(json), text_of(g.attributes())},
                                              {std::string(operands), static_cast<int64_t>(g.inputs())},
                                              {std::string(wanted), of}});
  if (!g.b.status().ok()) return;
  for (size_t i = 0; i < of.size(); ++i) g.set(static_cast<int>(of[i]), made[i]);
}

}  // namespace

bool is_host_op(const OpDef& op) { return op.infer == infer_host || op.infer == infer_gradient; }

std::vector<Var> emit_host_op(Builder& b, const OpDef& op, const std::vector<Var>& inputs, Attributes attributes,
                              std::string source) {
  if (!b.status().ok()) return {};
  Graph& graph = b.graph();
  Node node{.name = graph.unique_name(b.scope().empty() ? std::string_view(op.name) : b.scope()),
            .op = &op,
            .attributes = std::move(attributes),
            .phase = b.phase(),
            .source = std::move(source)};
  std::vector<const TensorType*> types;
  for (const Var& input : inputs) {
    node.inputs.push_back(input.value());
    types.push_back(input ? &input.type() : nullptr);
  }
  Status status = complete_attributes(op, node.attributes);
  const auto outputs = status.ok() ? infer_types(op, node.attributes, types) : Result<OutputTypes>(status);
  if (!outputs.ok()) {
    // The host's own words come first for the host.
    b.fail(outputs.status().at(node.name));
    return {};
  }
  std::vector<Var> results;
  for (const Value output : graph.node(graph.add_node(std::move(node), *outputs)).outputs)
    results.emplace_back(&b, output);
  return results;
}

Status HostOps::add(HostOp op) {
  if (op.type.empty()) return invalid("an op of the host's needs a name");
  if (op.domain.empty() || op.domain == "ai.onnx")
    return invalid("op ", op.type, " needs a domain of its own; the standard's operators cannot be replaced");
  if (op.outputs < 1 || op.outputs > 64)
    return invalid("op ", op.type, " has ", op.outputs, " outputs; 1 to 64 can be");
  if (!op.sharding.empty()) {
    const auto rule = parse_sharding_rule(op.sharding, {}, {});
    if (!rule.ok()) return rule.status();
  }
  std::string name = cat(op.domain, ".", op.type);
  for (char& c : name) {  // as the text forms of graphs and plans take it
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.';
    if (!plain) c = '_';
  }
  const auto made = std::make_shared<HostRecords>();
  made->host = std::move(op);
  std::string results;
  for (int o = 0; o < made->host.outputs; ++o) results += cat(o > 0 ? ", " : "", "y", o);
  HostRecord& forward = made->forward;
  forward.name = name;
  forward.doc = "An op of the host's.";
  forward.signature = cat("x* -> ", results);
  forward.attributes = {{.name = std::string(json), .value = std::string("{}"), .doc = "as a JSON object"}};
  forward.infer = infer_host;
  forward.reference = run_host;
  forward.sharding_of = host_rule;
  forward.gradient = made->host.gradient ? host_gradient : nullptr;
  forward.all = made.get();
  HostRecord& backward = made->backward;
  backward.name = name + ".gradient";
  backward.doc = "The gradient of an op of the host's.";
  backward.signature = "x* -> gradients";
  backward.attributes = forward.attributes;
  backward.attributes.push_back({.name = std::string(operands), .value = int64_t{0}, .doc = "of the op"});
  backward.attributes.push_back({.name = std::string(wanted), .value = Ints(), .doc = "inputs that want a gradient"});
  backward.infer = infer_gradient;
  backward.reference = run_host_gradient;
  backward.sharding_of = gradient_rule;
  backward.all = made.get();
  std::lock_guard lock(mutex_);
  const auto [entry, is_new] = ops_.emplace(std::pair(made->host.domain, made->host.type), made);
  if (!is_new) return error(Code::misuse, "op ", shown_plain(name, 200), " was added before");
  return {};
}

const OpDef* HostOps::find(std::string_view domain, std::string_view type) const {
  std::lock_guard lock(mutex_);
  const auto found = ops_.find(std::pair(std::string(domain), std::string(type)));
  return found == ops_.end() ? nullptr : &found->second->forward;
}

}  // namespace epl
