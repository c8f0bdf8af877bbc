#include "core/strategy/local_experts.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/base/hash.h"
#include "core/ir/op.h"
#include "core/strategy/expert_subgraphs.h"

namespace epl {
namespace {

constexpr int none = -1;  // subgraph
constexpr std::string_view no_subgraphs = "no two subgraphs of it are alike, each with weights of its own";
// Of the name of a weight, how many numbers from its end may be that of its expert.
constexpr int max_numbers = 3;
constexpr size_t max_named = 5;  // in a note

// A name for a node of a subgraph that a node of another subgraph has if it is the same of it: what it computes, from
// which of the subgraph's nodes and leaves, and which one it is of those that are alike so far.
struct Alike {
  std::string name;
  int number = 0;
  friend auto operator<=>(const Alike&, const Alike&) = default;
};

class LocalExperts {
 public:
  LocalExperts(PassContext& c, int task_graph)
      : plan_(c.plan),
        graph_(*plan_.graph),
        first_(c.request.state_of),
        here_(task_graph),
        axes_(plan_.task_graphs[task_graph].experts),
        shards_(static_cast<int>(plan_.mesh(task_graph).shards(axes_))),
        users_(graph_.users()) {}

  Result<std::string> run() {
    if (shards_ < 2) return std::string("there is one rank");
    if (!plan_.task_graphs[here_].pins.empty()) return std::string("its dims cut inside experts");
    std::string refused = assign(subgraphs_by_values(plan_, here_));
    for (int number = 0; number < max_numbers && !refused.empty(); ++number) {
      const std::string why = assign(subgraphs_by_names(plan_, here_, number));
      if (why.empty() || refused == no_subgraphs) refused = why;
    }
    EPL_TRY(check_first_entry());
    if (refused.empty()) note_others();
    return refused.empty()
               ? refused
               : cat("no weight has a dimension that counts experts and that ", shards_, " divides; ", refused);
  }

 private:
  const Node& node(NodeId n) const { return graph_.node(n); }
  NodeId producer(Value v) const { return v ? graph_.value(v).producer : NodeId(); }
  bool is_leaf_of_state(Value v) const { return v && is_state(graph_.value(v).kind); }
  std::string type_text(Value v) const { return v ? graph_.type(v).text() : "_"; }

  std::vector<std::pair<NodeId, Alike>> names_of(int subgraph, bool forward_alone) const {
    std::vector<std::pair<NodeId, Alike>> out;
    std::map<NodeId, Alike> known;
    std::map<Value, int> leaves;
    std::map<std::string, int> numbers;
    for (const NodeId n : subgraphs_.subgraphs[subgraph].nodes) {
      const Node& one = node(n);
      if (subgraphs_.of_node[n] != subgraph || (forward_alone && one.phase != Phase::forward)) continue;
      std::string text = cat(phase_name(one.phase), " ", one.op->name);
      for (const Attributes::Entry& entry : one.attributes.entries())
        text += cat(" ", entry.name, "=", attribute_text(entry.value));
      for (Value v : one.inputs) {
        text += cat(" ", type_text(v), " ");
        if (const auto inside = known.find(producer(v)); inside != known.end()) {
          Hash64 hash;
          hash.add(inside->second.name.data(), inside->second.name.size());
          text += cat("of ", hash.value(), " ", inside->second.number, " ", graph_.value(v).output);
        } else if (is_leaf_of_state(v) && subgraphs_.of_leaf[v] == subgraph) {
          text += cat("leaf ", leaves.emplace(v, static_cast<int>(leaves.size())).first->second, " ",
                      value_kind_name(graph_.value(v).kind));
        }
      }
      text += " ->";
      for (Value v : one.outputs) text += cat(" ", type_text(v));
      const int number = numbers[text]++;
      known[n] = {text, number};
      out.emplace_back(n, known[n]);
    }
    return out;
  }

  // By expert, the same node of all of them.
  using Row = std::vector<NodeId>;

  // What only some subgraphs have leaves them: the sum that begins with the gradient of the first expert.
  std::vector<Row> rows_of(const std::vector<int>& group) {
    for (;;) {
      std::map<Alike, Row> rows;
      for (size_t e = 0; e < group.size(); ++e) {
        for (const auto& [n, alike] : names_of(group[e], false)) {
          Row& row = rows[alike];
          row.resize(group.size());
          row[e] = n;
        }
      }
      bool complete = true;
      for (auto& [alike, row] : rows) {
        if (std::ranges::find(row, NodeId()) == row.end()) continue;
        complete = false;
        for (const NodeId n : row) {
          if (n) subgraphs_.of_node[n] = none;
        }
      }
      if (!complete) continue;
      std::vector<Row> out;
      for (auto& [alike, row] : rows) out.push_back(std::move(row));
      return out;
    }
  }

  // Why no subgraphs are rank-local; empty: some are.
  std::string assign(ExpertSubgraphs subgraphs) {
    subgraphs_ = std::move(subgraphs);
    std::map<std::tuple<int, std::string, std::string>, std::vector<int>> groups;  // that are alike in the forward pass
    for (int p = 0; p < std::ssize(subgraphs_.subgraphs); ++p) {
      const ExpertSubgraphs::Subgraph& subgraph = subgraphs_.subgraphs[p];
      std::string text;
      for (const auto& [node, alike] : names_of(p, true)) text += cat(alike.name, "#", alike.number, "\n");
      // Names of weights make subgraphs of which the TaskGraph has no node.
      if (!text.empty()) groups[{subgraph.level, subgraph.family, text}].push_back(p);
    }
    std::string refused(no_subgraphs);
    bool any = false;
    for (const auto& [key, group] : groups) {
      if (group.size() < 2) continue;
      const std::string why = assign_group(group);
      if (!why.empty()) refused = why;
      any = any || why.empty();
    }
    return any ? std::string() : refused;
  }

  // Why a group is not rank-local; empty: it is.
  std::string assign_group(const std::vector<int>& group) {
    const std::vector<Row> rows = rows_of(group);
    std::set<NodeId> members;
    for (const Row& row : rows) members.insert(row.begin(), row.end());
    for (const Row& row : rows) {
      for (const NodeId n : row) {
        if (node(n).op->random)
          return cat("node ", node(n).name, " draws random numbers, which every rank would draw for another expert");
      }
    }
    leaves_.assign(group.size(), {});
    for (const Row& row : rows) {
      std::string why = find_leaves(row);
      if (!why.empty()) return why;
    }
    std::string why = check_leaves(members);
    if (why.empty() && !as_first_entry(group.size())) why = "the first entry has them replicated";
    if (why.empty()) why = check_values(rows);
    if (!why.empty()) return why;
    auto before =
        std::tuple(plan_.shardings, plan_.node_shardings, plan_.node_representative, plan_.value_representative);
    write(rows);
    if (!run_order(plan_)) {
      std::tie(plan_.shardings, plan_.node_shardings, plan_.node_representative, plan_.value_representative) =
          std::move(before);
      return std::string("an expert waits for what another one gives");
    }
    note(group.size());
    return std::string();
  }

  // Of each expert the leaves that its nodes use, in one order.
  std::string find_leaves(const Row& row) {
    const size_t operands = node(row[0]).inputs.size();
    for (size_t i = 0; i < operands; ++i) {
      const Value first = node(row[0]).inputs[i];
      if (!is_leaf_of_state(first)) continue;
      const bool own = subgraphs_.of_leaf[first] == subgraphs_.of_node[row[0]];
      const auto at = std::ranges::find(leaves_[0], first) - leaves_[0].begin();
      for (size_t e = 0; e < row.size() && own; ++e) {
        const Value v = node(row[e]).inputs[i];
        if (at == std::ssize(leaves_[e])) {
          if (std::ranges::find(leaves_[e], v) != leaves_[e].end())
            return cat(graph_.value(v).name, " stands where other experts have two");
          leaves_[e].push_back(v);
        }
        if (at >= std::ssize(leaves_[e]) || leaves_[e][at] != v)
          return cat(graph_.value(v).name, " and ", graph_.value(first).name, " are not used alike");
      }
    }
    return {};
  }

  // Weights are the experts' own, and so is what they become.
  std::string check_leaves(const std::set<NodeId>& members) const {
    std::map<Value, Value> next;
    for (const Graph::Update& update : graph_.updates) next[update.state] = update.next;
    for (const std::vector<Value>& of_expert : leaves_) {
      for (Value v : of_expert) {
        const std::string& name = graph_.value(v).name;
        for (const NodeId user : users_[v]) {
          if (!members.contains(user) && !node(user).op->takes_any_operands)
            return cat(name, " is used by node ", node(user).name, ", which is none of an expert");
        }
        if (std::ranges::find(graph_.outputs, v, &Graph::Output::value) != graph_.outputs.end())
          return cat(name, " is an output");
        const auto update = next.find(v);
        if (update != next.end() && (!members.contains(producer(update->second)) || leaves(update->second)))
          return cat("the next ", name, " is made by no node of an expert, or leaves it");
      }
    }
    return {};
  }

  // Entries of one plan have one state. Whether it lies in the first one as it would here.
  bool as_first_entry(size_t experts) const {
    for (size_t e = 0; first_ && e < experts; ++e) {
      for (Value v : leaves_[e]) {
        const Value there = first_->graph->find(graph_.value(v).name);
        if (there && first_->shardings[there].rank_local != rank_local(e, experts)) return false;
      }
    }
    return true;
  }
  Status check_first_entry() const {
    for (int i = 0; first_ && i < graph_.value_count(); ++i) {
      const Value v{i}, there = is_leaf_of_state(v) ? first_->graph->find(graph_.value(v).name) : Value();
      const bool uses = there && !users_[v].empty() && plan_.value_task_graph[v] == here_;
      if (uses && first_->shardings[there].rank_local != plan_.shardings[v].rank_local)
        return unsupported(graph_.value(v).name, " lies on a rank alone, with the expert that it is of, and ",
                           graph_.name, " has no such expert");
    }
    return {};
  }

  // Values that leave to the caller or to other virtual devices are stored on all ranks.
  bool leaves(Value v) const {
    return std::ranges::find(graph_.outputs, v, &Graph::Output::value) != graph_.outputs.end() ||
           std::ranges::any_of(users_[v], [&](NodeId user) {
             const int at = plan_.node_task_graph[user];
             return at != every_task_graph && plan_.virtual_device_of(at) != plan_.virtual_device_of(v);
           });
  }

  // That they lie alike, and nothing leaves before it is complete.
  std::string check_values(const std::vector<Row>& rows) const {
    for (const Row& row : rows) {
      const OperandShardings operands = operand_shardings(plan_, row[0]);
      for (const NodeId n : row) {
        const NodeSharding& sharding = plan_.node_shardings[n];
        bool alike = sharding == plan_.node_shardings[row[0]];
        for (size_t o = 0; o < node(n).outputs.size() && alike; ++o) {
          const Value v = node(n).outputs[o], first = node(row[0]).outputs[o];
          alike = !v || plan_.shardings[v] == plan_.shardings[first];
          if (v && leaves(v) && !operands.outputs[o].partial.empty())
            return cat(graph_.value(v).name, " is a sum over samples that leaves its expert");
        }
        if (!alike) return cat("node ", node(n).name, " and node ", node(row[0]).name, " are cut in two ways");
      }
    }
    return std::string();
  }

  int shard_of(size_t expert, size_t experts) const { return static_cast<int>(expert * shards_ / experts); }
  RankLocal rank_local(size_t expert, size_t experts) const {
    return {.axes = axes_, .shard = shard_of(expert, experts)};
  }

  // The first expert of which a rank has as many before it as before this one: it is the representative.
  static size_t representative(size_t expert, const std::vector<int>& shard) {
    const auto before = [&](size_t e) {
      return std::count(shard.begin(), shard.begin() + static_cast<int64_t>(e), shard[e]);
    };
    size_t found = 0;
    while (before(found) != before(expert)) ++found;
    return found;
  }

  void write(const std::vector<Row>& rows) {
    plan_.node_representative.resize(graph_.node_count());
    plan_.value_representative.resize(users_.size());
    const size_t experts = leaves_.size();
    std::vector<int> shard;
    for (size_t e = 0; e < experts; ++e) shard.push_back(shard_of(e, experts));
    const auto take = [&](Value v, Value first, size_t e) {
      plan_.shardings[v].rank_local = rank_local(e, experts);
      plan_.value_representative[v] = first;
    };
    for (size_t e = 0; e < experts; ++e) {
      const size_t first = representative(e, shard);
      for (size_t i = 0; i < leaves_[e].size(); ++i) take(leaves_[e][i], leaves_[first][i], e);
      for (const Row& row : rows) {
        plan_.node_shardings[row[e]].rank_local = rank_local(e, experts);
        plan_.node_representative[row[e]] = row[first];
        plan_.explain(row[e], cat("an expert that lies alone on shard ", shard[e], " of ", shards_));
        const Node& one = node(row[e]);
        for (size_t o = 0; o < one.outputs.size(); ++o) {
          const auto goes = [&](NodeId n) { return node(n).outputs[o] && leaves(node(n).outputs[o]); };
          if (one.outputs[o] && std::ranges::none_of(row, goes)) take(one.outputs[o], node(row[first]).outputs[o], e);
        }
      }
    }
  }

  // What the names of an expert's weights have in common.
  std::string name_of(size_t expert) const {
    std::string name;
    for (Value v : leaves_[expert]) {
      if (graph_.value(v).kind != ValueKind::parameter) continue;
      const std::string& other = graph_.value(v).name;
      if (name.empty()) name = other;
      name.resize(std::ranges::mismatch(name, other).in1 - name.begin());
    }
    while (!name.empty() && std::string_view("._/").find(name.back()) != std::string_view::npos) name.pop_back();
    return name.empty() ? cat("expert ", expert) : name;
  }

  void note(size_t experts) {
    const TaskGraph& t = plan_.task_graphs[here_];
    const Mesh& mesh = plan_.mesh(here_);
    std::vector<std::string> ranks_of;
    for (int p = 0; p < shards_; ++p) {
      std::vector<std::string> names, ranks;
      for (size_t e = 0; e < experts; ++e) {
        if (shard_of(e, experts) == p) names.push_back(name_of(e));
      }
      for (const int rank : mesh.device.ranks) {
        if (mesh.shard(mesh.coordinates(rank), axes_) == p) ranks.push_back(cat(rank));
      }
      ranks_of.push_back(cat(ranks.size() == 1 ? "rank " : "ranks ", join(ranks, ", "), " ",
                             ranks.size() == 1 ? "has " : "have ", names.empty() ? "none" : join(names, ", ")));
    }
    plan_.notes.push_back(cat("scope ", t.scope, " (expert ", shards_, "): each of ", experts,
                              " experts lies uncut: ", join(ranks_of, "; ")));
  }

  void note_others() {
    std::vector<std::string> names;
    for (Value v : graph_.leaves(ValueKind::parameter)) {
      const bool is_here = plan_.value_task_graph[v] == here_ && !users_[v].empty();
      if (is_here && !plan_.shardings[v].rank_local) names.push_back(graph_.value(v).name);
    }
    if (names.empty()) return;
    const size_t more = names.size() - std::min<size_t>(names.size(), max_named);
    names.resize(names.size() - more);
    plan_.notes.push_back(cat("scope ", plan_.task_graphs[here_].scope, " (expert ", shards_,
                              "): each rank has all of what is no such expert's: ", join(names, ", "),
                              more > 0 ? cat(" and ", more, " more") : ""));
  }

  Plan& plan_;
  const Graph& graph_;
  const Plan* const first_;  // entry; null: this is it
  const int here_;
  const std::vector<int> axes_;
  const int shards_;
  const ByValue<std::vector<NodeId>> users_;
  ExpertSubgraphs subgraphs_;
  std::vector<std::vector<Value>> leaves_;  // by expert of the current group
};

}  // namespace

Result<std::string> assign_experts(PassContext& c, int task_graph) { return LocalExperts(c, task_graph).run(); }

}  // namespace epl
