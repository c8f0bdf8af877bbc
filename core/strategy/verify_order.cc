// In which order what the ranks of a plan send and take can come, and whether they can wait for each other in a ring.
// Before that, whether on each rank calls come after those whose results they need.
//
// All ranks make their calls in a simulation, in which a forward call takes one unit of time and a send waits for
// nobody. What happens there, one thing after the other, is one order of everything. A rank then waits for what it has
// sent at its first call that comes after the receiver has taken it: such waits point forward in this order, as
// receives do, so that no ranks ever wait in a ring. Only where memory must be written again before is a wait part of
// the simulation.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/strategy/plan.h"

namespace epl {
namespace {

// What a rank does next. Of what can be done at the same time the first of these comes first.
enum class Action : uint8_t { begins, works, sends, receives };

struct Step {
  Action action = Action::begins;
  size_t call = 0;
  size_t message = 0;  // that it sends or receives
};

// When something happens, and the how manieth thing it is; -1: it has not.
struct Moment {
  double time = 0;
  int64_t number = -1;
};

double duration(const BlockCall& call, bool has_weight_blocks) {
  if (call.block == BlockKind::backward) return has_weight_blocks ? 1 : 2;
  return block_is_interleaved(call.block) ? 1 : 0;
}

class Order {
 public:
  Order(const Plan& plan, const std::vector<Boundary>& boundaries)
      : plan_(plan),
        boundaries_(boundaries),
        sent_(boundaries.size() * static_cast<size_t>(plan.micro_batches())),
        taken_(sent_.size()) {
    for (const Boundary& b : boundaries_) channels_.push_back(channel_of(plan_, boundaries_, b));
    for (int c = 0; c < plan_.virtual_devices(); ++c) progress_.push_back(start(c));
  }

  Status run() {
    for (int64_t number = 0;; ++number) {
      int next = -1;
      std::pair<double, Action> first;
      for (int c = 0; c < plan_.virtual_devices(); ++c) {
        const std::optional<double> time = time_of_next(of(c));
        if (!time || (next >= 0 && std::pair(*time, of(c).step().action) >= first)) continue;
        first = {*time, of(c).step().action};
        next = c;
      }
      if (next < 0) break;
      EPL_TRY(carry_out(next, {first.first, number}));
    }
    for (int c = 0; c < plan_.virtual_devices(); ++c) {
      if (!of(c).done()) return stuck(c);
    }
    return {};
  }

  // By virtual device, when `run` has gone to the end.
  std::vector<std::vector<SendWait>> waits() const {
    std::vector<std::vector<SendWait>> found;
    for (const Progress& own : progress_) {
      std::map<std::tuple<size_t, int, int64_t>, int64_t> taken;  // of what a call gives to a channel, the last
      for (const Step& step : own.steps) {
        if (step.action != Action::sends) continue;
        int64_t& last = taken[{step.call, boundary(step.message).to, channel(step.message)}];
        last = std::max(last, taken_[step.message].number);
      }
      std::vector<SendWait>& waits = found.emplace_back();
      for (const auto& [key, number] : taken) {
        const auto& [call, to, channel] = key;
        const auto waiting = std::ranges::upper_bound(own.begun, number) - own.begun.begin();
        if (waiting < std::ssize(own.begun))
          waits.push_back({static_cast<int>(waiting), static_cast<int>(call), to, channel});
      }
      std::ranges::sort(waits);
    }
    return found;
  }

 private:
  struct Progress {
    std::vector<Step> steps;
    std::vector<std::vector<size_t>> freed;  // by call: messages that must have been taken before it
    std::vector<int64_t> begun;              // by call: the number of its beginning
    size_t next = 0;                         // step
    double time = 0;
    bool has_weight_blocks = false;
    bool done() const { return next == steps.size(); }
    const Step& step() const { return steps[next]; }
  };

  Progress& of(int c) { return progress_[c]; }
  const BlockCall& call(int c, size_t index) const { return plan_.calls[c][index]; }
  size_t boundary_index(size_t message) const { return message / static_cast<size_t>(plan_.micro_batches()); }
  const Boundary& boundary(size_t message) const { return boundaries_[boundary_index(message)]; }
  int64_t channel(size_t message) const { return channels_[boundary_index(message)]; }
  const std::string& name(size_t message) const { return plan_.graph->value(boundary(message).value).name; }

  Progress start(int c) const {
    Progress made;
    const std::vector<BlockCall>& calls = plan_.calls[c];
    made.has_weight_blocks = std::ranges::find(calls, BlockKind::weight, &BlockCall::block) != calls.end();
    made.freed.resize(calls.size());
    std::vector<size_t> sent;
    std::map<BlockId, std::vector<size_t>>
        sent_in_iteration;  // of a block that writes to the same memory in each iteration
    for (size_t i = 0; i < calls.size(); ++i) {
      std::vector<size_t>& of_block = sent_in_iteration[calls[i].id()];
      made.freed[i] = std::exchange(of_block, {});
      // The update writes to weights, which may be lent.
      if (calls[i].block == BlockKind::post) made.freed[i] = sent;
      made.steps.push_back({Action::begins, i});
      bool worked = false;
      for (const size_t b : boundaries_of(c, calls[i].id())) {
        const size_t message =
            b * static_cast<size_t>(plan_.micro_batches()) + static_cast<size_t>(calls[i].micro_batch);
        const bool sends = boundaries_[b].from == c;
        if (sends && !std::exchange(worked, true)) made.steps.push_back({Action::works, i});
        made.steps.push_back({sends ? Action::sends : Action::receives, i, message});
        if (!sends) continue;
        sent.push_back(message);
        if (block_loops(calls[i].block) && !block_is_interleaved(calls[i].block)) of_block.push_back(message);
      }
      if (!worked) made.steps.push_back({Action::works, i});
    }
    return made;
  }

  // What goes over boundaries in a block, in the order of the local graph: late values at the head, then by producer.
  std::vector<size_t> boundaries_of(int c, const BlockId& block) const {
    std::vector<std::tuple<bool, int, size_t>> order;
    for (size_t b = 0; b < boundaries_.size(); ++b) {
      const Boundary& at = boundaries_[b];
      if ((at.from != c || at.sent != block) && (at.to != c || at.received != block)) continue;
      order.emplace_back(!at.late, at.late ? 0 : plan_.graph->value(at.value).producer.index, b);
    }
    std::ranges::sort(order);
    std::vector<size_t> found;
    for (const auto& [early, producer, b] : order) found.push_back(b);
    return found;
  }

  // When the next step of a virtual device can be done; nothing: not yet.
  std::optional<double> time_of_next(const Progress& own) const {
    if (own.done()) return std::nullopt;
    double time = own.time;
    const auto after = [&time](const Moment& moment) {
      time = std::max(time, moment.time);
      return moment.number >= 0;
    };
    const Step& step = own.step();
    if (step.action == Action::receives && !after(sent_[step.message])) return std::nullopt;
    if (step.action != Action::begins) return time;
    for (size_t message : own.freed[step.call]) {
      if (!after(taken_[message])) return std::nullopt;
    }
    return time;
  }

  Status carry_out(int c, const Moment& now) {
    Progress& own = of(c);
    const Step& step = own.step();
    own.time = now.time;
    ++own.next;
    switch (step.action) {
      case Action::begins:
        own.begun.push_back(now.number);
        return {};
      case Action::works:
        own.time += duration(call(c, step.call), own.has_weight_blocks);
        return {};
      case Action::sends:
        sent_[step.message] = now;
        on_the_way_[key(step.message)].push_back(step.message);
        return {};
      case Action::receives:
        break;
    }
    taken_[step.message] = now;
    std::vector<size_t>& waiting = on_the_way_[key(step.message)];
    const size_t came = waiting.front();
    waiting.erase(waiting.begin());
    if (came == step.message) return {};
    return error(Code::internal, plan_.virtual_device_name(c), " wants ", name(step.message), " in ",
                 call(c, step.call).text(), ", but ", plan_.virtual_device_name(boundary(came).from), " has sent ",
                 name(came), " before it");
  }

  // Of one channel things are taken in the order in which they were sent.
  std::tuple<int, int, int64_t> key(size_t message) const {
    return {boundary(message).from, boundary(message).to, channel(message)};
  }

  Status stuck(int c) {
    const Step& step = of(c).step();
    const std::string who = plan_.virtual_device_name(c), where = call(c, step.call).text();
    if (step.action == Action::receives) {
      return error(Code::internal, who, " would wait in ", where, " for ", name(step.message), ", which ",
                   plan_.virtual_device_name(boundary(step.message).from), " never gets to send");
    }
    const std::vector<size_t>& freed = of(c).freed[step.call];
    const size_t left = *std::ranges::find_if(freed, [&](size_t m) { return taken_[m].number < 0; });
    return error(Code::internal, who, " would wait before ", where, " until ",
                 plan_.virtual_device_name(boundary(left).to), " takes ", name(left), ", which it never gets to");
  }

  const Plan& plan_;
  const std::vector<Boundary>& boundaries_;
  std::vector<int64_t> channels_;     // by boundary
  std::vector<Moment> sent_, taken_;  // by message: a boundary at a micro-batch
  std::vector<Progress> progress_;
  std::map<std::tuple<int, int, int64_t>, std::vector<size_t>> on_the_way_;
};

// Interleaved blocks of a virtual device, of which the first gives the second a value of its micro-batch.
std::map<std::pair<BlockId, BlockId>, Value> needs_of(const Plan& plan, const std::vector<Boundary>& all,
                                                      int virtual_device) {
  const Graph& graph = *plan.graph;
  std::map<Value, BlockId> received;
  for (const Boundary& b : all) {
    if (b.to == virtual_device && !b.late) received.emplace(b.value, b.received);
  }
  std::map<std::pair<BlockId, BlockId>, Value> needs;
  for (const NodeId n : graph.node_ids()) {
    const int at = plan.node_task_graph[n];
    if (at == every_task_graph || plan.virtual_device_of(at) != virtual_device) continue;
    const BlockId taker = plan.block_of(n, virtual_device);
    if (!block_is_interleaved(taker.kind)) continue;
    for (Value v : graph.node(n).inputs) {
      if (!v || !graph.value(v).producer) continue;
      const auto known = received.find(v);
      if (known == received.end() && plan.virtual_device_of(v) != virtual_device) continue;
      const BlockId giver =
          known != received.end() ? known->second : plan.block_of(graph.value(v).producer, virtual_device);
      if (block_is_interleaved(giver.kind) && giver != taker) needs.emplace(std::pair(giver, taker), v);
    }
  }
  return needs;
}

// On one rank no call may need what a later one gives.
Status verify_calls_of(const Plan& plan, const std::vector<Boundary>& all, int virtual_device) {
  std::map<BlockId, std::vector<size_t>> at;  // by micro-batch
  const std::vector<BlockCall>& calls = plan.calls[virtual_device];
  for (size_t c = 0; c < calls.size(); ++c) at[calls[c].id()].push_back(c);
  for (const auto& [blocks, value] : needs_of(plan, all, virtual_device)) {
    const auto& [giver, taker] = blocks;
    for (size_t m = 0; m < at[taker].size(); ++m) {
      if (m < at[giver].size() && at[giver][m] < at[taker][m]) continue;
      return error(Code::internal, plan.virtual_device_name(virtual_device), " calls ", taker.text(), " ", m,
                   " before ", giver.text(), " ", m, ", which gives ", plan.graph->value(value).name);
    }
  }
  return {};
}

}  // namespace

int64_t channel_of(const Plan& plan, const std::vector<Boundary>& boundaries, const Boundary& boundary) {
  if (plan.stages() == plan.virtual_devices()) return 0;
  const auto same = [&](const Boundary& b) {
    return b.from == boundary.from && b.to == boundary.to && b.sent == boundary.sent && b.received == boundary.received;
  };
  return 1 + (std::ranges::find_if(boundaries, same) - boundaries.begin());
}

Result<std::vector<std::vector<SendWait>>> send_waits(const Plan& plan, const std::vector<Boundary>& boundaries) {
  if (boundaries.empty()) return std::vector<std::vector<SendWait>>(plan.meshes.size());
  Order order(plan, boundaries);
  EPL_TRY(order.run());
  return order.waits();
}

Status verify_order(const Plan& plan) {
  const std::vector<Boundary> all = boundaries(plan);
  for (int c = 0; c < plan.virtual_devices(); ++c) EPL_TRY(verify_calls_of(plan, all, c));
  return send_waits(plan, all).status();
}

}  // namespace epl
