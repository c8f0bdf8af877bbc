// Whether the ranks of a plan can wait for each other in a ring. All calls are simulated in the order of the ranks; a
// send waits for nobody, a receive for its send.
#include <algorithm>
#include <map>
#include <tuple>

#include "core/strategy/plan.h"

namespace epl {
namespace {

struct Message {
  size_t boundary = 0;
  int64_t micro_batch = 0;
  bool sends = false;
  BlockCall call;
};

// What a class of ranks sends and receives in one call, in the order of its local graph: late values at the head, then
// by producer.
std::vector<Message> messages_of(const Plan& plan, const std::vector<Boundary>& all, int rank_class,
                                 const BlockCall& call) {
  std::vector<std::tuple<bool, int, size_t>> order;
  for (size_t b = 0; b < all.size(); ++b) {
    const bool sends = all[b].from == rank_class && all[b].sent == call.id();
    if (!sends && (all[b].to != rank_class || all[b].received != call.id())) continue;
    order.emplace_back(!all[b].late, all[b].late ? 0 : plan.graph->value(all[b].value).producer.index, b);
  }
  std::ranges::sort(order);
  std::vector<Message> found;
  for (const auto& [early, producer, b] : order)
    found.push_back({b, call.micro_batch, all[b].from == rank_class, call});
  return found;
}

}  // namespace

Status verify_order(const Plan& plan) {
  EPL_ASSIGN(const std::vector<Boundary> all, boundaries(plan));
  if (all.empty()) return {};
  std::vector<std::vector<Message>> lists;
  for (size_t t = 0; t < plan.calls.size(); ++t) {
    auto& list = lists.emplace_back();
    for (const BlockCall& call : plan.calls[t]) {
      for (const Message& m : messages_of(plan, all, static_cast<int>(t), call)) list.push_back(m);
    }
  }
  std::map<std::pair<size_t, int64_t>, bool> sent;
  std::vector<size_t> at(lists.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t t = 0; t < lists.size(); ++t) {
      for (; at[t] < lists[t].size(); ++at[t], moved = true) {
        const Message& m = lists[t][at[t]];
        if (m.sends)
          sent[{m.boundary, m.micro_batch}] = true;
        else if (!sent.contains({m.boundary, m.micro_batch}))
          break;
      }
    }
  }
  for (size_t t = 0; t < lists.size(); ++t) {
    if (at[t] == lists[t].size()) continue;
    const Message& m = lists[t][at[t]];
    return error(Code::internal, plan.class_name(static_cast<int>(t)), " would wait in ", m.call.id().text(),
                 " of micro-batch ", m.micro_batch, " for ", plan.graph->value(all[m.boundary].value).name, ", which ",
                 plan.class_name(all[m.boundary].from), " never gets to send");
  }
  return {};
}

}  // namespace epl
