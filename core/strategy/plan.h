// What the passes decide, beside the graph: shapes in the graph stay global. `partition` (core/program) is the one
// rewrite that acts on a plan.
//
// The batch is an axis of U units. It is cut over ranks (mesh axis "data"), over time (mesh axis "micro_batch"), and
// inside a kernel (mesh axis "unit"): U = data * micro_batch * unit, the last a power of two. BatchLayout has the order
// of the axes. Sums over the batch run over the units of a kernel, and then over the other axes, the last one first:
// one binary tree, whatever the cut, unless BatchAxes::keep_the_tree says no, which level run alone allows. TaskGraphs
// of different degrees of data parallelism have more axes of ranks ("data2", ...); one that uses fewer of them has
// several runs of units in each call instead, which it sums separately (BatchLayout::runs). TaskGraphs of one virtual
// device share its mesh and may give its axes other roles: what goes from one to another is resharded.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/backend/machine.h"
#include "core/ir/graph.h"
#include "core/strategy/batch_cut.h"
#include "core/strategy/batch_layout.h"
#include "core/strategy/block.h"
#include "core/strategy/sharding.h"
#include "core/strategy/strategy.h"
#include "core/strategy/sum_form.h"

namespace epl {

// The nodes of one scope.
struct TaskGraph {
  std::string scope;
  int virtual_device = 0;  // of the ranks that run them, in Plan::meshes
  int stage = 0;           // of the pipeline; TaskGraphs of one virtual device and one stage run in the same calls
  int nodes = 0;
  std::vector<int> split = {};    // axes of the mesh over which nodes are cut otherwise than by the batch
  std::vector<int> experts = {};  // those of `split` that cut dimensions that count experts, and nothing else
  // How it cuts the batch: all do it in one order. Empty: over the three axes of the batch, ranks first.
  BatchLayout batch = {};
  // Where the user wants values of its nodes to be cut over `split`; the first that names a value counts.
  std::vector<DimPin> pins = {};
};

// In Plan::node_task_graph: each virtual device runs the node on those operands that are its own
// (OpDef::takes_any_operands).
inline constexpr int every_task_graph = -1;

struct Plan {
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<const NodeRules> rules;  // of the graph
  Strategy strategy;
  std::vector<Mesh>
      meshes;  // by virtual device, whose ranks share a program; they have the same axes, of the same kinds
  std::vector<TaskGraph> task_graphs;
  std::vector<std::vector<BlockCall>> calls;  // by virtual device: what each of its ranks does in a step
  ByValue<Sharding> shardings;                // as it is stored; what its producer gives is brought there at once
  ByNode<NodeSharding> node_shardings;
  ByNode<int> node_task_graph;
  ByValue<SumForm> sum_forms;     // how a sum over the batch is added up; empty: all are plain
  ByValue<int> value_task_graph;  // where it is made; of a leaf, where it is used first
  ByNode<BlockKind> node_block;
  ByNode<bool> node_recomputed;  // computed again for the backward pass, which keeps no result; empty: none is
  // In which memory a value lies while nobody uses it: state for good, a result between the phases that use it. Empty:
  // all lie where kernels compute.
  ByValue<MemoryKind> value_memory;
  ByNode<bool> node_cloned;  // also computed in `pre` (again in main or forward)
  // Of what is rank-local (RankLocal), that which has the lowest shard of those that ranks have or run in one another's
  // place. No id: it is not rank-local; empty: nothing is.
  ByNode<NodeId> node_representative;
  ByValue<Value> value_representative;
  int64_t batch = 0;  // samples of the global batch, 0 when no input has any
  // Each micro-batch is independent (batch.semantics = per_micro_batch). The graph is that of one, which ranks and
  // units cut, and the micro-batches of the global batch come one after another. What is behind their loop takes the
  // mean over them of what each has given.
  bool independent_micro_batches = false;
  // What looks at all samples together, so that several micro-batches would change the answer: then there is one.
  // Empty: nothing does.
  std::string coupled;
  std::string passes;              // the pass list that made this plan
  std::vector<std::string> notes;  // why: one sentence for each decision that a user may wonder about
  ByNode<std::string> why;         // why it is where it is, and cut as it is; not part of the text form

  const ExtendedRule& rule(NodeId n) const { return rules->extended[n]; }
  SumForm sum_form(Value v) const { return sum_forms.empty() ? SumForm() : sum_forms[v]; }
  // The first mesh, for what is the same in all.
  const Mesh& mesh() const { return meshes.front(); }
  const Mesh& mesh(int task_graph) const { return meshes[virtual_device_of(task_graph)]; }
  int virtual_devices() const { return static_cast<int>(meshes.size()); }
  int virtual_device_of(int task_graph) const { return task_graphs[task_graph].virtual_device; }
  int virtual_device_of(Value v) const { return virtual_device_of(value_task_graph[v]); }
  int virtual_device_of_rank(int rank) const;
  std::string virtual_device_name(int virtual_device) const;  // the scopes of its TaskGraphs
  std::vector<int> stages_of(int virtual_device) const;
  int stages() const;  // of all virtual devices
  // Where a virtual device runs a node, which is its own or every TaskGraph's.
  BlockId block_of(NodeId node, int virtual_device) const;
  // How a TaskGraph cuts the batch of the graph.
  BatchLayout batch_of(int task_graph) const;
  // The same of the one that cuts it most, of a virtual device: its ports, and what draws random numbers on its ranks,
  // are cut so.
  BatchLayout batch_of_virtual_device(int virtual_device) const;
  // Cuts of a dimension of the graph that counts samples, `outer` times over, in the same dimension of all samples.
  Cuts in_global_batch(Cuts cuts, int64_t outer = 1) const;
  // The type of an input or output as the caller has it: of all samples.
  TensorType global_type(Value v) const;
  int64_t units() const { return batch_of(0).units(mesh()); }
  int64_t micro_batches() const { return mesh().size(micro_batch_axis); }
  int64_t ranks() const;  // of the job
  // All ranks share each micro-batch: what a rank has of the batch is no run of samples.
  bool shares_micro_batches() const { return independent_micro_batches || batch_of(0).time_first(mesh()); }
  // Each micro-batch is independent and is one sample, so that nothing looks at several.
  bool single_samples() const { return independent_micro_batches && batch == micro_batches(); }
  // Each micro-batch has its own.
  bool alone(Value v) const;
  // What stands for a value on every rank: itself, or what ranks have in its place.
  Value representative_of(Value v) const;
  // Adds a sentence to `why`.
  void explain(NodeId node, const std::string& sentence);
};

// A value that another virtual device needs than the one that makes or, of state, holds it. Inside a block all ranks
// come to all boundaries in the order of the whole graph, so no ranks wait for each other in a ring. Between blocks
// verify_order looks for rings.
struct Boundary {
  Value value;
  int from = 0, to = 0;    // virtual devices
  BlockId sent, received;  // blocks of the two, of one kind
  // At the head of these blocks: it is state, or complete when the loop before it has ended. Else right behind its
  // producer.
  bool late = false;
  friend bool operator==(const Boundary&, const Boundary&) = default;
};
// Of a step, in the order of values.
std::vector<Boundary> boundaries(const Plan& plan);
// Between two virtual devices values come in the order in which they are sent. Where virtual devices have several
// stages, whose calls come in other orders, this holds for each pair of blocks, which has a channel of its own; else
// the channel is 0.
int64_t channel_of(const Plan& plan, const std::vector<Boundary>& boundaries, const Boundary& boundary);
// Before a rank makes call `call` of its virtual device, what it gave in call `sent` to a channel has been taken.
struct SendWait {
  int call = 0, sent = 0;
  int to = 0;  // virtual device
  int64_t channel = 0;
  friend auto operator<=>(const SendWait&, const SendWait&) = default;
};
// By virtual device, in the order of calls: when memory may be written again that sends read. An error says which ranks
// would wait for each other in a ring.
Result<std::vector<std::vector<SendWait>>> send_waits(const Plan& plan, const std::vector<Boundary>& boundaries);
bool is_state(ValueKind kind);
// Fills value_task_graph from node_task_graph.
void find_value_task_graphs(Plan& plan);

// What a node takes and gives, by its rule and its sharding.
OperandShardings operand_shardings(const Plan& plan, NodeId node);
// What a pass may not leave behind.
Status verify_plan(const Plan& plan);
// That no ranks wait for each other in a ring.
Status verify_order(const Plan& plan);
std::string print_plan(const Plan& plan);
// Reads the decisions that print_plan wrote, for the same graph.
Result<Plan> parse_plan(std::string_view text, std::shared_ptr<const Graph> graph);

}  // namespace epl
