// schedule: when each node runs. With one micro-batch everything runs in the order of the graph, updates last. With
// several, nodes that work on samples loop; nodes that do not run once, before or after the loop, but for those that
// prepare weights for the loop. A value summed over
// the batch is complete after its loop, so a sample node may only use one that an earlier, cheap loop can give: one
// that depends on inputs alone (a count of valid targets). Anything else couples the micro-batches: it is named, and
// the batch is not cut in time (decide). Where each micro-batch is independent, all that depends on samples is in
// the loop, and what comes behind it takes the mean over micro-batches.
#include <algorithm>
#include <utility>

#include "core/ir/op.h"
#include "core/strategy/linear.h"
#include "core/strategy/pass.h"
#include "core/strategy/pipeline.h"

namespace epl {
namespace {

class Scheduling {
 public:
  explicit Scheduling(Plan& plan)
      : plan_(plan), graph_(*plan.graph), pre_(graph_.node_count(), false), mid_(graph_.node_count(), false) {}

  Status run() {
    plan_.node_cloned.assign(graph_.node_count(), false);
    plan_.node_block.assign(graph_.node_count(), BlockKind::main);
    if (plan_.micro_batches() == 1) {
      for (const NodeId n : graph_.node_ids()) {
        if (node(n).phase == Phase::update) plan_.node_block[n] = BlockKind::post;
      }
    } else if (plan_.independent_micro_batches) {
      loop_independent();
    } else {
      EPL_TRY(loop());
    }
    use_weights_in_loop();
    const PipelineRow* row = stages() == 1 ? &one_stage() : find_pipeline(plan_.strategy.text("pipeline.strategy"));
    if (!row)
      return unsupported("this version has no pipeline schedule ", quoted(plan_.strategy.text("pipeline.strategy")));
    if (stages() > 1) separate_forward_and_backward();
    if (stages() > plan_.virtual_devices() || row->has_weight_blocks) look_at_the_end();
    if (row->has_weight_blocks) make_weight_blocks();
    return write_calls(*row);
  }

 private:
  const Node& node(NodeId n) const { return graph_.node(n); }
  int stages() const { return plan_.stages(); }
  bool cut(NodeId n) const { return plan_.node_shardings[n].cut_by(batch_axis); }
  NodeId producer(Value v) const { return graph_.value(v).producer; }

  Status loop() {
    find_dependence();
    for (const NodeId n : graph_.node_ids()) {
      if (!cut(n)) continue;
      for (Value v : node(n).inputs) {
        if (v && uncut(v) && after_sum_[v]) EPL_TRY(bring_forward(v, n));
      }
    }
    for (const NodeId n : graph_.node_ids()) {
      BlockKind& block = plan_.node_block[n];
      if (cut(n)) {
        block = pre_[n] ? BlockKind::pre : BlockKind::main;
      } else if (mid_[n]) {
        block = BlockKind::mid;
      } else {
        bool late = node(n).phase == Phase::update;
        for (Value v : node(n).inputs) late = late || (v && after_sum_[v]);
        block = late ? BlockKind::post : BlockKind::once;
      }
    }
    // What the first loop computed and the main loop needs again is computed again: it depends on inputs alone.
    for (const NodeId n : graph_.node_ids().reversed()) {
      if (!cut(n)) continue;
      bool in_main = plan_.node_block[n] == BlockKind::main || plan_.node_cloned[n];
      if (!in_main) continue;
      for (Value v : node(n).inputs) {
        if (v && producer(v) && pre_[producer(v)] && !uncut(v)) plan_.node_cloned[producer(v)] = true;
      }
    }
    return {};
  }

  // Each micro-batch has what depends on its samples or draws, up to what the update takes.
  void loop_independent() {
    ByValue<bool> own(graph_.value_count());
    for (Value v : graph_.leaves(ValueKind::input)) own[v] = true;
    for (const NodeId n : graph_.node_ids()) {
      bool in_loop = node(n).op->random, behind = node(n).phase == Phase::update || node(n).op->takes_any_operands;
      for (Value v : node(n).inputs) {
        in_loop = in_loop || (v && own[v]);
        behind = behind || (v && producer(v) && plan_.node_block[producer(v)] == BlockKind::post);
      }
      for (Value v : node(n).outputs) {
        if (v) own[v] = in_loop;
      }
      plan_.node_block[n] = behind ? BlockKind::post : in_loop ? BlockKind::main : BlockKind::once;
    }
    // What only adds and moves gradients of weights may as well take their means, which it does once.
    const auto users = graph_.users();
    for (const NodeId n : graph_.node_ids().reversed()) {
      const auto is_late = [&](Value v) {
        return uncut(v) && !users[v].empty() &&
               std::ranges::all_of(users[v], [&](NodeId user) { return plan_.node_block[user] == BlockKind::post; });
      };
      if (plan_.node_block[n] == BlockKind::main && node(n).phase == Phase::backward &&
          std::ranges::all_of(node(n).outputs, is_late) &&
          std::ranges::all_of(node(n).inputs, [&](Value v) { return v && uncut(v); }) &&
          adds_and_moves(graph_, node(n)))
        plan_.node_block[n] = BlockKind::post;
    }
  }

  // What only moves or casts weights is done for each micro-batch, where nobody else takes it: a result of `once` stays
  // for the whole step, and in full where ranks store shards of the weight.
  void use_weights_in_loop() {
    const auto users = graph_.users();
    ByValue<bool> given(graph_.value_count(), false);
    for (const Graph::Output& output : graph_.outputs) given[output.value] = true;
    for (const Graph::Update& update : graph_.updates) given[update.next] = true;
    ByNode<bool> moved(graph_.node_count(), false);
    for (const NodeId n : graph_.node_ids())
      moved[n] = plan_.node_block[n] == BlockKind::once && moves_weights(n, moved);
    const auto is_beside = [&](NodeId n, NodeId user) {
      const bool looped = moved[user] || (plan_.node_block[user] == BlockKind::main && !plan_.node_cloned[user]);
      return looped && plan_.node_task_graph[user] == plan_.node_task_graph[n] &&
             (stages() == 1 || node(user).phase == node(n).phase);  // which are two calls
    };
    const auto may = [&](NodeId n) {
      const NodeId like = plan_.node_representative.empty() ? NodeId{} : plan_.node_representative[n];
      return (!like || moved[like]) && std::ranges::all_of(node(n).outputs, [&](Value v) {
               return !v ||
                      (!given[v] && std::ranges::all_of(users[v], [&](NodeId user) { return is_beside(n, user); }));
             });
    };
    for (bool changed = true; std::exchange(changed, false);) {
      for (const NodeId n : graph_.node_ids().reversed()) {
        if (!moved[n] || may(n)) continue;
        moved[n] = false;
        changed = true;
        if (!plan_.node_representative.empty() && plan_.node_representative[n])
          moved[plan_.node_representative[n]] = false;
      }
    }
    for (const NodeId n : graph_.node_ids()) {
      if (moved[n]) plan_.node_block[n] = BlockKind::main;
    }
  }

  bool moves_weights(NodeId n, const ByNode<bool>& before) const {
    const bool moves = node(n).op->view || node(n).op->moves != Moves::none;
    return moves && !node(n).inputs.empty() && std::ranges::all_of(node(n).inputs, [&](Value v) {
             return v && (is_state(graph_.value(v).kind) || (producer(v) && before[producer(v)]));
           });
  }

  // An uncut value is the same for all micro-batches, or a sum over them.
  bool uncut(Value v) const { return plan_.shardings[v].cut_dim(batch_axis) < 0; }

  void find_dependence() {
    after_sum_.assign(graph_.value_count(), false);
    on_weights_.assign(graph_.value_count(), false);
    for (const Value v : graph_.value_ids()) on_weights_[v] = is_state(graph_.value(v).kind);
    for (const NodeId n : graph_.node_ids()) {
      bool after = false, on_weights = node(n).op->random;
      for (Value v : node(n).inputs) {
        after = after || (v && after_sum_[v]);
        on_weights = on_weights || (v && on_weights_[v]);
      }
      const OperandShardings operands = operand_shardings(plan_, n);
      for (size_t o = 0; o < node(n).outputs.size(); ++o) {
        const Value v = node(n).outputs[o];
        if (!v) continue;
        after_sum_[v] = after || !operands.outputs[o].partial.empty();
        on_weights_[v] = on_weights;
      }
    }
  }

  Status bring_forward(Value v, NodeId user) {
    const NodeId n = producer(v);
    if (!n || pre_[n] || mid_[n]) return {};
    if (cut(n)) {
      bool nested = false, on_weights = node(n).op->random;
      for (Value in : node(n).inputs) {
        nested = nested || (in && after_sum_[in]);
        on_weights = on_weights || (in && on_weights_[in]);
      }
      if (nested || on_weights) {
        plan_.coupled = cat("node ", node(n).name, " (", node(n).op->name, ") sums over the full batch and node ",
                            node(user).name, " uses the result for each sample");
        return several_micro_batches(plan_, node(n));
      }
      pre_[n] = true;
      for (Value in : node(n).inputs) {
        if (in && producer(in) && cut(producer(in))) EPL_TRY(bring_forward(in, user));
      }
      return {};
    }
    if (after_sum_[v]) mid_[n] = true;
    for (Value in : node(n).inputs) {
      if (in && after_sum_[in]) EPL_TRY(bring_forward(in, user));
    }
    return {};
  }

  void separate_forward_and_backward() {
    for (const NodeId n : graph_.node_ids()) {
      if (plan_.node_block[n] != BlockKind::main) continue;
      plan_.node_block[n] = node(n).phase == Phase::forward ? BlockKind::forward : BlockKind::backward;
    }
  }

  // What looks at all gradients of a rank does so when all its blocks have given them.
  void look_at_the_end() {
    for (const NodeId n : graph_.node_ids()) {
      if (plan_.node_task_graph[n] == every_task_graph) plan_.node_block[n] = BlockKind::post;
    }
  }

  // Of the backward pass, what sums over the batch and leads to nothing but such sums and the update.
  void make_weight_blocks() {
    const auto users = graph_.users();
    // What goes on to another stage may end in `post`, where each micro-batch's own is no longer there.
    const auto can_wait = [&](Value v) {
      return !v || (uncut(v) && std::ranges::all_of(users[v], [&](NodeId user) {
                      const BlockKind block = plan_.node_block[user];
                      const bool leaves =
                          plan_.independent_micro_batches && plan_.node_task_graph[user] != plan_.value_task_graph[v];
                      return block == BlockKind::post || (block == BlockKind::weight && !leaves);
                    }));
    };
    for (const NodeId n : graph_.node_ids().reversed()) {
      BlockKind& block = plan_.node_block[n];
      if (block == BlockKind::backward && std::ranges::all_of(node(n).outputs, can_wait)) block = BlockKind::weight;
    }
    // Those that stages add up, which have no order between them, are complete when the step ends.
    for (const NodeId n : graph_.node_ids()) {
      if (plan_.node_block[n] == BlockKind::weight &&
          std::ranges::any_of(node(n).inputs, [&](Value v) { return v && gives_late(producer(v), n); }))
        plan_.node_block[n] = BlockKind::post;
    }
  }

  bool gives_late(NodeId n, NodeId user) const {
    if (!n) return false;
    const BlockKind block = plan_.node_block[n];
    return block == BlockKind::post ||
           (block == BlockKind::weight && plan_.node_task_graph[n] != plan_.node_task_graph[user]);
  }

  // The calls of the pipeline's row, and around them what is done once in a step, where there is any; `post` always,
  // for the reductions over ranks that are put there.
  Status write_calls(const PipelineRow& row) {
    const PipelineShape shape{.virtual_devices = plan_.virtual_devices(),
                              .chunks = stages() / plan_.virtual_devices(),
                              .micro_batches = plan_.micro_batches()};
    // There may be fewer micro-batches than the strategy asks for.
    const std::string why = row.refusal ? row.refusal(shape) : std::string();
    if (!why.empty()) {
      plan_.notes.push_back(cat("the schedule ", plan_.strategy.text("pipeline.strategy"), " ", why,
                                "; so ranks go through their stages one after another"));
    }
    plan_.calls.clear();
    for (int c = 0; c < plan_.virtual_devices(); ++c) {
      std::vector<BlockCall>& calls = plan_.calls.emplace_back();
      const auto around = [&](BlockKind block) {
        for (int64_t m = 0; m < (block_loops(block) ? plan_.micro_batches() : 1); ++m) calls.push_back({0, block, m});
      };
      for (const BlockKind block : {BlockKind::once, BlockKind::pre, BlockKind::mid}) {
        if (used(block)) around(block);
      }
      const std::vector<BlockCall> of_row = why.empty() ? row.calls(shape, c) : stage_after_stage(row, shape, c);
      calls.insert(calls.end(), of_row.begin(), of_row.end());
      around(BlockKind::post);
    }
    return {};
  }

  // Whether there are nodes in a block; sums of `pre` are carried on in `mid`, and stages lend each other weights in
  // `once`.
  bool used(BlockKind block) const {
    if (plan_.virtual_devices() > 1 && block == BlockKind::once) return true;
    for (const NodeId n : graph_.node_ids()) {
      const BlockKind here = plan_.node_block[n];
      if (here == block || (here == BlockKind::pre && block == BlockKind::mid)) return true;
    }
    return false;
  }

  Plan& plan_;
  const Graph& graph_;
  ByNode<bool> pre_, mid_;
  ByValue<bool> after_sum_, on_weights_;
};

}  // namespace

EPL_PASS(schedule) {
  return {.doc = "puts every node into a block of the step and writes the table of calls",
          .run = [](PassContext& c) -> Status {
            const bool propagated = c.plan.shardings.size() == c.plan.graph->value_count();
            if (!propagated || c.plan.task_graphs.empty()) return invalid("it needs place and propagate before it");
            return Scheduling(c.plan).run();
          }};
}

}  // namespace epl
