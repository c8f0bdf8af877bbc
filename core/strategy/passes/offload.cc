// offload: values lie in another memory while nobody uses them (`offload.level`; ZeRO-Offload, Ren et al. 2021, arXiv
// 2101.06840).
//
// Parameters and the optimizer's state have their home there. Whoever uses them fetches them, and an update evicts what
// it gives. A gradient lies there between the backward pass and its update, and a result of the forward pass until the
// backward pass takes it. So no value is elsewhere while a phase of the step uses it. Nothing but a table of the plan
// says so: `partition` writes the transfers (core/program/moves.h), and lifetimes follow from these.
//
// A gradient or a result of the forward pass moves if that takes no time by the cost model: nobody uses it for as long
// as both copies take, and the streams that copy have the time. Those that nobody uses for longest come first. A value
// that is computed again is not kept, so this pass comes after that one.
//
// With the option `stays` a share of what would move in any case does not: the values whose copies take most time for
// each byte.
//
// What is not a number stays: a copy that fails leaves anything behind, and an index must not be anything.
#include <algorithm>
#include <array>
#include <set>

#include "core/base/suggestion.h"
#include "core/strategy/node_cost.h"
#include "core/strategy/pass.h"

namespace epl {
namespace {

// What values are for.
enum class Offloadable : uint8_t { states, weights, gradients, activations };
constexpr std::string_view held_names[] = {"states", "weights", "gradients", "activations"};
constexpr std::string_view held_texts[] = {"the optimizer's state", "weights", "gradients",
                                           "results of the forward pass"};
constexpr size_t held_kinds = std::size(held_names);

class Offloading {
 public:
  explicit Offloading(PassContext& context)
      : plan_(context.plan),
        cost_(context.cost),
        graph_(*plan_.graph),
        there_(context.request.state_of),
        beside_(context.request.beside),
        users_(graph_.users()),
        given_(graph_.value_count(), false),
        next_(graph_.value_count(), false),
        begins_(graph_.node_count(), 0) {}

  // `stays`: a share.
  Status run(double stays) {
    EPL_TRY(read_wanted());
    for (const Graph::Output& output : graph_.outputs) given_[root(output.value)] = true;
    for (const Graph::Update& update : graph_.updates) next_[root(update.next)] = true;
    plan_.value_memory.assign(graph_.value_count(), MemoryKind::device);
    find_times();
    for (const Value v : graph_.value_ids()) {
      if (is_state(graph_.value(v).kind) && plan_.representative_of(v) == v) find_state(v);
    }
    const std::vector<Idle> results = idle_results();
    for (const Idle& idle : results) {
      if (in_full(idle.held)) moves_.push_back({idle.value, idle.held, idle.bytes, 2 * idle.seconds});
    }
    leave(stays);
    for (const Move& one : moves_) move(one.value, one.held);
    // Ranks have these in one place, each one of them.
    for (const Value v : graph_.value_ids()) {
      const Value same = plan_.representative_of(v);
      if (same != v && is_state(graph_.value(v).kind)) plan_.value_memory[v] = plan_.value_memory[same];
    }
    if (where_hidden_) move_hidden(results);
    write_note();
    return {};
  }

 private:
  // A value that nobody uses for some time.
  struct Idle {
    Value value;
    Offloadable held = Offloadable::activations;
    double bytes = 0, seconds = 0;  // of each of the two copies
    double unused = 0;              // seconds
  };
  // What moves in any case.
  struct Move {
    Value value;
    Offloadable held = Offloadable::states;
    double bytes = 0, seconds = 0;  // of all its copies in a step
  };

  Status read_wanted() {
    const std::vector<std::string> names = comma_separated(plan_.strategy.text("offload.values"));
    const std::vector<std::string> known(std::begin(held_names), std::end(held_names));
    in_full_.fill(false);
    for (const std::string& name : names) {
      const auto found = std::ranges::find(known, name);
      if (found == known.end())
        return error(Code::not_found, "offload.values: no values are ", quoted(name), choices(name, known));
      in_full_[static_cast<size_t>(found - known.begin())] = true;
    }
    for (const Offloadable held : {Offloadable::gradients, Offloadable::activations}) {
      if (plan_.independent_micro_batches && in_full(held))
        return unsupported("offload.values = ", quoted(plan_.strategy.text("offload.values")), ": ", name_of(held),
                           " stay where kernels compute with batch.semantics = per_micro_batch; leave them out");
    }
    where_hidden_ = names.empty();
    if (names.empty()) in_full_ = {true, true, false, false};
    return {};
  }
  static std::string_view name_of(Offloadable held) { return held_names[static_cast<size_t>(held)]; }
  bool in_full(Offloadable held) const { return in_full_[static_cast<size_t>(held)]; }

  const Node& node(NodeId n) const { return graph_.node(n); }
  NodeId producer(Value v) const { return graph_.value(v).producer; }
  Value root(Value v) const {
    while (producer(v) && node(producer(v)).op->view) v = node(producer(v)).inputs[0];
    return v;
  }
  double bytes(Value v) const {
    return local_bytes(plan_, std::max(plan_.value_task_graph[v], 0), graph_.type(v), plan_.shardings[v]);
  }
  double copy_seconds(double bytes) const { return cost_.launch() + cost_.other(beside_, bytes); }
  bool is_number(Value v) const { return is_float(graph_.type(v).dtype) && graph_.type(v).elements() > 1; }

  // When each node begins, among those of its stage, and what the kernels of each phase take.
  void find_times() {
    std::vector<double> now(static_cast<size_t>(plan_.stages()), 0);
    time_for_evicts_.assign(now.size(), 0);
    time_for_fetches_.assign(now.size(), 0);
    for (const NodeId n : graph_.node_ids()) {
      if (plan_.node_task_graph[n] == every_task_graph) {
        begins_[n] = *std::ranges::max_element(now);
        continue;
      }
      const auto at = static_cast<size_t>(stage(n));
      begins_[n] = now[at];
      const double seconds = node_seconds(cost_, plan_, n, plan_.node_shardings[n]);
      now[at] += seconds;
      if (node(n).phase != Phase::update) time_for_evicts_[at] += seconds;
      if (node(n).phase != Phase::forward) time_for_fetches_[at] += seconds;
    }
  }
  int stage(NodeId n) const { return plan_.task_graphs[std::max(plan_.node_task_graph[n], 0)].stage; }

  // What the first entry has decided holds for all.
  void find_state(Value v) {
    const ValueInfo& info = graph_.value(v);
    if (const Value first = there_ ? there_->graph->find(info.name) : Value()) {
      const bool away = !there_->value_memory.empty() && there_->value_memory[first] != MemoryKind::device;
      if (away) move(v, kind_of(v));
      return;
    }
    if (info.kind == ValueKind::buffer || !in_full(kind_of(v)) || !is_number(v) || given_[v] || users_[v].empty())
      return;
    for (const Graph::Update& update : graph_.updates) {
      if (plan_.representative_of(update.state) == v && !is_of_update(update.next)) return;
    }
    moves_.push_back({v, kind_of(v), bytes(v), copies_of_state(v) * copy_seconds(bytes(v))});
  }
  // Each phase that takes it fetches it, and an update evicts it.
  double copies_of_state(Value v) const {
    std::set<Phase> phases;
    for (const NodeId n : users_[v]) phases.insert(node(n).phase);
    const auto changes = [&](const Graph::Update& update) { return update.state == v; };
    return static_cast<double>(phases.size()) + (std::ranges::any_of(graph_.updates, changes) ? 1 : 0);
  }
  Offloadable kind_of(Value v) const {
    return graph_.value(v).kind == ValueKind::parameter ? Offloadable::weights : Offloadable::states;
  }
  bool is_of_update(Value next) const {
    return producer(next) && producer(root(next)) && node(producer(next)).phase == Phase::update;
  }
  // A weight comes in the forward pass and in the backward pass.
  void take_time(Value v) {
    for (const NodeId n : users_[v]) {
      if (node(n).phase == Phase::backward && plan_.node_task_graph[n] != every_task_graph) {
        time_for_fetches_[static_cast<size_t>(stage(n))] -= copy_seconds(bytes(v));
        return;
      }
    }
  }

  // Of what moves in any case a share stays.
  void leave(double share) {
    if (share <= 0) return;
    double bytes = 0;
    for (const Move& one : moves_) bytes += share * one.bytes;
    std::ranges::stable_sort(moves_, std::greater(), [](const Move& one) { return one.seconds / one.bytes; });
    std::erase_if(moves_, [&](const Move& one) {
      const bool stays = one.bytes <= bytes;
      if (stays) bytes -= one.bytes;
      return stays;
    });
  }

  std::vector<Idle> idle_results() const {
    std::vector<Idle> found;
    for (const Value v : graph_.value_ids()) {
      if (const auto idle = idle_of(v)) found.push_back(*idle);
    }
    std::ranges::stable_sort(found, std::greater(), &Idle::unused);
    return found;
  }

  void move_hidden(const std::vector<Idle>& results) {
    for (const Idle& idle : results) {
      const auto at = static_cast<size_t>(stage(producer(idle.value)));
      if (idle.unused < 2 * idle.seconds || time_for_evicts_[at] < idle.seconds || time_for_fetches_[at] < idle.seconds)
        continue;
      time_for_evicts_[at] -= idle.seconds;
      time_for_fetches_[at] -= idle.seconds;
      move(idle.value, idle.held);
    }
  }

  // A result that a phase takes behind that which makes it.
  std::optional<Idle> idle_of(Value v) const {
    const NodeId n = producer(v);
    if (!n || node(n).op->view || plan_.node_task_graph[n] == every_task_graph || node(n).phase == Phase::update)
      return {};
    if (!is_number(v) || given_[v] || next_[v] || plan_.node_shardings[n].rank_local) return {};
    if (!plan_.node_recomputed.empty() && plan_.node_recomputed[n]) return {};
    if (plan_.node_block[n] == BlockKind::pre || plan_.independent_micro_batches) return {};
    Idle idle{.value = v, .held = node(n).phase == Phase::forward ? Offloadable::activations : Offloadable::gradients};
    double last = begins_[n], next = -1;
    find_uses(v, n, last, next);
    if (next < 0) return {};
    idle.bytes = bytes(v);
    idle.seconds = copy_seconds(idle.bytes);
    idle.unused = next - last;
    return idle;
  }

  // Through views: when the last node of the same phase begins, and the first one behind that. Another stage gets it
  // right behind its node.
  void find_uses(Value v, NodeId made, double& last, double& next) const {
    for (const NodeId user : users_[v]) {
      if (plan_.node_task_graph[user] != every_task_graph && stage(user) != stage(made)) continue;
      if (node(user).op->view && node(user).phase == node(made).phase) {
        find_uses(node(user).outputs[0], made, last, next);
      } else if (node(user).phase == node(made).phase) {
        last = std::max(last, begins_[user]);
      } else {
        next = next < 0 ? begins_[user] : std::min(next, begins_[user]);
      }
    }
  }

  void move(Value v, Offloadable held) {
    plan_.value_memory[v] = beside_;
    ++count_;
    bytes_[static_cast<size_t>(held)] += bytes(v);
    if (held == Offloadable::weights) take_time(v);
    const NodeId made = producer(v);
    if (!made) return;
    plan_.explain(made, cat("its result lies in memory ", memory_kind_name(beside_),
                            held == Offloadable::gradients ? " until the update" : " until the backward pass"));
  }

  void write_note() {
    if (count_ == 0) {
      plan_.value_memory = {};
      if (!there_) plan_.notes.emplace_back("offload.level: all values stay where kernels compute");
      return;
    }
    std::vector<std::string> parts;
    for (size_t k = 0; k < held_kinds; ++k) {
      if (bytes_[k] > 0) parts.push_back(cat(grouped(static_cast<int64_t>(bytes_[k])), " bytes of ", held_texts[k]));
    }
    plan_.notes.push_back(
        cat("offload.level: in memory of the kind ", memory_kind_name(beside_),
            " ranks have, while nobody uses them, of all stages and of one micro-batch: ", join(parts, ", ")));
  }

  Plan& plan_;
  const CostModel& cost_;
  const Graph& graph_;
  const Plan* there_;  // null: this is the first entry
  const MemoryKind beside_;
  const ByValue<std::vector<NodeId>> users_;
  ByValue<bool> given_, next_;  // to the caller, and of updates; by roots of views
  ByNode<double> begins_;
  std::array<bool, held_kinds> in_full_{};
  bool where_hidden_ = false;
  std::vector<Move> moves_;
  std::vector<double> time_for_evicts_, time_for_fetches_;  // by stage: what is left of that of its kernels
  int count_ = 0;
  std::array<double, held_kinds> bytes_{};
};

}  // namespace

EPL_PASS(offload) {
  return {.doc = "values lie in another memory of the device while nobody uses them",
          .options = {{.name = "stays",
                       .value = int64_t{0},
                       .doc = "of 100 bytes that would move whatever time they take, those that stay",
                       .range = {.from = 0, .to = 100}}},
          .run = [](PassContext& c) -> Status {
            c.plan.value_memory = {};
            if (c.plan.strategy.text("offload.level").empty()) return {};
            if (c.request.beside == MemoryKind::device) return unsupported("offload.level: this device has one memory");
            if (c.plan.node_block.empty() && c.plan.graph->node_count() > 0)
              return invalid("it needs schedule before it");
            return Offloading(c).run(static_cast<double>(c.options.integer("stays")) / 100);
          }};
}

}  // namespace epl
