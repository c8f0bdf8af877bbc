// In which order ranks run nodes that are dealt, and what must hold of these.
#include <map>
#include <utility>

#include "core/ir/op.h"
#include "core/strategy/deal.h"

namespace epl {

std::optional<std::vector<int>> run_order(const Plan& plan) {
  const Graph& graph = *plan.graph;
  const auto count = static_cast<size_t>(graph.node_count());
  std::vector<int> order;
  order.reserve(count);
  std::map<int, std::vector<int>> followers;  // by leader
  for (size_t n = 0; n < plan.node_leader.size(); ++n) {
    const int leader = plan.node_leader[n];
    if (leader >= 0 && leader != static_cast<int>(n)) followers[leader].push_back(static_cast<int>(n));
  }
  enum class State : uint8_t { waiting, entered, placed };
  std::vector<State> state(count, State::waiting);
  std::vector<std::pair<int, bool>> stack;  // nodes, and whether all that they wait for has been placed
  for (int n = 0; n < static_cast<int>(count); ++n) {
    stack.emplace_back(n, false);
    while (!stack.empty()) {
      const auto [at, ready] = stack.back();
      stack.pop_back();
      const int leader = plan.node_leader.empty() || plan.node_leader[static_cast<size_t>(at)] < 0
                             ? at
                             : plan.node_leader[static_cast<size_t>(at)];
      State& now = state[static_cast<size_t>(leader)];
      if (now == State::placed) continue;
      std::vector<int> all = {leader};
      if (const auto more = followers.find(leader); more != followers.end())
        all.insert(all.end(), more->second.begin(), more->second.end());
      if (ready) {
        now = State::placed;
        order.insert(order.end(), all.begin(), all.end());
        continue;
      }
      if (now == State::entered) return std::nullopt;
      now = State::entered;
      stack.emplace_back(leader, true);
      for (const int one : all) {
        const std::vector<Value>& inputs = graph.node(NodeId{one}).inputs;
        for (size_t i = inputs.size(); i-- > 0;) {
          const NodeId producer = inputs[i] ? graph.value(inputs[i]).producer : NodeId{};
          if (producer) stack.emplace_back(producer.index, false);
        }
      }
    }
  }
  return order;
}

Status verify_dealt(const Plan& plan) {
  const Graph& graph = *plan.graph;
  for (size_t i = 0; i < plan.shardings.size(); ++i) {
    const Dealt& dealt = plan.shardings[i].dealt;
    if (dealt && (plan.value_leader.empty() || dealt.piece >= plan.mesh(plan.value_task_graph[i]).pieces(dealt.axes)))
      return error(Code::internal, graph.value(Value{static_cast<int>(i)}).name,
                   " is dealt to ranks that are not there");
  }
  for (size_t n = 0; n < plan.node_leader.size(); ++n) {
    const int leader = plan.node_leader[n];
    const std::string& name = graph.node(NodeId{static_cast<int>(n)}).name;
    if (plan.node_shardings.empty() || (leader >= 0) != static_cast<bool>(plan.node_shardings[n].dealt))
      return error(Code::internal, "node ", name, " is dealt and has no leader");
    if (leader < 0) continue;
    const auto l = static_cast<size_t>(leader);
    NodeSharding as = plan.node_shardings[l];
    as.dealt.piece = plan.node_shardings[n].dealt.piece;
    const bool blocks = plan.node_block.empty() || plan.node_block[n] == plan.node_block[l];
    if (plan.node_leader[l] != leader || as != plan.node_shardings[n] || !blocks ||
        plan.node_task_graph[n] != plan.node_task_graph[l])
      return error(Code::internal, "node ", name, " runs in another way than ", graph.node(NodeId{leader}).name,
                   ", in whose place it runs");
  }
  for (size_t i = 0; i < plan.value_leader.size(); ++i) {
    const int leader = plan.value_leader[i];
    if ((leader >= 0) != static_cast<bool>(plan.shardings[i].dealt))
      return error(Code::internal, graph.value(Value{static_cast<int>(i)}).name, " is dealt and has no leader");
    if (leader < 0) continue;
    Sharding as = plan.shardings[static_cast<size_t>(leader)];
    as.dealt.piece = plan.shardings[i].dealt.piece;
    if (plan.value_leader[static_cast<size_t>(leader)] != leader || as != plan.shardings[i])
      return error(Code::internal, graph.value(Value{static_cast<int>(i)}).name, " lies in another way than ",
                   graph.value(Value{leader}).name, ", in whose place it is");
  }
  if (!plan.node_leader.empty() && !run_order(plan))
    return error(Code::internal, "a node would wait for what ranks run in its own place");
  return {};
}

}  // namespace epl
