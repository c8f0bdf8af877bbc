#include "core/strategy/expert_subgraphs.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>

namespace epl {
namespace {

constexpr int no_subgraph = -1;

class Finding {
 public:
  Finding(const Plan& plan, int task_graph)
      : plan_(plan), graph_(*plan.graph), here_(task_graph), users_(graph_.users()) {
    out_.of_node.assign(graph_.node_count(), no_subgraph);
    out_.of_leaf.assign(users_.size(), no_subgraph);
    for (const NodeId n : graph_.node_ids()) {
      if (node(n).phase != Phase::forward) break;
      last_forward_ = n;
    }
  }

  ExpertSubgraphs by_values() {
    ByNode<NodeId> root;
    for (const NodeId n : forward_ids()) root.push_back(n);
    ByValue<NodeId> leaf_user(users_.size());
    const auto find = [&](NodeId n) {
      while (root[n] != n) n = root[n] = root[root[n]];
      return n;
    };
    std::set<NodeId> with_weights;
    for (const NodeId n : forward_ids()) {
      for (Value v : node(n).inputs) {
        if (!is_mine(n)) continue;
        NodeId other = producer(v);
        if (is_leaf(v)) {
          NodeId& user = leaf_user[v];
          other = user = user ? user : n;
        }
        if (is_mine(other)) root[std::max(find(n), find(other))] = std::min(find(n), find(other));
      }
    }
    for (const NodeId n : forward_ids()) {
      if (is_mine(n) && std::ranges::any_of(node(n).inputs, [&](Value v) { return is_leaf(v); }))
        with_weights.insert(find(n));
    }
    std::map<NodeId, int> numbers;
    for (const NodeId n : forward_ids()) {
      if (!is_mine(n) || !with_weights.contains(find(n))) continue;
      out_.of_node[n] = numbers.emplace(find(n), static_cast<int>(numbers.size())).first->second;
    }
    out_.subgraphs.resize(numbers.size());
    return complete();
  }

  ExpertSubgraphs by_names(int number) {
    std::map<std::pair<std::string, std::string>, int> numbers;  // of families and what tells their subgraphs apart
    ByValue<int> made(users_.size(), no_subgraph);               // the subgraph of whose weights alone it is made
    for (const Value v : graph_.value_ids()) {
      const auto [family, own] =
          is_leaf(v) ? family_and_number(graph_.value(v).name, number) : std::pair<std::string, std::string>();
      if (own.empty() || plan_.shardings[v].rank_local) continue;
      const auto [known, is_new] = numbers.emplace(std::pair(family, own), static_cast<int>(out_.subgraphs.size()));
      if (is_new) out_.subgraphs.push_back({.family = family});
      made[v] = known->second;
    }
    // What uses weights of one subgraph, and what lies behind that.
    ByNode<bool> uses(out_.of_node.size());
    for (const NodeId n : forward_ids()) {
      if (!is_mine(n)) continue;
      std::set<int> weights, behind;
      bool all_made = true, all_behind = true;
      for (Value v : node(n).inputs) {
        if (!v || graph_.value(v).kind == ValueKind::constant) continue;
        const bool is_weight = is_leaf(v) || made[v] != no_subgraph;
        if (is_weight) weights.insert(made[v]);
        all_made = all_made && is_weight;
        const NodeId from = producer(v);
        if (!is_weight && from) {
          behind.insert(out_.of_node[from]);
        } else {
          all_behind = all_behind && is_weight;
        }
      }
      int& subgraph = out_.of_node[n];
      if (weights.size() == 1) {
        subgraph = *weights.begin();
        uses[n] = subgraph != no_subgraph;
      } else if (weights.empty() && behind.size() == 1 && all_behind) {
        subgraph = *behind.begin();
      }
      for (Value v : node(n).outputs) {
        if (v && all_made && uses[n]) made[v] = subgraph;
      }
    }
    for (bool fewer = true; fewer;) {
      fewer = false;
      for (const NodeId n : forward_ids().reversed()) {
        int& subgraph = out_.of_node[n];
        if (subgraph == no_subgraph || uses[n] || (comes_from(n, subgraph) && goes_to(n, subgraph))) continue;
        subgraph = no_subgraph;
        fewer = true;
      }
    }
    return complete();
  }

 private:
  const Node& node(NodeId n) const { return graph_.node(n); }
  NodeId producer(Value v) const { return v ? graph_.value(v).producer : NodeId(); }
  IdRange<NodeId> forward_ids() const { return {0, last_forward_.index + 1}; }
  bool is_leaf(Value v) const { return v && is_state(graph_.value(v).kind); }
  bool is_mine(NodeId n) const {
    return n && n <= last_forward_ && plan_.node_task_graph[n] == here_ &&
           (plan_.node_representative.empty() || !plan_.node_representative[n]);
  }
  int subgraph_of(Value v) const {
    const NodeId n = producer(v);
    return n ? out_.of_node[n] : no_subgraph;
  }

  bool comes_from(NodeId n, int subgraph) const {
    return std::ranges::all_of(node(n).inputs, [&](Value v) { return !producer(v) || subgraph_of(v) == subgraph; });
  }
  bool goes_to(NodeId n, int subgraph) const {
    return std::ranges::all_of(node(n).outputs, [&](Value v) {
      const bool given = std::ranges::find(graph_.outputs, v, &Graph::Output::value) != graph_.outputs.end();
      return !v || (!given && std::ranges::all_of(users_[v], [&](NodeId user) {
        return user > last_forward_ || out_.of_node[user] == subgraph;
      }));
    });
  }

  // "a.3.b.1.w" with its number 1 from the end: "a." and "3"; of a name without so many numbers nothing.
  static std::pair<std::string, std::string> family_and_number(std::string_view name, int number) {
    constexpr std::string_view between = "._/", digits = "0123456789";
    for (size_t end = name.size(); end != std::string_view::npos && end > 0;) {
      const size_t before = name.find_last_of(between, end - 1);
      const size_t begin = before == std::string_view::npos ? 0 : before + 1;
      const std::string_view word = name.substr(begin, end - begin);
      if (!word.empty() && word.find_first_not_of(digits) == std::string_view::npos && number-- == 0)
        return {std::string(name.substr(0, begin)), std::string(word)};
      end = before;
    }
    return {};
  }

  void add(NodeId n, int subgraph) {
    out_.of_node[n] = subgraph;
    out_.subgraphs[subgraph].nodes.push_back(n);
    for (Value v : node(n).inputs) {
      if (is_leaf(v)) out_.of_leaf[v] = subgraph;
    }
  }

  // A node of the backward pass is of the subgraph of its forward node, one of the update of the only subgraph that it
  // takes something of, if that is what it works on: not a sum of norms, nor what is made of that.
  ExpertSubgraphs complete() {
    std::unordered_map<std::string_view, int> subgraph_of_name;
    for (const NodeId n : forward_ids()) {
      const int subgraph = out_.of_node[n];
      subgraph_of_name.emplace(node(n).origin_name(), subgraph);
      if (subgraph != no_subgraph) add(n, subgraph);
    }
    for (const NodeId n : graph_.node_ids().after(last_forward_)) {
      if (plan_.node_task_graph[n] != here_) continue;
      std::set<int> found;
      if (node(n).phase == Phase::backward) {
        const auto origin = subgraph_of_name.find(node(n).origin_name());
        if (origin != subgraph_of_name.end()) found.insert(origin->second);
      } else {
        int64_t own = 0, others = 0;  // elements of the largest operand that a node makes, and of state that is known
        for (Value v : node(n).inputs) {
          const int subgraph = is_leaf(v) ? out_.of_leaf[v] : subgraph_of(v);
          if (subgraph == no_subgraph && !producer(v)) continue;
          int64_t& largest = subgraph == no_subgraph ? others : own;
          largest = std::max(largest, graph_.type(v).elements());
          if (subgraph != no_subgraph) found.insert(subgraph);
        }
        if (others >= own) found.clear();
      }
      if (found.size() == 1 && *found.begin() != no_subgraph) add(n, *found.begin());
    }
    find_levels();
    return std::move(out_);
  }

  // Layers of experts come one behind the other, and the experts of one layer beside each other.
  void find_levels() {
    ByNode<int> level(last_forward_.index + 1);
    bool more = true;
    // Subgraphs that wait for each other, which cannot be rank-local, would go up for ever.
    for (size_t round = 0; more && round <= out_.subgraphs.size(); ++round) {
      more = false;
      for (const NodeId n : forward_ids()) {
        const int subgraph = out_.of_node[n];
        int& mine = subgraph == no_subgraph ? level[n] : out_.subgraphs[subgraph].level;
        for (Value v : node(n).inputs) {
          const NodeId from = producer(v);
          const int other = subgraph_of(v);
          if (!from || (subgraph != no_subgraph && other == subgraph)) continue;
          const int behind = other == no_subgraph ? level[from] : out_.subgraphs[other].level + 1;
          more = more || behind > mine;
          mine = std::max(mine, behind);
        }
      }
    }
  }

  const Plan& plan_;
  const Graph& graph_;
  const int here_;
  const ByValue<std::vector<NodeId>> users_;
  NodeId last_forward_;
  ExpertSubgraphs out_;
};

}  // namespace

ExpertSubgraphs subgraphs_by_values(const Plan& plan, int task_graph) { return Finding(plan, task_graph).by_values(); }
ExpertSubgraphs subgraphs_by_names(const Plan& plan, int task_graph, int number) {
  return Finding(plan, task_graph).by_names(number);
}

}  // namespace epl
