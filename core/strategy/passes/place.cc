// place: nodes into TaskGraphs, TaskGraphs onto ranks. Without scopes there is one TaskGraph, replicated over all
// ranks. A node of the model is where its scope is (core/strategy/scope_layout.h), and what no scope matches beside
// stages follows its operands. Stages without ranks of their own are found by core/strategy/staging.h. The backward
// pass of a node is where the node is, and the update of a parameter where the parameter is used.
#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "core/ir/op.h"
#include "core/strategy/batch_cut.h"
#include "core/strategy/joined_experts.h"
#include "core/strategy/pass.h"
#include "core/strategy/scope_layout.h"
#include "core/strategy/staging.h"

namespace epl {
namespace {

constexpr int64_t max_units = 8;
constexpr int not_yet = -2;

// A shard is what a rank has in a micro-batch: a power of two of units. At level run others than halves may be cut, and
// units follow the shards; else they follow the batch alone, so that every layout has the same. Shards divide the
// batch.
Result<int64_t> unit_count(const Strategy& strategy, int64_t batch, const BatchAxes& ranks,
                           const MicroBatches& in_time) {
  const int64_t asked = strategy.integer("reproducible.units"), shards = ranks.shards() * in_time.count;
  const bool any = strategy.text("reproducible.level") == "run";
  if (asked < 0) return invalid("reproducible.units is ", asked);
  int64_t units = std::max<int64_t>(asked, 1);
  const auto double_units = [&] {
    while (asked == 0 && units < max_units && batch % (units * 2) == 0 && batch > 0) units *= 2;
  };
  double_units();
  if (any && asked == 0 && units % shards != 0) {
    units = shards;
    double_units();
  }
  const std::string cut = cat(ranks.shards(), " ranks x ", in_time.count, " micro-batches");
  if (batch > 0 && batch % units != 0)
    return invalid("reproducible.units is ", units, ", which does not divide the batch of ", batch);
  if (units % shards != 0 || !power_of_two(units / shards)) {
    int64_t fitting = shards;
    while (fitting < max_units * shards && batch % (fitting * 2) == 0) fitting *= 2;
    return invalid(
        asked > 0 ? cat("reproducible.units is ", units) : cat("the batch of ", batch, " has ", units, " units"),
        ", of which each of ", shards, " shards (", cut, ") must get 1, 2, 4 or another power of two; it does ",
        "with reproducible.units = ", fitting, any ? "" : ", or with reproducible.level = run");
  }
  if (!any && !ranks.keep_the_tree(in_time)) {
    const bool time_first = in_time.order == BatchOrder::micro_batches;
    return invalid(cut, " would add up the shards of the batch in an order of their own, and so give bits of their ",
                   "own; use powers of two (the number of ",
                   time_first ? "micro-batches" : "ranks, or of the micro-batches of one rank,",
                   " may be another number), or reproducible.level = run");
  }
  return units;
}

class Placement {
 public:
  explicit Placement(const PassContext& context)
      : plan_(context.plan), request_(context.request), cost_(context.cost), graph_(*plan_.graph) {}

  Status run() {
    EPL_TRY(make_task_graphs());
    plan_.node_task_graph.assign(graph_.node_count(), not_yet);
    if (count() == 1) {
      std::ranges::fill(plan_.node_task_graph, 0);
    } else {
      place_forward();
      join_experts();
      place_the_rest();
      explain();
      EPL_TRY(check_flow());
    }
    for (int at : plan_.node_task_graph) {
      if (at >= 0) ++plan_.task_graphs[at].nodes;
    }
    find_value_task_graphs(plan_);
    follow_updates();
    leave_state();
    return count() == 1 ? Status() : check_state();
  }

 private:
  int& at(NodeId n) { return plan_.node_task_graph[n]; }
  int count() const { return static_cast<int>(plan_.task_graphs.size()); }
  int stage_of(int task_graph) const { return plan_.task_graphs[task_graph].stage; }

  Status make_task_graphs() {
    EPL_ASSIGN(staging_, find_staging(request_, cost_));
    EPL_ASSIGN(layout_,
               lay_out_scopes(staging_.of_ranks, request_.ranks, staged() ? SideBySide::stages : SideBySide::siblings));
    int64_t micro_batches = request_.strategy.integer("pipeline.num_micro_batch");
    if (micro_batches < 1) return invalid("pipeline.num_micro_batch is ", micro_batches);
    if (!plan_.coupled.empty()) {
      plan_.notes.push_back(cat(plan_.coupled, ", so ", micro_batches,
                                " micro-batches would change the answer: the batch is one, which takes the memory of "
                                "all samples at once. To cut it use ",
                                make_them_independent));
      micro_batches = 1;
    }
    EPL_TRY(fit_batch(micro_batches));
    EPL_ASSIGN(const BatchAxes batch, find_batch_axes(layout_));
    // One micro-batch has no order, and all ranks share independent ones in any case.
    const bool ordered = micro_batches > 1 && !plan_.independent_micro_batches;
    EPL_ASSIGN(const BatchOrder order, batch_order(request_.strategy));
    const MicroBatches in_time{micro_batches, ordered ? order : BatchOrder::ranks};
    EPL_ASSIGN(const int64_t units, unit_count(request_.strategy, plan_.batch, batch, in_time));
    EPL_ASSIGN(std::vector<LeafMesh> meshes, make_meshes(layout_, batch, units, in_time));
    std::map<int, int> numbers;  // of the devices that have TaskGraphs, in their order
    for (const ScopeLeaf& leaf : layout_.leaves) numbers.emplace(leaf.device, 0);
    for (auto& [device, virtual_device] : numbers) {
      virtual_device = std::ssize(plan_.meshes);
      const auto leaf = std::ranges::find(layout_.leaves, device, &ScopeLeaf::device);
      plan_.meshes.push_back(meshes[leaf - layout_.leaves.begin()].mesh);
    }
    for (size_t i = 0; i < meshes.size(); ++i) {
      const ScopeLeaf& leaf = layout_.leaves[i];
      TaskGraph& made = plan_.task_graphs.emplace_back();
      made.scope = leaf.name;
      made.virtual_device = made.stage = numbers[leaf.device];
      made.batch = std::move(meshes[i].batch);
      made.pins = leaf.pins;
      for (size_t r = 0; r < leaf.roles.size(); ++r) {
        const std::vector<int>& axes = meshes[i].axes[r];
        if (leaf.roles[r].kind != ScopeKind::replicate) made.split.insert(made.split.end(), axes.begin(), axes.end());
        if (leaf.roles[r].kind == ScopeKind::expert) made.experts.insert(made.experts.end(), axes.begin(), axes.end());
      }
    }
    if (staged()) take_stages();
    return {};
  }

  // A batch that does not divide into as many shards is cut into as many as do divide it: copies of a TaskGraph along
  // an axis that cuts nothing have the same samples, and there are fewer micro-batches. Where no input counts samples,
  // all copies see everything at once. Independent micro-batches are not ours to count: the answer depends on
  // them.
  Status fit_batch(int64_t& micro_batches) {
    const auto fitting = [](int64_t wanted, int64_t samples) { return samples == 0 ? 1 : std::gcd(wanted, samples); };
    const int64_t copies = std::ranges::max_element(layout_.leaves, {}, &ScopeLeaf::data)->data, wanted = micro_batches;
    int64_t alike = 1;  // copies that have the same samples
    for (ScopeLeaf& leaf : layout_.leaves) {
      const int64_t data = fitting(leaf.data, plan_.independent_micro_batches ? plan_.batch / wanted : plan_.batch);
      if (data == leaf.data) continue;
      alike = std::max(alike, leaf.data / data);
      leaf.roles.push_back({ScopeKind::replicate, leaf.data / data});  // innermost: all leaves cut samples alike
      leaf.data = data;
    }
    EPL_ASSIGN(const BatchAxes ranks, find_batch_axes(layout_));
    if (!plan_.independent_micro_batches) micro_batches = fitting(wanted, plan_.batch / ranks.shards());
    if (alike * wanted / micro_batches == 1) return {};
    const std::string share = plan_.batch == 0 ? cat("each of ", copies, " copies computes all of it")
                                               : cat("each shard is computed by ", alike, " copies");
    plan_.notes.push_back(
        cat(plan_.batch == 0 ? "no input counts samples, so there is no batch to cut: "
                             : cat("the batch of ", plan_.batch, " does not divide over ", copies, " copies x ", wanted,
                                   " micro-batches, so it is cut into ", ranks.shards() * micro_batches, " shards: "),
            alike > 1 ? share : "", alike > 1 && micro_batches < wanted ? ", and " : "",
            micro_batches < wanted ? cat("one micro-batch stands for ", wanted / micro_batches) : ""));
    return {};
  }

  bool staged() const { return !staging_.virtual_device_of.empty(); }

  // The scope of a leaf among those inside `outer`, which is laid out as `home`: how it is called behind the name of
  // its stage, and how the user wants its values cut, innermost first. False: it is not there.
  static bool find_inside(const Scope& outer, const Scope& home, const Scope* leaf, TaskGraph& found) {
    bool here = &home == leaf;
    for (size_t i = 0; !here && i < outer.scopes.size(); ++i) {
      const Scope& inner = outer.scopes[i];
      here = find_inside(inner, home.scopes[i], leaf, found);
      if (here) found.scope = cat(".", inner.name.empty() ? cat(i) : inner.name, found.scope);
    }
    if (here) found.pins.insert(found.pins.end(), outer.dims.begin(), outer.dims.end());
    return here;
  }

  // There are the TaskGraphs of each virtual device; those of its stages are like them.
  void take_stages() {
    const std::vector<TaskGraph> of_device = std::exchange(plan_.task_graphs, {});
    for (size_t s = 0; s < staging_.virtual_device_of.size(); ++s) {
      std::vector<int>& of_leaf = in_stage_.emplace_back(of_device.size(), not_yet);
      for (size_t leaf = 0; leaf < of_device.size(); ++leaf) {
        if (of_device[leaf].virtual_device != staging_.virtual_device_of[s]) continue;
        of_leaf[leaf] = count();
        TaskGraph& made = plan_.task_graphs.emplace_back(of_device[leaf]);
        made.scope.clear();
        made.pins.clear();
        find_inside(staging_.scopes[s], home_of(s), layout_.leaves[leaf].scope, made);
        made.scope = cat(staging_.names[s], made.scope);
        made.stage = static_cast<int>(s);
      }
    }
    plan_.notes.insert(plan_.notes.end(), staging_.notes.begin(), staging_.notes.end());
  }

  const Scope& home_of(size_t stage) const { return staging_.of_ranks.scopes[staging_.virtual_device_of[stage]]; }

  // The TaskGraph of a node of a stage.
  int inside(int stage, const Node& node) const {
    const Scope *outer = &staging_.scopes[stage], *home = &home_of(static_cast<size_t>(stage));
    for (int i; (i = match_among(outer->scopes, graph_, node)) >= 0;)
      outer = &outer->scopes[i], home = &home->scopes[i];
    return in_stage_[stage][layout_.leaf_of_scope.at(home)];
  }

  // The TaskGraph of a node of the forward pass; -1: that of its operands.
  int scope_of(NodeId n) const {
    if (!staged()) return layout_.leaf_of(graph_, graph_.node(n));
    const int stage = staging_.node_stage[n];
    return stage < 0 ? -1 : inside(stage, graph_.node(n));
  }

  // The TaskGraph of the last stage, or the first, of those that operands come from; `not_yet` if none comes from any.
  int of_operands(const Node& node, bool last) {
    int found = not_yet;
    for (Value v : node.inputs) {
      if (!v || !graph_.value(v).producer) continue;
      const int here = at(graph_.value(v).producer);
      if (here < 0) continue;
      if (found == not_yet || (last ? stage_of(here) > stage_of(found) : stage_of(here) < stage_of(found)))
        found = here;
    }
    return found;
  }

  // The TaskGraph that the largest operand comes from, the last stage's of equal ones: the others travel.
  int of_largest_operand(const Node& node) {
    int found = not_yet;
    int64_t largest = 0;
    for (Value v : node.inputs) {
      if (!v || !graph_.value(v).producer) continue;
      const int here = at(graph_.value(v).producer);
      const int64_t bytes = graph_.type(v).bytes();
      if (here < 0 || bytes < largest) continue;
      if (found == not_yet || bytes > largest || stage_of(here) > stage_of(found)) found = here;
      largest = bytes;
    }
    return found;
  }

  void place_forward() {
    const auto users = graph_.users();
    for (const NodeId n : graph_.node_ids()) {
      const Node& node = graph_.node(n);
      if (node.phase != Phase::forward) continue;
      at(n) = scope_of(n);
      if (at(n) < 0) at(n) = of_operands(node, true);
    }
    // What no operand places stands where it is needed first.
    for (const NodeId n : graph_.node_ids().reversed()) {
      if (graph_.node(n).phase != Phase::forward || at(n) != not_yet) continue;
      int first = not_yet;
      for (Value v : graph_.node(n).outputs) {
        for (const NodeId user : users[v]) {
          if (at(user) >= 0 && (first == not_yet || stage_of(at(user)) < stage_of(first))) first = at(user);
        }
      }
      at(n) = std::max(first, 0);
    }
  }

  void join_experts() {
    for (int t = 0; t < count(); ++t) {
      const int rest = plan_.task_graphs[t].experts.empty() ? -1 : rest_beside(t);
      if (rest >= 0 && rest != t) join_experts_of(plan_, t, rest);
    }
  }
  // The TaskGraph of what no scope matches, in its stage; -1: there is none.
  int rest_beside(int task_graph) const {
    if (!staged()) return layout_.unmatched;
    const auto stage = static_cast<size_t>(stage_of(task_graph));
    const Scope& home = home_of(stage);
    auto leaf = layout_.leaf_of_scope.find(&home);
    if (leaf == layout_.leaf_of_scope.end()) leaf = layout_.leaf_of_scope.find(&home.scopes.back());  // it matches all
    return leaf == layout_.leaf_of_scope.end() ? -1 : in_stage_[stage][leaf->second];
  }
  // Of a parameter, where it is used first; of optimizer state, where the parameter beside it is.
  void place_the_rest() {
    std::unordered_map<std::string_view, int> origins;
    ByValue<int> leaf(graph_.value_count(), not_yet);
    const auto take_leaves = [&](NodeId n) {
      for (Value v : graph_.node(n).inputs) {
        if (v && is_state(graph_.value(v).kind) && leaf[v] == not_yet) leaf[v] = at(n);
      }
    };
    for (const NodeId n : graph_.node_ids()) {
      const Node& node = graph_.node(n);
      if (node.phase != Phase::forward) continue;
      origins.emplace(node.origin_name(), at(n));
      take_leaves(n);
    }
    for (const NodeId n : graph_.node_ids()) {
      const Node& node = graph_.node(n);
      if (node.phase == Phase::forward) continue;
      if (node.op->takes_any_operands) {
        at(n) = every_task_graph;
        continue;
      }
      if (node.phase == Phase::backward) {
        const auto found = origins.find(node.origin_name());
        at(n) = found != origins.end() ? found->second : of_operands(node, false);
      } else {
        for (Value v : node.inputs) {
          if (v && is_state(graph_.value(v).kind) && leaf[v] != not_yet) at(n) = leaf[v];
        }
        if (at(n) == not_yet) at(n) = of_largest_operand(node);
      }
      if (at(n) == not_yet) at(n) = of_operands(node, true);
      if (at(n) == not_yet) at(n) = 0;
      take_leaves(n);
    }
  }

  void explain() {
    for (const NodeId n : graph_.node_ids()) {
      const Node& node = graph_.node(n);
      if (at(n) == every_task_graph) continue;
      const bool pinned = node.phase == Phase::forward && scope_of(n) == at(n);
      const bool by_cost = pinned && staging_.by_cost && rest_beside(at(n)) == at(n);
      plan_.explain(n, cat("in ", scope_name(at(n)), ", ",
                           by_cost                         ? "so that stages have about the same cost"
                           : pinned                        ? "whose pattern matches its name"
                           : node.phase == Phase::forward  ? "where its operands are"
                           : node.phase == Phase::backward ? "where its forward node is"
                                                           : "where its parameter is"));
    }
  }

  // The forward pass goes up through the stages, the backward pass down.
  Status check_flow() {
    for (const NodeId n : graph_.node_ids()) {
      const Node& node = graph_.node(n);
      for (Value v : node.inputs) {
        if (!v || !graph_.value(v).producer || at(n) < 0) continue;
        const Node& producer = graph_.node(graph_.value(v).producer);
        const int from = at(graph_.value(v).producer);
        const bool up = node.phase == Phase::forward,
                   down = node.phase == Phase::backward && producer.phase == Phase::backward;
        if (from >= 0 && ((up && stage_of(from) > stage_of(at(n))) || (down && stage_of(from) < stage_of(at(n))))) {
          return invalid("node ", node.name, " of stage ", scope_name(at(n)), " needs the result of node ",
                         producer.name, " of stage ", scope_name(from), ", which comes ", up ? "after" : "before",
                         " it")
              .at(node.name);
        }
      }
    }
    return {};
  }

  const std::string& scope_name(int task_graph) const { return plan_.task_graphs[task_graph].scope; }

  // What several stages update in turn, such as the running statistics of a norm that a model uses twice, lies where
  // the last of them makes its next value. It is lent to the others at the start of a step, and what each makes of it
  // goes up through the stages like any value.
  void follow_updates() {
    for (const Graph::Update& update : graph_.updates) {
      const int next = plan_.value_task_graph[update.next];
      if (next != every_task_graph && plan_.virtual_device_of(update.state) != plan_.virtual_device_of(next))
        plan_.value_task_graph[update.state] = next;
    }
  }

  // Entries share their state. It lies where the first one has it, in shards if it has it in shards, who lends it to
  // others: a batch norm reads its running statistics by other nodes than those that learn them, and a scope may match
  // the node that uses a weight in one entry alone.
  void leave_state() {
    const Plan* first = request_.state_of;
    if (!first || count() == 1) return;
    const auto users = first->graph->users();
    for (const Value v : graph_.value_ids()) {
      const ValueInfo& info = graph_.value(v);
      const Value known = is_state(info.kind) ? first->graph->find(info.name) : Value();
      if (!known || !is_state(first->graph->value(known).kind) || users[known].empty()) continue;
      const int there = first->value_task_graph[known];
      if (there == every_task_graph) continue;
      const TaskGraph& home = first->task_graphs[there];
      const auto here = std::ranges::find_if(plan_.task_graphs, [&](const TaskGraph& t) {
        return t.scope == home.scope && t.virtual_device == home.virtual_device && t.stage == home.stage;
      });
      if (here != plan_.task_graphs.end())
        plan_.value_task_graph[v] = static_cast<int>(here - plan_.task_graphs.begin());
    }
  }

  Status check_state() {
    for (const Graph::Update& update : graph_.updates) {
      if (plan_.virtual_device_of(update.state) == plan_.virtual_device_of(update.next)) continue;
      return unsupported("the next ", graph_.value(update.state).name, " is made by another stage than ",
                         scope_name(plan_.value_task_graph[update.state]));
    }
    return {};
  }

  Plan& plan_;
  const PlanRequest& request_;
  const CostModel& cost_;
  const Graph& graph_;
  Staging staging_;
  ScopeLayout layout_;
  std::vector<std::vector<int>> in_stage_;  // by stage and leaf of its virtual device: the TaskGraph
};

}  // namespace

EPL_PASS(place) {
  return {.doc = "puts every node into a TaskGraph and gives each TaskGraph its ranks",
          .run = [](PassContext& c) -> Status { return Placement(c).run(); }};
}

}  // namespace epl
