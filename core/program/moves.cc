#include "core/program/moves.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/ir/op.h"
#include "core/ir/rewriter.h"
#include "core/program/live_bytes.h"
#include "core/program/transfer.h"
#include "core/strategy/node_cost.h"

namespace epl {
namespace {

class MoveWriter {
 public:
  MoveWriter(LocalGraph& local, const std::vector<StateHome>& results)
      : local_(local),
        graph_(local.graph),
        now_(graph_, out_),
        memory_(graph_.value_count(), MemoryKind::device),
        there_(graph_.value_count()),
        changes_(graph_.value_count(), MemoryKind::device) {
    for (const StateHome& home : local.homes) {
      const Value v = graph_.find(home.name);
      if (!v) continue;
      memory_[v] = home.memory;
      there_[v] = now_[v];
    }
    for (const StateHome& one : results) {
      if (const Value v = graph_.find(one.name)) memory_[v] = one.memory;
    }
    for (const Graph::Update& update : graph_.updates) {
      if (is_away(update.state)) changes_[update.next] = memory_[update.state];
    }
  }

  void run() {
    for (const NodeId n : graph_.node_ids()) visit(n);
    bring_outputs();
    now_.finish();
    for (size_t u = 0; u < graph_.updates.size(); ++u) {
      const auto found = new_state_.find(graph_.updates[u].next);
      if (is_away(graph_.updates[u].state) && found != new_state_.end()) out_.updates[u].next = found->second;
    }
    for (LocalPort& port : local_.inputs) port.value = now_[port.value];
    for (LocalPort& port : local_.outputs) port.value = now_[port.value];
    local_.graph = std::move(out_);
  }

 private:
  bool is_away(Value v) const { return memory_[v] != MemoryKind::device; }
  NodeId producer(Value v) const { return graph_.value(v).producer; }
  bool is_view(Value v) const { return producer(v) && graph_.node(producer(v)).op->view; }
  Value root(Value v) const {
    while (is_view(v)) v = graph_.node(producer(v)).inputs[0];
    return v;
  }

  // The node with operands as it finds them where it computes. Who comes behind it looks for its own.
  void visit(NodeId n) {
    const Node& node = graph_.node(n);
    std::map<Value, Value> own;
    for (Value v : node.inputs) {
      if (!v || own.contains(v) || !is_elsewhere(v, node)) continue;
      const Value was = now_[v];
      now_.set(v, brought(v, node));
      own.emplace(v, was);
    }
    now_.copy(n);
    for (const auto& [v, was] : own) now_.set(v, was);
    for (Value v : node.outputs) {
      if (!v) continue;
      if (is_away(v)) there_[v] = evicted(v, node, memory_[v]);
      if (changes_[v] != MemoryKind::device) new_state_.emplace(v, evicted(v, node, changes_[v]));
    }
  }

  // Whether a node may not take a value as it is: it lies elsewhere, or it is a view of what does, and other nodes than
  // those of this phase have it.
  bool is_elsewhere(Value v, const Node& reader) const {
    const Value r = root(v);
    if (!is_away(r)) return false;
    if (producer(r) && !is_later(graph_.node(producer(r)), reader)) return false;
    return v == r || is_later(graph_.node(producer(v)), reader);
  }
  static bool is_later(const Node& made, const Node& reader) {
    return made.phase != reader.phase || made.region != reader.region;
  }

  // Fetched, once for each phase of a block, and looked at as by the views between.
  Value brought(Value v, const Node& reader) {
    const auto key = std::tuple(v, reader.region, reader.phase);
    if (const auto known = brought_.find(key); known != brought_.end()) return known->second;
    if (!is_view(v)) return brought_[key] = moved("fetch", there_[v], graph_.value(v).name, reader);
    Node view = graph_.node(producer(v));
    view.name = out_.unique_name(cat(view.name, ".again"));
    view.inputs[0] = brought(view.inputs[0], reader);
    view.outputs.clear();
    view.phase = reader.phase;
    view.region = reader.region;
    return brought_[key] = out_.node(out_.add_node(std::move(view), {graph_.type(v)})).outputs[0];
  }

  // A sum over micro-batches is there when their loop has ended.
  Value evicted(Value v, const Node& made, MemoryKind memory) {
    const TransferRow* transfer = transfer_of(made.op->name);
    Node beside = made;
    const auto blocks = static_cast<int>(std::ssize(local_.blocks));
    if (transfer && transfer->at_last_iteration) {
      while (beside.region + 1 < blocks && block_loops(local_.blocks[beside.region].kind)) ++beside.region;
    }
    return moved("evict", now_[v], graph_.value(v).name, beside, {{"memory", std::string(memory_kind_name(memory))}});
  }

  Value moved(std::string_view op, Value v, const std::string& name, const Node& beside, Attributes attributes = {}) {
    Node node{.name = out_.unique_name(cat(name, ".", op)), .op = &op_named(op)};
    node.attributes = std::move(attributes);
    node.inputs = {v};
    node.phase = beside.phase;
    node.region = beside.region;
    return out_.node(out_.add_node(std::move(node), {out_.type(v)})).outputs[0];
  }

  // State that the caller gets leaves from where kernels compute.
  void bring_outputs() {
    Node reader;
    reader.region = local_.sample_block();
    for (const Graph::Output& output : graph_.outputs) {
      const Value v = output.value;
      if (!producer(root(v)) && is_away(root(v)) && v == root(v)) now_.set(v, brought(v, reader));
    }
  }

  LocalGraph& local_;
  const Graph graph_;
  Graph out_;
  GraphRewriter now_;
  ByValue<MemoryKind> memory_;   // in which it lies while nobody uses it
  ByValue<Value> there_;         // as it lies there
  ByValue<MemoryKind> changes_;  // of what becomes state there
  std::map<Value, Value> new_state_;
  std::map<std::tuple<Value, int32_t, Phase>, Value> brought_;
};

class FetchesAhead {
 public:
  FetchesAhead(const Graph& graph, const LocalGraph& local, const CostModel& cost)
      : graph_(graph),
        local_(local),
        cost_(cost),
        now_(graph, out_),
        live_(live_bytes(graph)),
        in_front_(graph.node_count()),
        done_(graph.node_count(), false) {}

  Graph run() {
    std::map<int32_t, std::vector<NodeId>> blocks;
    for (const NodeId n : graph_.node_ids()) blocks[graph_.node(n).region].push_back(n);
    for (const auto& [region, nodes] : blocks) place(nodes);
    for (const NodeId n : graph_.node_ids()) {
      for (const NodeId fetch : in_front_[n]) copy(fetch, graph_.node(n).phase);
      copy(n, graph_.node(n).phase);
    }
    now_.finish();
    return std::move(out_);
  }

 private:
  bool fetches(NodeId n) const { return is_fetch(graph_.node(n)); }
  // Of what computes.
  double seconds(NodeId n) const {
    const Node& node = graph_.node(n);
    return node.op->view || transfer_of(node.op->name) ? 0 : cost_.kernel(work_of(graph_, node));
  }
  MemoryKind memory_of(NodeId fetch) const {
    const ValueInfo& there = graph_.value(graph_.node(fetch).inputs[0]);
    if (!there.producer) return local_.home(there.name);
    const std::string& name = graph_.node(there.producer).attributes.text("memory");
    return *std::ranges::find(memory_kinds, name, memory_kind_name);
  }

  double copy_seconds(NodeId fetch) const {
    return cost_.launch() + cost_.other(memory_of(fetch), static_cast<double>(bytes(fetch)));
  }

  // Bytes that there may be while any node of a block runs: as many as there are at most if nothing comes ahead. What
  // one node fetches has to come while the one before it runs, if there is no other time for it.
  int64_t most_bytes(const std::vector<NodeId>& nodes, const std::vector<double>& begins,
                     const std::vector<int64_t>& there) const {
    int64_t most = *std::ranges::max_element(there), together = 0;
    double seconds = 0;  // of copies that wait for the next node that computes
    int before = -1;     // that has fetched
    for (int p = 0, first = 0; p < std::ssize(nodes); ++p) {
      if (fetches(nodes[p])) {
        if (together == 0) first = p;
        together += bytes(nodes[p]);
        seconds += copy_seconds(nodes[p]);
      } else if (together > 0 && begins[p + 1] > begins[p]) {
        if (before >= 0 && begins[first] - begins[before + 1] < seconds)
          most = std::max(most, there[before] + together);
        before = p;
        together = 0;
        seconds = 0;
      }
    }
    return most;
  }

  // Where the fetches of one block stand. From the last one to the first: each has to end when its node begins and when
  // the next one begins.
  void place(const std::vector<NodeId>& nodes) {
    const auto count = static_cast<int>(nodes.size());
    std::vector<double> begins(nodes.size() + 1, 0);
    std::map<NodeId, int> position;
    std::vector<int64_t> there;  // bytes while each node runs, with what has come ahead
    for (int p = 0; p < count; ++p) {
      begins[p + 1] = begins[p] + seconds(nodes[p]);
      position[nodes[p]] = p;
      there.push_back(live_[nodes[p]]);
    }
    const int64_t most = most_bytes(nodes, begins, there);
    double free = begins[count];  // when the stream has to be done with what it brings
    for (int p = count; p-- > 0;) {
      if (!fetches(nodes[p])) continue;
      free = std::min(free, begins[p]) - copy_seconds(nodes[p]);
      int earliest = 0;
      if (const NodeId made = graph_.value(graph_.node(nodes[p]).inputs[0]).producer; position.contains(made))
        earliest = position.at(made) + 1;
      int at = p;
      int64_t between = 0;  // that other fetches bring, which come before this one
      while (at > earliest && begins[at] > free && there[at - 1] + between + bytes(nodes[p]) <= most) {
        --at;
        if (fetches(nodes[at])) between += bytes(nodes[at]);
      }
      while (at < p && fetches(nodes[at])) ++at;  // in front of what computes
      if (at == p) continue;
      in_front_[nodes[at]].insert(in_front_[nodes[at]].begin(), nodes[p]);
      for (int meanwhile = at; meanwhile < p; ++meanwhile) there[meanwhile] += bytes(nodes[p]);
    }
  }
  int64_t bytes(NodeId fetch) const { return graph_.type(graph_.node(fetch).inputs[0]).bytes(); }

  // What has been placed earlier is of the phase there, so that the state does not begin to change with it.
  void copy(NodeId n, Phase phase) {
    if (done_[n]) return;
    done_[n] = true;
    const NodeId made = now_.copy(n);
    if (fetches(n)) out_.node(made).phase = std::min(graph_.node(n).phase, phase);
  }

  const Graph& graph_;
  const LocalGraph& local_;
  const CostModel& cost_;
  Graph out_;
  GraphRewriter now_;
  const ByNode<int64_t> live_;
  ByNode<std::vector<NodeId>> in_front_;  // of a node: fetches that stand there
  ByNode<bool> done_;
};

}  // namespace

void write_moves(LocalGraph& local, const std::vector<StateHome>& results) { MoveWriter(local, results).run(); }

bool is_fetch(const Node& node) {
  const TransferRow* transfer = transfer_of(node.op->name);
  return transfer && transfer->fetches;
}

Graph with_fetches_ahead(const Graph& graph, const LocalGraph& local, const CostModel& cost) {
  return FetchesAhead(graph, local, cost).run();
}

}  // namespace epl
