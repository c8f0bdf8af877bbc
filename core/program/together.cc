#include "core/program/together.h"

#include <algorithm>
#include <map>

#include "core/ir/op.h"
#include "core/ir/rewriter.h"
#include "core/program/transfer.h"

namespace epl {
namespace {

// What keeps its operands in memory longer for less than this is free to wait.
constexpr int64_t small_bytes = 64;

class Together {
 public:
  Together(const Graph& graph, int64_t buckets) : graph_(graph), now_(graph, out_) {
    if (buckets > 0) find_bucket_bytes(buckets);
  }

  Graph run() {
    for (int n = 0; n < graph_.node_count(); ++n) {
      const Node& node = graph_.node(NodeId{n});
      if (n > 0 && (node.region != before(n).region || node.phase == Phase::update) && !same_region(node, before(n)))
        give_all();
      visit(n);
    }
    give_all();
    now_.finish();
    return std::move(out_);
  }
  Value now(Value old) const { return now_[old]; }

 private:
  // Collectives that go together.
  struct Group {
    const Node* first;
    std::vector<int> nodes;
    int64_t bytes = 0;  // of their operands
  };

  const Node& before(int n) const { return graph_.node(NodeId{n - 1}); }
  static bool same_region(const Node& a, const Node& b) {
    return a.region == b.region && (a.phase == Phase::update) == (b.phase == Phase::update);
  }

  void visit(int n) {
    const Node& node = graph_.node(NodeId{n});
    if (waits(node)) {
      waiting_.push_back(n);
      return;
    }
    for (Value v : node.inputs) need(v);
    const TransferRow* transfer = transfer_of(node.op->name);
    if (!transfer || !transfer->joins) {
      copy(n);
      return;
    }
    auto group = std::ranges::find_if(groups_, [&](const Group& g) { return alike(*g.first, node); });
    if (group == groups_.end()) group = groups_.insert(groups_.end(), Group{&node, {}});
    group->nodes.push_back(n);
    group->bytes += bytes_of(node);
    const auto bucket = bucket_bytes_.find(node.region);
    if (!transfer->scatters || bucket == bucket_bytes_.end() || group->bytes < bucket->second) return;
    give(group);
    copy_ready();
  }

  // What was waiting for a bucket alone.
  void copy_ready() {
    const auto ready = [&](int n) {
      return std::ranges::all_of(graph_.node(NodeId{n}).inputs, [&](Value v) { return !v || now_.has(v); });
    };
    for (auto n = waiting_.begin(); n != waiting_.end();) {
      if (!ready(*n)) {
        ++n;
        continue;
      }
      copy(*n);
      n = waiting_.erase(n);
    }
  }

  int64_t bytes_of(const Node& node) const {
    int64_t bytes = 0;
    for (Value v : node.inputs) bytes += v ? graph_.type(v).bytes() : 0;
    return bytes;
  }
  void find_bucket_bytes(int64_t buckets) {
    for (const Node& node : graph_.nodes()) {
      const TransferRow* transfer = transfer_of(node.op->name);
      if (transfer && transfer->joins && transfer->scatters) bucket_bytes_[node.region] += bytes_of(node);
    }
    for (auto& [region, bytes] : bucket_bytes_) bytes = (bytes + buckets - 1) / buckets;
  }

  static bool alike(const Node& a, const Node& b) {
    const auto same = [](const Attributes::Entry& x, const Attributes::Entry& y) {
      return x.name == y.name && identical(x.value, y.value);
    };
    return a.op == b.op && std::ranges::equal(a.attributes.entries(), b.attributes.entries(), same);
  }

  // Views and numbers of what is not there yet, and what is added to sums over micro-batches when its bucket is full.
  bool waits(const Node& node) const {
    const auto missing = [&](Value v) { return v && !now_.has(v); };
    if (node.outputs.empty() || std::ranges::none_of(node.inputs, missing)) return false;
    if (const TransferRow* transfer = transfer_of(node.op->name))
      return transfer->at_last_iteration && bucket_bytes_.contains(node.region);
    int64_t bytes = bytes_of(node);
    for (Value v : node.outputs) bytes += v ? graph_.type(v).bytes() : 0;
    return node.op->view || bytes <= small_bytes || widens(node);
  }

  // What brings back a sum of fewer bits (core/program/sum_moves.h): else each such sum would be a call of its own.
  bool widens(const Node& node) const {
    const Value first = node.inputs[0];
    const NodeId producer = first ? graph_.value(first).producer : NodeId();
    if (!producer || now_.has(first)) return false;
    if (node.op->moves == Moves::converted) return graph_.type(node.outputs[0]).bytes() > graph_.type(first).bytes();
    const auto is_number = [&](Value v) { return v == first || (v && graph_.type(v).elements() == 1); };
    return node.op->elementwise() && graph_.node(producer).op->moves == Moves::converted &&
           std::ranges::count(waiting_, producer.index) > 0 && std::ranges::all_of(node.inputs, is_number);
  }

  void need(Value v) {
    if (!v || now_.has(v)) return;
    const int producer = graph_.value(v).producer.index;
    const auto waiting = std::ranges::find(waiting_, producer);
    if (waiting == waiting_.end()) {
      give(std::ranges::find_if(groups_, [&](const Group& g) { return std::ranges::count(g.nodes, producer) > 0; }));
      return;
    }
    waiting_.erase(waiting);
    for (Value input : graph_.node(NodeId{producer}).inputs) need(input);
    copy(producer);
  }

  void copy(int n) { follow(now_.copy(NodeId{n})); }
  // A node is of no earlier phase than its operands: sums of the forward pass may have waited for gradients.
  void follow(NodeId made) {
    Node& node = out_.node(made);
    for (Value v : node.inputs) {
      const NodeId producer = v ? out_.value(v).producer : NodeId();
      if (producer) node.phase = std::max(node.phase, out_.node(producer).phase);
    }
  }

  void give(std::vector<Group>::iterator found) {
    const Group group = std::move(*found);
    groups_.erase(found);
    Node node = *group.first;
    node.inputs.clear();
    std::vector<TensorType> types;
    std::vector<std::string> names;
    std::vector<Value> results;
    for (int n : group.nodes) {
      const Node& one = graph_.node(NodeId{n});
      node.inputs.push_back(now_[one.inputs[0]]);
      results.push_back(one.outputs[0]);
      types.push_back(graph_.type(one.outputs[0]));
      names.push_back(graph_.value(one.outputs[0]).name);
    }
    const NodeId made = out_.add_node(std::move(node), std::move(types), std::move(names));
    follow(made);
    for (size_t i = 0; i < results.size(); ++i) now_.set(results[i], out_.node(made).outputs[i]);
  }

  void give_all() {
    while (!groups_.empty()) give(groups_.begin());
    while (!waiting_.empty()) need(graph_.node(NodeId{waiting_.front()}).outputs[0]);
  }

  const Graph& graph_;
  Graph out_;
  GraphRewriter now_;
  std::map<int, int64_t> bucket_bytes_;  // by region, where there are buckets: of a full one
  std::vector<Group> groups_;
  std::vector<int> waiting_;
};

}  // namespace

void join_collectives(LocalGraph& local, int64_t buckets) {
  Together together(local.graph, buckets);
  Graph joined = together.run();
  for (LocalPort& port : local.inputs) port.value = together.now(port.value);
  for (LocalPort& port : local.outputs) port.value = together.now(port.value);
  local.graph = std::move(joined);
}

}  // namespace epl
