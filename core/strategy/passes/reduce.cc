// reduce: how sums of gradients are added up (`communication.fp16`).
//
// Gradients go from rank to rank in 16 bits, which halves their bytes. A part of a gradient's sum over the batch is
// multiplied with `communication.fp16_scale`, so that f16 keeps what is small, and rounded. Each sum of two parts is
// made in float32 and rounded again. The full sum is widened and divided by the scale, and all behind it is as without.
// An overflow is an infinity in the full sum, which the verdict of the step sees.
//
// The level says what a part is. At `run` it is what a rank has added up in float32, and one rank rounds nothing. At
// the others no bit may depend on the number of ranks. So each unit of the batch is a part, on one rank too. An aligned
// run of units is a subtree of the tree over units, and a subtree's sum has 16 bits whoever makes it: so ranks may give
// it to each other as it is. A kernel that cannot sum one unit by itself is an error where bits are promised.
//
// Such sums lead to updates alone, through nodes that only add and move. A sum that the backward pass goes on with, as
// that of a batch norm, is plain.
#include <algorithm>

#include "core/base/narrow.h"
#include "core/strategy/batch_cut.h"
#include "core/strategy/linear.h"
#include "core/strategy/pass.h"

namespace epl {
namespace {

constexpr int64_t largest_scale = int64_t{1} << 24;

Result<SumForm> form_of(const Strategy& strategy) {
  const std::string& type = strategy.text("communication.fp16_type");
  const int64_t scale = strategy.integer("communication.fp16_scale");
  SumForm form{.kind = SumForm::Kind::narrow,
               .type = *parse_dtype(type),
               .of_units = strategy.text("reproducible.level") != "run"};
  if (form.type == DType::f16) {
    if (scale < 1 || scale > largest_scale)
      return invalid("communication.fp16_scale is ", scale, "; it is a number from 1 to ", largest_scale);
    form.scale = scale;
  } else if (strategy.config.has("communication.fp16_scale")) {
    return invalid("communication.fp16_scale is for f16; ", type, " has the range of float32 and needs no scale");
  }
  return form;
}

class Reducing {
 public:
  Reducing(Plan& plan, const SumForm& form)
      : plan_(plan),
        form_(form),
        graph_(*plan.graph),
        updates_(graph_.value_count(), false),
        others_(graph_.value_count(), false) {}

  Status run() {
    find_users();
    plan_.sum_forms.assign(graph_.value_count(), {});
    for (const NodeId n : graph_.node_ids()) {
      if (graph_.node(n).phase == Phase::backward && plan_.node_task_graph[n] != every_task_graph) EPL_TRY(choose(n));
    }
    if (narrow_ == 0) plan_.sum_forms = {};
    if (narrow_ + plain_ > 0) note();
    return {};
  }

 private:
  // Which values go into updates, and which into anything else. Nodes that take any operands look at values for the
  // verdict.
  void find_users() {
    for (int i = graph_.node_count(); i-- > 0;) {
      const Node& node = graph_.node(NodeId{i});
      if (node.op->takes_any_operands) continue;
      bool to_updates = node.phase == Phase::update, to_others = false;
      if (!to_updates && adds_and_moves(graph_, node)) {
        to_updates = updates_[node.outputs[0]];
        to_others = others_[node.outputs[0]];
      } else if (!to_updates) {
        to_others = true;
      }
      for (const Value v : node.inputs) {
        if (!v) continue;
        updates_[v] = updates_[v] || to_updates;
        others_[v] = others_[v] || to_others;
      }
    }
  }

  Status choose(NodeId n) {
    const OperandShardings operands = operand_shardings(plan_, n);
    const std::vector<Value>& outputs = graph_.node(n).outputs;
    for (size_t o = 0; o < outputs.size(); ++o) {
      const Value v = outputs[o];
      if (!v || !updates_[v] || !is_wide(v) || !sums_batch(n, operands.outputs[o])) continue;
      if (others_[v]) {
        ++plain_;
        continue;
      }
      EPL_TRY(check(n));
      plan_.sum_forms[v] = form_;
      plan_.explain(n, cat("its sum is made of parts in ", dtype_name(form_.type)));
      ++narrow_;
    }
    return {};
  }

  bool is_wide(Value v) const {
    const DType type = graph_.type(v).dtype;
    return is_float(type) && !has_16_bits(type);
  }

  bool sums_batch(NodeId n, const Sharding& made) const {
    const BatchLayout batch = plan_.batch_of(plan_.node_task_graph[n]);
    const auto is_sum = [](const Partial& p) { return p.kind == ShardingRule::Reduce::sum; };
    return std::ranges::all_of(made.partial, is_sum) &&
           std::ranges::any_of(made.partial, [&](const Partial& p) { return batch.cuts_over(p.axis); });
  }

  // A node that is cut along a dimension that its kernel needs in full sums all units of a call at once. No bits are
  // promised at `data` where a split cuts so, but where experts do.
  Status check(NodeId n) const {
    const NodeSharding& sharding = plan_.node_shardings[n];
    const int added = added_cut(plan_.rule(n), sharding);
    if (!form_.of_units || added < 0) return {};
    const std::vector<int>& experts = plan_.task_graphs[plan_.node_task_graph[n]].experts;
    const auto of_experts = [&](int axis) { return find_cut(sharding.factors[added], axis) != nullptr; };
    const std::string& level = plan_.strategy.text("reproducible.level");
    if (level != "layout" && std::ranges::none_of(experts, of_experts)) return {};
    return unsupported("communication.fp16 rounds each unit of the batch at reproducible.level = ", level,
                       ", and this node's kernel sums all units at once where it is cut so; reproducible.level = run "
                       "rounds what each rank has")
        .at(graph_.node(n).name);
  }

  void note() {
    std::string text = cat("communication.fp16: ", narrow_, " of ", narrow_ + plain_,
                           " sums of gradients are reduced in ", dtype_name(form_.type));
    text += form_.of_units ? ", each unit of the batch rounded by itself" : ", what each rank has rounded once";
    if (plain_ > 0) text += "; the backward pass goes on with the others";
    plan_.notes.push_back(std::move(text));
  }

  Plan& plan_;
  const SumForm form_;
  const Graph& graph_;
  ByValue<bool> updates_, others_;  // it goes into updates; into anything else
  int narrow_ = 0, plain_ = 0;
};

}  // namespace

EPL_PASS(reduce) {
  return {.doc = "how sums of gradients are added up: in 16 bits where communication.fp16 says so",
          .run = [](PassContext& c) -> Status {
            if (!c.plan.strategy.flag("communication.fp16")) return {};
            EPL_ASSIGN(const SumForm form, form_of(c.plan.strategy));
            if (c.plan.node_block.empty() && c.plan.graph->node_count() > 0)
              return invalid("it needs schedule before it");
            return Reducing(c.plan, form).run();
          }};
}

}  // namespace epl
