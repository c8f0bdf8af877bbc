// In which order ranks run nodes that are rank-local, and what must hold of these.
#include <map>
#include <utility>

#include "core/ir/op.h"
#include "core/strategy/local_experts.h"

namespace epl {

std::optional<std::vector<NodeId>> run_order(const Plan& plan) {
  const Graph& graph = *plan.graph;
  std::vector<NodeId> order;
  order.reserve(graph.node_count());
  std::map<NodeId, std::vector<NodeId>> represented;  // by representative
  for (const NodeId n : plan.node_representative.ids()) {
    const NodeId representative = plan.node_representative[n];
    if (representative && representative != n) represented[representative].push_back(n);
  }
  enum class State : uint8_t { waiting, entered, placed };
  ByNode<State> state(graph.node_count(), State::waiting);
  std::vector<std::pair<NodeId, bool>> stack;  // nodes, and whether all that they wait for has been placed
  for (const NodeId n : graph.node_ids()) {
    stack.emplace_back(n, false);
    while (!stack.empty()) {
      const auto [at, ready] = stack.back();
      stack.pop_back();
      const NodeId representative =
          plan.node_representative.empty() || !plan.node_representative[at] ? at : plan.node_representative[at];
      State& now = state[representative];
      if (now == State::placed) continue;
      std::vector<NodeId> all = {representative};
      if (const auto more = represented.find(representative); more != represented.end())
        all.insert(all.end(), more->second.begin(), more->second.end());
      if (ready) {
        now = State::placed;
        order.insert(order.end(), all.begin(), all.end());
        continue;
      }
      if (now == State::entered) return std::nullopt;
      now = State::entered;
      stack.emplace_back(representative, true);
      for (const NodeId one : all) {
        const std::vector<Value>& inputs = graph.node(one).inputs;
        for (size_t i = inputs.size(); i-- > 0;) {
          const NodeId producer = inputs[i] ? graph.value(inputs[i]).producer : NodeId{};
          if (producer) stack.emplace_back(producer, false);
        }
      }
    }
  }
  return order;
}

Status verify_rank_local(const Plan& plan) {
  const Graph& graph = *plan.graph;
  for (const Value v : plan.shardings.ids()) {
    const RankLocal& rank_local = plan.shardings[v].rank_local;
    if (rank_local && (plan.value_representative.empty() ||
                       rank_local.shard >= plan.mesh(plan.value_task_graph[v]).shards(rank_local.axes)))
      return error(Code::internal, graph.value(v).name, " is local to ranks that are not there");
  }
  for (const NodeId n : plan.node_representative.ids()) {
    const NodeId representative = plan.node_representative[n];
    const std::string& name = graph.node(n).name;
    if (plan.node_shardings.empty() || !representative != !plan.node_shardings[n].rank_local)
      return error(Code::internal, "node ", name, " is rank-local and has no representative");
    if (!representative) continue;
    NodeSharding as = plan.node_shardings[representative];
    as.rank_local.shard = plan.node_shardings[n].rank_local.shard;
    const bool blocks = plan.node_block.empty() || plan.node_block[n] == plan.node_block[representative];
    if (plan.node_representative[representative] != representative || as != plan.node_shardings[n] || !blocks ||
        plan.node_task_graph[n] != plan.node_task_graph[representative])
      return error(Code::internal, "node ", name, " runs in another way than ", graph.node(representative).name,
                   ", in whose place it runs");
  }
  for (const Value v : plan.value_representative.ids()) {
    const Value representative = plan.value_representative[v];
    if (!representative != !plan.shardings[v].rank_local)
      return error(Code::internal, graph.value(v).name, " is rank-local and has no representative");
    if (!representative) continue;
    Sharding as = plan.shardings[representative];
    as.rank_local.shard = plan.shardings[v].rank_local.shard;
    if (plan.value_representative[representative] != representative || as != plan.shardings[v])
      return error(Code::internal, graph.value(v).name, " lies in another way than ", graph.value(representative).name,
                   ", in whose place it is");
  }
  if (!plan.node_representative.empty() && !run_order(plan))
    return error(Code::internal, "a node would wait for what ranks run in its own place");
  return {};
}

}  // namespace epl
