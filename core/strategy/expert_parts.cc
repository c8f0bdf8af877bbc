#include "core/strategy/expert_parts.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <unordered_map>

namespace epl {
namespace {

constexpr int no_part = -1;

size_t slot_of(Value v) { return static_cast<size_t>(v.index); }

class Finding {
 public:
  Finding(const Plan& plan, int task_graph)
      : plan_(plan), graph_(*plan.graph), here_(task_graph), users_(graph_.users()) {
    out_.of_node.assign(static_cast<size_t>(graph_.node_count()), no_part);
    out_.of_leaf.assign(users_.size(), no_part);
    while (forward_ < graph_.node_count() && node(forward_).phase == Phase::forward) ++forward_;
  }

  ExpertParts apart() {
    std::vector<int> root(static_cast<size_t>(forward_)), leaf_user(users_.size(), no_part);
    std::iota(root.begin(), root.end(), 0);
    const auto find = [&](int n) {
      while (root[static_cast<size_t>(n)] != n)
        n = root[static_cast<size_t>(n)] = root[static_cast<size_t>(root[static_cast<size_t>(n)])];
      return n;
    };
    std::set<int> with_weights;
    for (int n = 0; n < forward_; ++n) {
      for (Value v : node(n).inputs) {
        if (!is_mine(n)) continue;
        int other = producer(v);
        if (is_leaf(v)) {
          int& user = leaf_user[slot_of(v)];
          other = user = user == no_part ? n : user;
        }
        if (is_mine(other)) root[static_cast<size_t>(std::max(find(n), find(other)))] = std::min(find(n), find(other));
      }
    }
    for (int n = 0; n < forward_; ++n) {
      if (is_mine(n) && std::ranges::any_of(node(n).inputs, [&](Value v) { return is_leaf(v); }))
        with_weights.insert(find(n));
    }
    std::map<int, int> numbers;
    for (int n = 0; n < forward_; ++n) {
      if (!is_mine(n) || !with_weights.contains(find(n))) continue;
      out_.of_node[static_cast<size_t>(n)] = numbers.emplace(find(n), static_cast<int>(numbers.size())).first->second;
    }
    out_.parts.resize(numbers.size());
    return complete();
  }

  ExpertParts by_names(int number) {
    std::map<std::pair<std::string, std::string>, int> numbers;  // of families and what tells their parts apart
    std::vector<int> made(users_.size(), no_part);               // by value: the part of whose weights alone it is made
    for (Value v{0}; v.index < graph_.value_count(); ++v.index) {
      const auto [family, own] =
          is_leaf(v) ? parts_of_name(graph_.value(v).name, number) : std::pair<std::string, std::string>();
      if (own.empty() || plan_.shardings[slot_of(v)].dealt) continue;
      const auto [known, is_new] = numbers.emplace(std::pair(family, own), static_cast<int>(out_.parts.size()));
      if (is_new) out_.parts.push_back({.family = family});
      made[slot_of(v)] = known->second;
    }
    // What uses weights of one part, and what lies behind that.
    std::vector<bool> uses(out_.of_node.size(), false);
    for (int n = 0; n < forward_; ++n) {
      if (!is_mine(n)) continue;
      std::set<int> weights, behind;
      bool all_made = true, all_behind = true;
      for (Value v : node(n).inputs) {
        if (!v || graph_.value(v).kind == ValueKind::constant) continue;
        const bool is_weight = is_leaf(v) || made[slot_of(v)] != no_part;
        if (is_weight) weights.insert(made[slot_of(v)]);
        all_made = all_made && is_weight;
        const int from = producer(v);
        if (!is_weight && from >= 0) {
          behind.insert(out_.of_node[static_cast<size_t>(from)]);
        } else {
          all_behind = all_behind && is_weight;
        }
      }
      int& part = out_.of_node[static_cast<size_t>(n)];
      if (weights.size() == 1) {
        part = *weights.begin();
        uses[static_cast<size_t>(n)] = part != no_part;
      } else if (weights.empty() && behind.size() == 1 && all_behind) {
        part = *behind.begin();
      }
      for (Value v : node(n).outputs) {
        if (v && all_made && uses[static_cast<size_t>(n)]) made[slot_of(v)] = part;
      }
    }
    for (bool fewer = true; fewer;) {
      fewer = false;
      for (int n = forward_; n-- > 0;) {
        int& part = out_.of_node[static_cast<size_t>(n)];
        if (part == no_part || uses[static_cast<size_t>(n)] || (comes_from(n, part) && goes_to(n, part))) continue;
        part = no_part;
        fewer = true;
      }
    }
    return complete();
  }

 private:
  const Node& node(int n) const { return graph_.node(NodeId{n}); }
  int producer(Value v) const { return v ? graph_.value(v).producer.index : no_part; }
  bool is_leaf(Value v) const { return v && is_state(graph_.value(v).kind); }
  bool is_mine(int n) const {
    const auto at = static_cast<size_t>(n);
    return n >= 0 && n < forward_ && plan_.node_task_graph[at] == here_ &&
           (plan_.node_leader.empty() || plan_.node_leader[at] < 0);
  }
  int part_of(Value v) const {
    const int n = producer(v);
    return n >= 0 ? out_.of_node[static_cast<size_t>(n)] : no_part;
  }

  bool comes_from(int n, int part) const {
    return std::ranges::all_of(node(n).inputs, [&](Value v) { return producer(v) < 0 || part_of(v) == part; });
  }
  bool goes_to(int n, int part) const {
    return std::ranges::all_of(node(n).outputs, [&](Value v) {
      const bool given = std::ranges::find(graph_.outputs, v, &Graph::Output::value) != graph_.outputs.end();
      return !v || (!given && std::ranges::all_of(users_[slot_of(v)], [&](int32_t user) {
        return user >= forward_ || out_.of_node[static_cast<size_t>(user)] == part;
      }));
    });
  }

  // "a.3.b.1.w" with its number 1 from the end: "a." and "3"; of a name without so many numbers nothing.
  static std::pair<std::string, std::string> parts_of_name(std::string_view name, int number) {
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

  void add(int n, int part) {
    out_.of_node[static_cast<size_t>(n)] = part;
    out_.parts[static_cast<size_t>(part)].nodes.push_back(n);
    for (Value v : node(n).inputs) {
      if (is_leaf(v)) out_.of_leaf[slot_of(v)] = part;
    }
  }

  // A node of the backward pass is of the part of its forward node, one of the update of the only part that it takes
  // something of, if that is what it works on: not a sum of norms, nor what is made of that.
  ExpertParts complete() {
    std::unordered_map<std::string_view, int> part_of_name;
    for (int n = 0; n < forward_; ++n) {
      const int part = out_.of_node[static_cast<size_t>(n)];
      part_of_name.emplace(node(n).origin_name(), part);
      if (part != no_part) add(n, part);
    }
    for (int n = forward_; n < graph_.node_count(); ++n) {
      if (plan_.node_task_graph[static_cast<size_t>(n)] != here_) continue;
      std::set<int> found;
      if (node(n).phase == Phase::backward) {
        const auto origin = part_of_name.find(node(n).origin_name());
        if (origin != part_of_name.end()) found.insert(origin->second);
      } else {
        int64_t own = 0, others = 0;  // elements of the largest operand that a node makes, and of state that is known
        for (Value v : node(n).inputs) {
          const int part = is_leaf(v) ? out_.of_leaf[slot_of(v)] : part_of(v);
          if (part == no_part && producer(v) < 0) continue;
          int64_t& largest = part == no_part ? others : own;
          largest = std::max(largest, graph_.type(v).elements());
          if (part != no_part) found.insert(part);
        }
        if (others >= own) found.clear();
      }
      if (found.size() == 1 && *found.begin() != no_part) add(n, *found.begin());
    }
    find_levels();
    return std::move(out_);
  }

  // Layers of experts come one behind the other, and the experts of one layer beside each other.
  void find_levels() {
    std::vector<int> level(static_cast<size_t>(forward_), 0);
    bool more = true;
    // Parts that wait for each other, which cannot be dealt, would go up for ever.
    for (size_t round = 0; more && round <= out_.parts.size(); ++round) {
      more = false;
      for (int n = 0; n < forward_; ++n) {
        const int part = out_.of_node[static_cast<size_t>(n)];
        int& mine = part == no_part ? level[static_cast<size_t>(n)] : out_.parts[static_cast<size_t>(part)].level;
        for (Value v : node(n).inputs) {
          const int from = producer(v), other = part_of(v);
          if (from < 0 || (part != no_part && other == part)) continue;
          const int behind =
              other == no_part ? level[static_cast<size_t>(from)] : out_.parts[static_cast<size_t>(other)].level + 1;
          more = more || behind > mine;
          mine = std::max(mine, behind);
        }
      }
    }
  }

  const Plan& plan_;
  const Graph& graph_;
  const int here_;
  const std::vector<std::vector<int32_t>> users_;  // by value
  int forward_ = 0;                                // nodes of the forward pass
  ExpertParts out_;
};

}  // namespace

ExpertParts parts_apart(const Plan& plan, int task_graph) { return Finding(plan, task_graph).apart(); }
ExpertParts parts_by_names(const Plan& plan, int task_graph, int number) {
  return Finding(plan, task_graph).by_names(number);
}

}  // namespace epl
