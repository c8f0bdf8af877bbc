#include "core/strategy/recompute_stage.h"

#include <algorithm>

#include "core/ir/op.h"
#include "core/strategy/node_cost.h"

namespace epl {

bool in_forward_pass(const Plan& plan, NodeId n) {
  const BlockKind block = plan.node_block[n];
  return plan.node_task_graph[n] != every_task_graph && plan.graph->node(n).phase == Phase::forward &&
         (block == BlockKind::main || block == BlockKind::forward);
}

bool in_backward_pass(const Plan& plan, NodeId n) {
  const BlockKind block = plan.node_block[n];
  return plan.node_task_graph[n] != every_task_graph && plan.graph->node(n).phase == Phase::backward &&
         (block == BlockKind::main || block == BlockKind::backward || block == BlockKind::weight);
}

int stage_of(const Plan& plan, NodeId n) { return plan.task_graphs[plan.node_task_graph[n]].stage; }

int virtual_device_of_stage(const Plan& plan, int stage) {
  return std::ranges::find(plan.task_graphs, stage, &TaskGraph::stage)->virtual_device;
}

double micro_batches_in_flight(const Plan& plan, int stage) {
  int64_t most = 1, now = 0;
  for (const BlockCall& call : plan.calls[virtual_device_of_stage(plan, stage)]) {
    if (call.stage != stage) continue;
    if (call.block == BlockKind::forward) most = std::max(most, ++now);
    if (call.block == BlockKind::backward) --now;
  }
  return static_cast<double>(most);
}

Value viewed(const Graph& graph, Value v) {
  while (v && graph.value(v).producer && graph.node(graph.value(v).producer).op->view)
    v = graph.node(graph.value(v).producer).inputs[0];
  return v;
}

double result_bytes(const Plan& plan, Value v) {
  const NodeId producer = plan.graph->value(v).producer;
  return local_bytes(plan, plan.node_task_graph[producer], plan.graph->type(v), plan.shardings[v]);
}

ByNode<bool> nodes_that_may(const Plan& plan) {
  const Graph& graph = *plan.graph;
  ByNode<bool> may(graph.node_count(), false);
  ByValue<bool> given(graph.value_count());
  for (const Graph::Output& output : graph.outputs) given[output.value] = true;
  for (const Graph::Update& update : graph.updates) given[update.next] = true;
  const int64_t last = plan.strategy.integer("gradient_checkpoint.end_taskgraph");
  for (const NodeId n : graph.node_ids()) {
    const Node& node = graph.node(n);
    if (!in_forward_pass(plan, n) || (last >= 0 && plan.node_task_graph[n] > last)) continue;
    // An op of the host is called once in a step.
    if (op_table().find(node.op->name) != node.op || plan.node_shardings[n].rank_local) continue;
    const OperandShardings operands = operand_shardings(plan, n);
    bool complete = operands.added_later < 0;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const Value v = node.outputs[o];
      // A mean over micro-batches is taken of what the first run has given.
      const bool mean = v && plan.alone(v) && plan.shardings[v].cut_dim(batch_axis) < 0;
      complete = complete && operands.outputs[o].partial.empty() && !(v && given[v]) && !mean;
    }
    may[n] = complete;
  }
  return may;
}

namespace {

class StageProblemMaker {
 public:
  StageProblemMaker(const Plan& plan, const CostModel& cost, int stage, const ByNode<bool>& may)
      : plan_(plan),
        graph_(*plan.graph),
        cost_(cost),
        stage_(stage),
        may_(may),
        number_(graph_.value_count(), -1),
        last_step_(graph_.value_count(), -1) {}

  StageProblem run() {
    for (const NodeId n : graph_.node_ids()) {
      if (in_forward_pass(plan_, n) && stage_of(plan_, n) == stage_) add_node(n);
    }
    for (const bool weights : {false, true}) {
      for (const NodeId n : graph_.node_ids()) {
        if (in_backward_pass(plan_, n) && stage_of(plan_, n) == stage_ && !graph_.node(n).op->view &&
            weights == (plan_.node_block[n] == BlockKind::weight))
          steps_.push_back(n);
      }
    }
    add_steps();
    out_.problem.in_flight = micro_batches_in_flight(plan_, stage_);
    out_.problem.always += state();
    return std::move(out_);
  }

 private:
  std::vector<int> numbers(const std::vector<Value>& values) const {
    std::vector<int> out;
    for (Value v : values) {
      v = viewed(graph_, v);
      if (v && number_[v] >= 0 && std::ranges::find(out, number_[v]) == out.end()) out.push_back(number_[v]);
    }
    return out;
  }

  void add_node(NodeId n) {
    const Node& node = graph_.node(n);
    if (node.op->view) {
      // What looks at a result that is made once is made once as well.
      const Value v = viewed(graph_, node.outputs[0]);
      const NodeId from = v ? graph_.value(v).producer : NodeId{};
      const auto at = std::ranges::find(out_.nodes, from);
      if (!may_[n] && at != out_.nodes.end()) out_.problem.nodes[at - out_.nodes.begin()].may = false;
      return;
    }
    RecomputeProblem::Node made{.may = may_[n], .inputs = numbers(node.inputs), .outputs = {}};
    made.seconds = node_seconds(cost_, plan_, n, plan_.node_shardings[n]);
    for (Value v : node.outputs) {
      if (!v) continue;
      number_[v] = static_cast<int>(out_.problem.bytes.size());
      made.outputs.push_back(number_[v]);
      out_.problem.bytes.push_back(result_bytes(plan_, v));
    }
    out_.nodes.push_back(n);
    out_.problem.nodes.push_back(std::move(made));
  }

  // What the backward pass makes is there from its step to its last use, or to the end where the update takes it. The
  // sums over several micro-batches are always there.
  void add_steps() {
    for (int s = 0; s < std::ssize(steps_); ++s) {
      for (Value v : graph_.node(steps_[s]).inputs) {
        if (const Value root = viewed(graph_, v)) last_step_[root] = s;
      }
    }
    const ByValue<bool> later = used_later();
    std::vector<double> change(steps_.size() + 1, 0);
    for (int s = 0; s < std::ssize(steps_); ++s) {
      for (Value v : graph_.node(steps_[s]).outputs) {
        if (!v) continue;
        const double bytes = result_bytes(plan_, v);
        if (later[v] && plan_.micro_batches() > 1) out_.problem.always += bytes;
        const int last =
            later[v] && plan_.micro_batches() == 1 ? static_cast<int>(steps_.size()) - 1 : std::max(last_step_[v], s);
        change[s] += bytes;
        change[last + 1] -= bytes;
      }
    }
    for (int s = 0; s < std::ssize(steps_); ++s) {
      const double bytes = written_over(s, later);
      change[s] -= bytes;
      change[s + 1] += bytes;
    }
    double now = 0;
    for (size_t s = 0; s < steps_.size(); ++s) {
      now += change[s];
      out_.problem.steps.push_back({now, numbers(graph_.node(steps_[s]).inputs)});
    }
  }

  // Bytes of the results of a step that it may write over what nobody takes behind it.
  double written_over(int s, const ByValue<bool>& later) const {
    const Node& node = graph_.node(steps_[s]);
    std::vector<bool> taken(node.inputs.size(), false);
    double bytes = 0;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (!node.outputs[o]) continue;
      const double needs = result_bytes(plan_, node.outputs[o]);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const bool may = node.op->elementwise() || (o == 0 && static_cast<int>(i) == node.op->written_over);
        const Value root = viewed(graph_, node.inputs[i]);
        const NodeId from = root ? graph_.value(root).producer : NodeId{};
        const bool dies =
            from && plan_.node_task_graph[from] != every_task_graph && last_step_[root] == s && !later[root];
        if (!may || taken[i] || !dies) continue;
        if (result_bytes(plan_, root) != needs || std::ranges::count(node.inputs, node.inputs[i]) != 1) continue;
        taken[i] = true;
        bytes += needs;
        break;
      }
    }
    return bytes;
  }

  ByValue<bool> used_later() const {
    ByValue<bool> later(graph_.value_count(), false);
    const auto use = [&](Value v) {
      if (const Value root = viewed(graph_, v)) later[root] = true;
    };
    for (const NodeId n : graph_.node_ids()) {
      if (graph_.node(n).phase == Phase::update || plan_.node_block[n] == BlockKind::post)
        for (Value v : graph_.node(n).inputs) use(v);
    }
    for (const Graph::Output& output : graph_.outputs) use(output.value);
    for (const Graph::Update& update : graph_.updates) use(update.next);
    return later;
  }

  double state() const {
    double bytes = 0;
    const int device = virtual_device_of_stage(plan_, stage_);
    for (const Value v : graph_.value_ids()) {
      const int at = std::max(plan_.value_task_graph[v], 0);
      if (is_state(graph_.value(v).kind) && plan_.virtual_device_of(at) == device)
        bytes += local_bytes(plan_, at, graph_.type(v), plan_.shardings[v]);
    }
    return bytes;
  }

  const Plan& plan_;
  const Graph& graph_;
  const CostModel& cost_;
  const int stage_;
  const ByNode<bool>& may_;
  ByValue<int> number_, last_step_;
  std::vector<NodeId> steps_;
  StageProblem out_;
};

}  // namespace

StageProblem stage_problem(const Plan& plan, const CostModel& cost, int stage, const ByNode<bool>& may) {
  return StageProblemMaker(plan, cost, stage, may).run();
}

double bytes_of_stage(const Plan& plan, const RecomputeProblem& problem, int stage, double bytes) {
  const auto stages = static_cast<double>(plan.stages_of(virtual_device_of_stage(plan, stage)).size());
  return problem.always + (bytes - problem.always) / stages;
}

RecomputeRange recompute_range(const Plan& plan, const CostModel& cost, SolvedRecompute& solved) {
  RecomputeRange range;
  const ByNode<bool> may = nodes_that_may(plan);
  for (int s = 0; s < plan.stages(); ++s) {
    const StageProblem made = stage_problem(plan, cost, s, may);
    const auto stages = static_cast<double>(plan.stages_of(virtual_device_of_stage(plan, s)).size());
    const auto of_device = [&](double bytes) { return made.problem.always + (bytes - made.problem.always) * stages; };
    range.most = std::max(range.most, of_device(solved.most(made.problem)));
    range.least = std::max(range.least, of_device(solved.least(made.problem).peak));
  }
  return range;
}

}  // namespace epl
