// zero: copies of a parameter share out its update (`zero.level`; ZeRO, Rajbhandari et al. 2020).
//
// Ranks that cut the batch have the same weights, and each would update all of them. Here each updates a shard. The
// step of the optimizer is elementwise, so a cut of it changes no bit. The optimizer's state is stored in these shards
// alone; a gradient that nobody needs in full is left in shards by its sum over ranks; and new weights are gathered.
// Nothing but the plan's tables says so: `partition` makes a reduce_scatter of the sum of a gradient, and an all_gather
// of the new weights, as of any other value that is cut where it is made and not where it is stored. The sum itself may
// be cut by its result instead (bring_samples). Where micro-batches cut the batch before ranks do, the sum is scattered
// in each micro-batch, and what is added up over micro-batches is a shard too.
//
// `v0` wants memory and cuts what it can. `v1` wants more: micro-batches come first (batch_order), and a gradient stays
// in shards although its norm is taken, which then gathers one gradient after the other. `v2` also stores weights in
// shards (core/strategy/weight_shards.h). `auto` wants time, and cuts where the cost model says that it saves some: a
// weight that is worth one more collective, in shards that lie one behind the other, whose gradient is a sum over
// ranks. Two ranks then move 12 times the bytes of the weight through memory in place of 18.
//
// The pass runs last, because before it an axis of the batch means that samples are cut.
#include <algorithm>
#include <optional>

#include "core/strategy/batch_cut.h"
#include "core/strategy/node_cost.h"
#include "core/strategy/pass.h"
#include "core/strategy/weight_shards.h"

namespace epl {
namespace {

enum class Level : uint8_t { automatic, v0, v1, v2 };

class Sharing {
 public:
  Sharing(PassContext& context, Level level)
      : plan_(context.plan),
        cost_(context.cost),
        level_(level),
        automatic_(level == Level::automatic),
        graph_(*plan_.graph),
        there_(context.request.state_of),
        users_(graph_.users()),
        updates_(graph_.node_count()),
        given_(graph_.value_count(), false) {
    for (const Graph::Output& output : graph_.outputs) given_[output.value] = true;
    for (const SumForm& form : plan_.sum_forms) narrow_ = form ? form : narrow_;
    for (const Graph::Update& update : graph_.updates) {
      if (const NodeId producer = graph_.value(update.next).producer) updates_[producer].push_back(update);
    }
  }

  Status run() {
    for (const NodeId n : graph_.node_ids()) EPL_TRY(share(n));
    if (level_ == Level::v2) shard_weights(plan_, there_);
    if (shared_ > 0 || !replicated_.empty()) note();
    return {};
  }

 private:
  using Updates = std::vector<Graph::Update>;
  const Node& node(NodeId n) const { return graph_.node(n); }
  Sharding& stored(Value v) { return plan_.shardings[v]; }
  const Sharding& stored(Value v) const { return plan_.shardings[v]; }
  const Mesh& mesh(NodeId n) const { return plan_.mesh(plan_.node_task_graph[n]); }

  // A parameter's step: it gives the next parameter and its next state, and nothing else.
  const Graph::Update* parameter_of(NodeId n) const {
    const Updates& all = updates_[n];
    if (all.size() != node(n).outputs.size()) return nullptr;
    const auto is_parameter = [&](const Graph::Update& u) { return kind(u) == ValueKind::parameter; };
    const auto found = std::ranges::find_if(all, is_parameter);
    const bool others_are_state = std::ranges::all_of(
        all, [&](const Graph::Update& u) { return is_parameter(u) || (kind(u) == ValueKind::state && is_own(u, n)); });
    return found != all.end() && others_are_state ? &*found : nullptr;
  }
  ValueKind kind(const Graph::Update& update) const { return graph_.value(update.state).kind; }
  // State that this node alone reads.
  bool is_own(const Graph::Update& update, NodeId n) const {
    const auto is_n = [&](NodeId user) { return user == n; };
    return !given_[update.state] && !given_[update.next] && users_[update.next].empty() &&
           std::ranges::all_of(users_[update.state], is_n);
  }

  // The axes over which ranks have copies of what a TaskGraph updates.
  std::vector<int> copies(NodeId n) const { return plan_.batch_of(plan_.node_task_graph[n]).rank_axes(mesh(n)); }

  Status share(NodeId n) {
    const Graph::Update* parameter = parameter_of(n);
    if (!parameter || plan_.node_task_graph[n] == every_task_graph) return {};
    const std::vector<int> axes = copies(n);
    const Value state = parameter->state;
    const OperandShardings now = operand_shardings(plan_, n);
    const Sharding& replicated = now.outputs[graph_.value(parameter->next).output];
    std::optional<Sharding> wanted = as_in_first(n);
    if (!wanted && !axes.empty() && lies_as(n, replicated)) wanted = choose(n, graph_.type(state), replicated, axes);
    if (!wanted || *wanted == replicated || !cut(n, *wanted)) {
      if (!axes.empty() && (!automatic_ || pays(n, graph_.type(state), replicated, axes)))
        replicated_.push_back(graph_.value(state).name);
      return {};
    }
    shards_ = mesh(n).shards(axes);
    ++shared_;
    for (const Graph::Update& update : updates_[n]) {
      if (kind(update) == ValueKind::state) stored(update.state) = stored(update.next) = *wanted;
    }
    return {};
  }

  // Shards save that all copies do the same. In place of the sum of gradients there are two collectives, and the bytes
  // of the second are brought together and taken apart. Shards must come of the gradient's sum: if all have the full
  // gradient, the exchange of new weights would come on top.
  bool pays(NodeId n, const TensorType& type, const Sharding& replicated, const std::vector<int>& axes) const {
    const auto copies = static_cast<double>(mesh(n).shards(axes));
    Work shard = work_of(plan_, n, plan_.node_shardings[n]);
    const double alike = cost_.kernel(shard);
    shard.flops /= copies;
    shard.bytes /= copies;
    const double bytes = here(n, type, replicated);
    const bool time_first = plan_.batch_of(plan_.node_task_graph[n]).time_first(mesh(n));
    const double sums = time_first ? static_cast<double>(plan_.micro_batches()) : 1;
    const double summed = bytes * summed_share(type);
    const double exchange = sums * collective(n, Collective::Kind::reduce_scatter, axes, summed / copies) +
                            collective(n, Collective::Kind::all_gather, axes, bytes / copies) + 2 * cost_.launch();
    const double sum = sums * collective(n, Collective::Kind::all_reduce, axes, summed);
    if (alike - cost_.kernel(shard) <= exchange - sum) return false;
    for (Value v : node(n).inputs) {
      if (v && comes_in_shards(v, n)) return true;
    }
    return false;
  }

  // Gradients may be summed in fewer bits than weights have.
  double summed_share(const TensorType& type) const {
    return narrow_ ? static_cast<double>(dtype_bytes(narrow_.type)) / static_cast<double>(dtype_bytes(type.dtype)) : 1;
  }

  // Its state lies as what it gives.
  bool lies_as(NodeId n, const Sharding& given) const {
    return std::ranges::all_of(updates_[n], [&](const Graph::Update& update) {
      return kind(update) == ValueKind::parameter || (stored(update.state) == given && stored(update.next) == given);
    });
  }

  // How the first of the entries that share their state stores what the node gives; none where this is the first.
  std::optional<Sharding> as_in_first(NodeId n) const {
    for (const Graph::Update& update : updates_[n]) {
      if (!there_ || (kind(update) == ValueKind::parameter && level_ != Level::v2)) continue;
      if (auto there = sharding_in(*there_, graph_.value(update.state).name)) return there;
    }
    return std::nullopt;
  }

  // To save time, only a dimension 0 that divides will do: its shards lie one behind the other. Others are taken apart
  // and put together in memory, which takes longer than to update all. Uneven shards move padding, too.
  std::optional<Sharding> choose(NodeId n, const TensorType& type, const Sharding& replicated,
                                 const std::vector<int>& axes) const {
    if (automatic_ && !pays(n, type, replicated, axes)) return std::nullopt;
    for (const CutPosition& position : shard_positions(mesh(n), type, replicated, axes)) {
      if ((automatic_ && position.dim > 0) || (level_ < Level::v1 && position.of > 0)) continue;
      return with_shards(replicated, position, axes);
    }
    return std::nullopt;
  }

  // Cuts a node so that its results lie as `wanted`, and what it takes where that is left in shards for it alone; false
  // where the node cannot be cut so.
  bool cut(NodeId n, const Sharding& wanted) {
    auto made = cut_as(n, plan_.node_shardings[n], wanted);
    if (!made || made->operands.outputs[0] != wanted) return false;
    plan_.node_shardings[n] = std::move(made->sharding);
    plan_.explain(n, "each copy of the weight updates a shard of it");
    for (size_t i = 0; i < node(n).inputs.size(); ++i) {
      if (node(n).inputs[i]) leave_in_shards(node(n).inputs[i], made->operands.inputs[i], n);
    }
    return true;
  }

  // A sharding of a node with the cuts that its result lacks to be cut as `wanted`; none where its own rule has none.
  struct CutNode {
    NodeSharding sharding;
    OperandShardings operands;
  };
  std::optional<CutNode> cut_as(NodeId n, NodeSharding sharding, const Sharding& wanted) const {
    const ExtendedRule& extended = plan_.rule(n);
    const ShardingRule& rule = extended.rule;
    const OperandShardings now = operand_shardings(plan_, n);
    const auto differs = [&](size_t d) { return now.outputs[0].dims[d] != wanted.dims[d]; };
    sharding.factors.resize(std::max(sharding.factors.size(), extended.added));
    for (size_t d = 0; d < wanted.dims.size(); ++d) {
      if (!differs(d)) continue;
      for (const AxisCut& cut : wanted.dims[d]) {
        if (std::ranges::find(now.outputs[0].dims[d], cut) != now.outputs[0].dims[d].end()) continue;
        const CutFactor factor = factor_at(rule, rule.outputs[0], {static_cast<int>(d), cut.outer, cut.of});
        const auto f = static_cast<size_t>(factor.factor);
        if (!factor || f >= sharding.factors.size() || rule.factors[f].unshardable) return std::nullopt;
        Cuts& cuts = sharding.factors[f];
        cuts.insert(std::ranges::upper_bound(cuts, factor.outer, {}, &AxisCut::outer),
                    {cut.axes, factor.outer, factor.of});
      }
    }
    NodeSharding all = sharding;
    all.factors.resize(rule.factors.size());
    OperandShardings operands = operand_shardings(extended, all);
    for (size_t i = 0; i < operands.inputs.size(); ++i) operands.inputs[i].rank_local = now.inputs[i].rank_local;
    for (Sharding& output : operands.outputs) output.rank_local = sharding.rank_local;
    if (operands.outputs[0].dims != wanted.dims || !divides(n, rule, sharding)) return std::nullopt;
    return CutNode{std::move(sharding), std::move(operands)};
  }

  bool divides(NodeId n, const ShardingRule& rule, const NodeSharding& sharding) const {
    for (size_t f = 0; f < sharding.factors.size(); ++f) {
      for (const AxisCut& cut : sharding.factors[f]) {
        if (rule.factors[f].size % runs_of(mesh(n), cut) != 0) return false;
      }
    }
    return true;
  }

  // How a value may come to lie in shards, where it is for one node alone and for what takes shards as they are: a sum
  // over the copies is left in their shards, and a node between the sum and the step works on shards too. What each
  // micro-batch has for itself is full in the mean over them, and what becomes state is stored as that is.
  enum class Shards : uint8_t { none, of_a_sum, of_shards };
  Shards possible_shards(Value v, NodeId user) const {
    const NodeId producer = graph_.value(v).producer;
    if (!producer || given_[v] || plan_.alone(v) || !stored(v).partial.empty()) return Shards::none;
    const auto& kept = updates_[producer];
    if (std::ranges::find(kept, v, &Graph::Update::next) != kept.end()) return Shards::none;
    const int made_at = plan_.node_task_graph[producer];
    const int used_at = plan_.node_task_graph[user];
    if (made_at == every_task_graph || plan_.virtual_device_of(made_at) != plan_.virtual_device_of(used_at) ||
        plan_.batch_of(made_at) != plan_.batch_of(used_at))
      return Shards::none;
    for (const NodeId other : users_[v]) {
      if (other != user && !node(other).op->takes_any_operands && !may_gather(other, used_at)) return Shards::none;
    }
    const OperandShardings given = operand_shardings(plan_, producer);
    const Sharding& made = given.outputs[graph_.value(v).output];
    const auto is_pending = [&](int axis) {
      return std::ranges::find(made.partial, Partial{axis, ShardingRule::Reduce::sum}) != made.partial.end();
    };
    if (std::ranges::all_of(copies(user), is_pending) && given.added_later < 0) return Shards::of_a_sum;
    const Node& maker = graph_.node(producer);
    const bool passes_on = made == stored(v) && !maker.op->random && maker.outputs.size() == 1 &&
                           (maker.op->elementwise() || maker.op->view);
    return passes_on ? Shards::of_shards : Shards::none;
  }

  // A norm looks at each gradient once in a step. It gathers the gradient, which nobody keeps.
  bool may_gather(NodeId n, int used_at) const {
    const int at = plan_.node_task_graph[n];
    return level_ >= Level::v1 && node(n).phase == Phase::update && at != every_task_graph &&
           plan_.virtual_device_of(at) == plan_.virtual_device_of(used_at);
  }

  // Whether a sum that may be left in shards leads to it.
  bool comes_in_shards(Value v, NodeId user) const {
    const Shards shards = possible_shards(v, user);
    if (shards != Shards::of_shards) return shards == Shards::of_a_sum;
    const NodeId producer = graph_.value(v).producer;
    for (Value input : node(producer).inputs) {
      if (input && comes_in_shards(input, producer)) return true;
    }
    return false;
  }

  void leave_in_shards(Value v, const Sharding& wanted, NodeId user) {
    if (stored(v) == wanted) return;
    const Shards shards = possible_shards(v, user);
    const NodeId producer = graph_.value(v).producer;
    const bool of_a_sum = shards == Shards::of_a_sum;
    if (of_a_sum || (shards == Shards::of_shards && cut(producer, wanted))) stored(v) = wanted;
    if (of_a_sum) bring_samples(producer, wanted, copies(user));
  }

  // Copies sum over their own samples, and each gets a shard of the sum of all. Where it takes less time (the gradient
  // of a large weight, of a small batch), operands are brought together instead, and each copy computes its own shard,
  // of all samples: as many multiplications, less that is written and moved, and the sum is of all units in the order
  // of units. A loop over micro-batches would sum in another order where ranks cut the batch first.
  void bring_samples(NodeId n, const Sharding& wanted, const std::vector<int>& axes) {
    const Node& maker = node(n);
    NodeSharding sharding = plan_.node_shardings[n];
    const BatchLayout batch = plan_.batch_of(plan_.node_task_graph[n]);
    if (maker.outputs.size() != 1 || sharding.segments || !sharding.flowing.empty() || plan_.micro_batches() != 1 ||
        plan_.independent_micro_batches || batch.runs(mesh(n)) != 1 || wanted.uneven() ||
        !power_of_two(plan_.units()) || plan_.sum_form(maker.outputs[0]))
      return;
    const OperandShardings now = operand_shardings(plan_, n);
    Cuts* summed = nullptr;
    for (Cuts& cuts : sharding.factors) {
      if (find_cut(cuts, axes.front())) summed = &cuts;
    }
    // Units that come round several times are not in the order of the batch.
    if (now.sum_outers[0] != 1 || !summed || summed->size() != 1 || summed->front().outer != 1) return;
    AxisCut& samples = summed->front();
    std::erase_if(samples.axes, [&](int axis) { return mesh(n).axes[axis].kind == MeshAxis::Kind::rank; });
    samples.outer = mesh(n).shards(axes);
    auto made = cut_as(n, sharding, wanted);
    if (!made) return;
    const auto copies = static_cast<double>(mesh(n).shards(axes));
    double gathering = node_seconds(cost_, plan_, n, made->sharding);
    for (size_t i = 0; i < maker.inputs.size(); ++i) {
      const Value v = maker.inputs[i];
      if (!v || now.inputs[i] == made->operands.inputs[i]) continue;
      if (!stored(v).partial.empty()) return;
      const double all = here(n, graph_.type(v), made->operands.inputs[i]);
      gathering += collective(n, Collective::Kind::all_gather, axes, all / copies);
    }
    const double sum = here(n, graph_.type(maker.outputs[0]), now.outputs[0]);
    if (node_seconds(cost_, plan_, n, plan_.node_shardings[n]) +
            collective(n, Collective::Kind::reduce_scatter, axes, sum / copies) <=
        gathering)
      return;
    plan_.node_shardings[n] = std::move(made->sharding);
    plan_.explain(n, "each copy of the weight has a shard of its gradient, of all samples");
  }

  // Bytes of a rank.
  double here(NodeId n, const TensorType& type, const Sharding& sharding) const {
    return local_bytes(plan_, plan_.node_task_graph[n], type, sharding);
  }
  // `bytes`: see CostModel.
  double collective(NodeId n, Collective::Kind kind, const std::vector<int>& axes, double bytes) const {
    return cost_.collective(kind, rank_group(plan_, plan_.node_task_graph[n], axes), bytes);
  }

  std::string_view level_name() const {
    static constexpr std::string_view names[] = {"auto", "v0", "v1", "v2"};
    return names[static_cast<size_t>(level_)];
  }

  void note() {
    static constexpr std::string_view kept[] = {"its state", "its state", "its gradient and state",
                                                "its weights, gradient and state"};
    constexpr size_t max_listed = 3;
    const size_t count = replicated_.size();
    std::string text = cat("zero.level ", level_name(), ": ", shared_, " of ", static_cast<size_t>(shared_) + count,
                           automatic_ ? " large" : "", " parameters are updated in ", shards_, " shards, each with ",
                           kept[static_cast<size_t>(level_)], " on one of the copies");
    if (count > 0) {
      if (replicated_.size() > max_listed) replicated_.resize(max_listed);
      text += cat("; no dimension of the others ",
                  level_ < Level::v1 ? "has equal shards: " : "divides: ", join(replicated_, ", "),
                  count > max_listed ? cat(" and ", count - max_listed, " more") : "");
    }
    plan_.notes.push_back(std::move(text));
  }

  Plan& plan_;
  const CostModel& cost_;
  const Level level_;
  const bool automatic_;
  const Graph& graph_;
  const Plan* const there_;  // of an entry that shares its state; null: none
  const ByValue<std::vector<NodeId>> users_;
  ByNode<Updates> updates_;  // the state that it gives
  ByValue<bool> given_;      // the caller gets it
  SumForm narrow_;           // of sums of gradients
  int64_t shards_ = 1;
  int shared_ = 0;
  std::vector<std::string> replicated_;  // parameters that each copy updates in full
};

}  // namespace

EPL_PASS(zero) {
  return {.doc = "copies of a parameter share out its update and the optimizer's state",
          .run = [](PassContext& c) -> Status {
            const std::string level = c.plan.strategy.text("zero.level");
            if (level == "off") return {};
            if (c.plan.node_block.empty() && c.plan.graph->node_count() > 0)
              return invalid("it needs schedule before it");
            if (const int64_t buckets = c.plan.strategy.integer("communication.max_splits"); buckets < 1)
              return invalid("communication.max_splits is ", buckets);
            return Sharing(c, level == "auto" ? Level::automatic
                              : level == "v0" ? Level::v0
                              : level == "v1" ? Level::v1
                                              : Level::v2)
                .run();
          }};
}

}  // namespace epl
