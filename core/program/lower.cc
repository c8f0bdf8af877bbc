#include <algorithm>

#include "core/base/check.h"
#include "core/ir/op.h"
#include "core/ir/rewriter.h"
#include "core/program/fusion.h"
#include "core/program/memory.h"
#include "core/program/program.h"
#include "core/program/reference_kernel.h"
#include "core/program/transfer.h"
#include "core/program/uploads.h"

namespace epl {
namespace {

using Space = Location::Space;

// Lowering in four steps: instructions in block order, lifetimes, sharing of memory in place, addresses.
class Lowering {
 public:
  Lowering(const LocalGraph& local, Graph graph, const LowerOptions& options)
      : local_(local),
        graph_(std::move(graph)),
        options_(options),
        root_(graph_.value_count()),
        place_(graph_.value_count()),
        first_(graph_.value_count(), -1),
        last_(graph_.value_count(), -1),
        storage_(graph_.value_count(), -1) {}

  Result<Program> run() {
    program_.name = graph_.name;
    program_.ranks = local_.ranks;
    program_.micro_batches = local_.micro_batches;
    program_.units = local_.units;
    program_.schedule = local_.schedule;
    place_leaves();
    find_views();
    EPL_TRY(write_instructions());
    find_lifetimes();
    place_updates();
    share_in_place();
    lay_out_arena();
    write_locations();
    return std::move(program_);
  }

 private:
  void place_leaves() {
    for (int i = 0; i < graph_.value_count(); ++i) {
      const ValueInfo& info = graph_.value(Value{i});
      Location& at = place_[i];
      switch (info.kind) {
        case ValueKind::result:
          break;
        case ValueKind::input:
          break;  // below, in the order of ports
        case ValueKind::parameter:
        case ValueKind::buffer:
        case ValueKind::state:
          at = {Space::state, 0, program_.state_bytes, 0};
          program_.state.push_back({info.name, info.kind, info.type, at.offset, info.data});
          program_.state_bytes += aligned_bytes(info.type.bytes());
          break;
        case ValueKind::constant:
          at = {Space::constant, 0, program_.constant_bytes, 0};
          program_.constants.push_back(info.data);
          program_.constant_offsets.push_back(at.offset);
          program_.constant_bytes += aligned_bytes(info.type.bytes());
          break;
        case ValueKind::scalar:
          at = {Space::scalar, 0, program_.scalar_bytes, 0};
          program_.scalars.emplace_back(info.name, at);
          program_.scalar_bytes += memory_alignment;
          break;
      }
    }
    for (const LocalPort& port : local_.inputs) {
      Value v = graph_.find(port.name);
      const TensorType& type = graph_.type(v);
      Location at{Space::input, static_cast<int32_t>(program_.inputs.size()), 0, port.dim == 0 ? type.bytes() : 0};
      place_[v.index] = at;
      program_.inputs.push_back({port.name, port.global_type, type, port.dim, port.outer, at});
    }
  }

  void find_views() {
    for (int i = 0; i < graph_.value_count(); ++i) {
      root_[i] = i;
      NodeId producer = graph_.value(Value{i}).producer;
      if (!producer) continue;
      const Node& node = graph_.node(producer);
      if (node.op->view && graph_.value(Value{i}).output == 0) root_[i] = root_[node.inputs[0].index];
    }
  }

  Status write_instructions() {
    for (BlockKind kind : all_blocks) {
      Block block{kind, static_cast<int>(program_.instructions.size()), 0};
      for (int n = 0; n < graph_.node_count(); ++n) {
        const Node& node = graph_.node(NodeId{n});
        if (local_.block(node) != kind || node.op->view) continue;
        if (node.phase == Phase::update && program_.commit_begin == 0) {
          program_.commit_begin = static_cast<int>(program_.instructions.size());
        }
        EPL_TRY(write_instruction(node));
        emit_outputs(node);
      }
      if (kind == BlockKind::main) emit_leaves();
      block.last = static_cast<int>(program_.instructions.size());
      program_.blocks.push_back(block);
    }
    if (program_.commit_begin == 0) program_.commit_begin = static_cast<int>(program_.instructions.size());
    program_.blocks.back().last = static_cast<int>(program_.instructions.size());
    return {};
  }

  // Outputs that are leaves or views of leaves: no node gives them, so the main block does, which sees every sample and
  // runs before any update. A step without work of its own gets that block for them.
  void emit_leaves() {
    bool any = false;
    for (size_t port = 0; port < local_.outputs.size(); ++port) {
      if (graph_.value(Value{root_[output_value(port).index]}).producer) continue;
      emit(static_cast<int>(port));
      any = true;
    }
    const auto runs = [](BlockKind kind) { return [kind](const Action& action) { return action.block == kind; }; };
    auto& schedule = program_.schedule;
    if (!any || std::ranges::any_of(schedule, runs(BlockKind::main))) return;
    auto at = std::ranges::find_if(schedule, runs(BlockKind::post));
    for (int64_t m = local_.micro_batches; m-- > 0;) at = schedule.insert(at, Action{BlockKind::main, m});
  }

  Value output_value(size_t port) const { return graph_.outputs[port].value; }

  // A result that the caller wants leaves right behind its producer, before the memory is used again.
  void emit_outputs(const Node& node) {
    for (size_t port = 0; port < local_.outputs.size(); ++port) {
      int root = root_[output_value(port).index];
      NodeId producer = graph_.value(Value{root}).producer;
      if (producer && &graph_.node(producer) == &node) emit(static_cast<int>(port));
    }
  }

  void emit(int port) {
    Instruction& in = append(&transfer_named("emit"), graph_.outputs[port].name);
    Value v = output_value(port);
    in.port = port;
    in.bytes = graph_.type(v).bytes();
    in.query->input_types = {graph_.type(v)};
    in.query->input_present = {true};
    values_.back() = {{v}, {}};
  }

  Instruction& append(const TransferRow* transfer, const std::string& name) {
    Instruction& in = program_.instructions.emplace_back();
    in.transfer = transfer;
    in.name = name;
    in.query = std::make_unique<KernelQuery>();
    in.query->node = name;
    in.query->threads = options_.threads;
    in.query->device = options_.device;
    values_.emplace_back();
    return in;
  }

  Status write_instruction(const Node& node) {
    const TransferRow* transfer = transfer_of(node.op->name);
    Instruction& in = append(transfer, node.name);
    values_.back() = {node.inputs, node.outputs};
    fill_query(node, *in.query);
    if (transfer) {
      if (transfer->prepare) transfer->prepare(in);
      if (transfer->grouped) in.group = program_.group(node.attributes.text("axis"));
      if (!transfer->kernel.empty()) take_kernel(*transfer, *in.query);
      in.bytes = in.query->out(0).bytes();
    }
    if (!transfer || !transfer->kernel.empty()) EPL_TRY(choose_kernel(node, in));
    program_.flops += in.query->flops * static_cast<double>(block_loops(local_.block(node)) ? local_.micro_batches : 1);
    return {};
  }

  void fill_query(const Node& node, KernelQuery& query) {
    std::vector<const TensorType*> inputs, outputs;
    for (Value v : node.inputs) {
      query.input_types.push_back(v ? graph_.type(v) : TensorType{});
      query.input_present.push_back(static_cast<bool>(v));
      inputs.push_back(v ? &graph_.type(v) : nullptr);
      query.bytes += v ? static_cast<double>(graph_.type(v).bytes()) : 0;
    }
    for (Value v : node.outputs) {
      query.output_types.push_back(graph_.type(v));
      query.output_present.push_back(true);
      outputs.push_back(&graph_.type(v));
      query.bytes += static_cast<double>(graph_.type(v).bytes());
    }
    query.units = node.units;
    OpQuery op_query(*node.op, node.attributes, inputs, outputs);
    query.flops = op_flops(op_query);
    const TensorType* first = !inputs.empty() && inputs[0] ? inputs[0] : outputs[0];
    if (node.op->elementwise() && !options_.kernels->takes(node.op->name, first->dtype)) {
      query.op = fused_op;
      query.attributes.set("expression", scalar_expression(op_query).text());
    } else {
      query.op = node.op->name;
      query.attributes = node.attributes;
    }
    program_.max_operands =
        std::max<int>(program_.max_operands, static_cast<int>(node.inputs.size() + node.outputs.size()) + 2);
  }

  Status choose_kernel(const Node& node, Instruction& in) {
    KernelQuery& q = *in.query;
    ChosenKernel chosen = options_.kernels->choose(q, &in.refusals);
    if (!chosen.row) {
      auto reference = reference_kernel(node, q, options_.device);
      if (!reference.ok()) {
        std::string reasons;
        for (const Refusal& r : in.refusals) reasons += cat("; ", r.kernel, ": ", r.reason);
        reasons += cat("; reference: ", reference.status().message());
        return unsupported("no kernel for ", node.op->name, reasons).at(node.name);
      }
      chosen = *std::move(reference);
    }
    in.row = chosen.row;
    in.prepared = std::move(chosen.prepared);
    in.workspace_bytes = in.prepared.workspace_bytes;
    return {};
  }

  // --- memory ---

  int loop_of(int position) const {
    for (size_t b = 0; b < program_.blocks.size(); ++b) {
      const Block& block = program_.blocks[b];
      if (position >= block.first && position < block.last) {
        return block_loops(block.kind) && local_.micro_batches > 1 ? static_cast<int>(b) : -1;
      }
    }
    return -1;
  }

  void find_lifetimes() {
    for (int p = 0; p < static_cast<int>(values_.size()); ++p) {
      for (Value v : values_[p].second) {
        if (v) first_[root_[v.index]] = last_[root_[v.index]] = p;
      }
      for (Value v : values_[p].first) {
        if (!v) continue;
        int root = root_[v.index], loop = loop_of(p);
        int until = p;
        // What comes from before a loop is read again by its every turn.
        if (loop >= 0 && first_[root] < program_.blocks[loop].first) until = program_.blocks[loop].last - 1;
        last_[root] = std::max(last_[root], until);
      }
    }
    // What decides whether the step is applied is looked at again right before the state changes.
    for (const Graph::Output& output : graph_.outputs) {
      int root = root_[output.value.index];
      bool before = first_[root] >= 0 && first_[root] < program_.commit_begin;
      if (before && graph_.type(output.value).elements() == 1 &&
          program_.commit_begin < static_cast<int>(values_.size())) {
        last_[root] = std::max(last_[root], program_.commit_begin);
      }
    }
  }

  // New state is written in place where its producer may, else copied at the very end.
  void place_updates() {
    for (const Graph::Update& update : graph_.updates) {
      int next = root_[update.next.index], state = root_[update.state.index];
      if (next == state) continue;
      if (!write_state_in_place(next, state)) copies_.push_back(update);
    }
    for (const Graph::Update& update : copies_) {
      Instruction& in = append(&transfer_named("copy"), graph_.value(update.state).name);
      in.bytes = graph_.type(update.state).bytes();
      in.query->input_types = in.query->output_types = {graph_.type(update.state)};
      in.query->input_present = in.query->output_present = {true};
      values_.back() = {{update.next}, {update.state}};
      int root = root_[update.next.index];
      last_[root] = std::max(last_[root], static_cast<int>(program_.instructions.size()) - 1);
    }
    program_.blocks.back().last = static_cast<int>(program_.instructions.size());
  }

  bool write_state_in_place(int next, int state) {
    int p = first_[next];
    if (p < program_.commit_begin || p < 0 || last_[state] > p || place_[next].space != Space::none) return false;
    const Instruction& in = program_.instructions[p];
    if (in.transfer) return false;
    const auto& [inputs, outputs] = values_[p];
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (outputs[o].index != next) continue;
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i] && root_[inputs[i].index] == state &&
            in.prepared.may_alias(static_cast<int>(i), static_cast<int>(o))) {
          place_[next] = place_[state];
          return true;
        }
      }
    }
    return false;
  }

  bool in_arena(int root) const { return place_[root].space == Space::none; }

  void share_in_place() {
    for (int p = 0; p < static_cast<int>(values_.size()); ++p) {
      const Instruction& in = program_.instructions[p];
      const auto& [inputs, outputs] = values_[p];
      std::vector<bool> taken(inputs.size(), false);
      for (size_t o = 0; o < outputs.size(); ++o) {
        int out = outputs[o] ? outputs[o].index : -1;
        if (out < 0 || !in_arena(out) || storage_[out] >= 0) continue;
        for (size_t i = 0; i < inputs.size() && storage_[out] < 0; ++i) {
          if (!inputs[i] || taken[i] || in.transfer) continue;
          int source = root_[inputs[i].index];
          bool dies =
              in_arena(source) && last_[source] == p && first_[source] < p && loop_of(first_[source]) == loop_of(p);
          bool once = std::ranges::count_if(inputs, [&](Value v) { return v && root_[v.index] == source; }) == 1;
          if (!dies || !once || graph_.type(Value{source}).bytes() != graph_.type(Value{out}).bytes()) continue;
          if (!in.prepared.may_alias(static_cast<int>(i), static_cast<int>(o))) continue;
          storage_[out] = storage_[source];
          Storage& s = storages_[storage_[source]];
          s.last = std::max(s.last, last_[out]);
          taken[i] = true;
        }
        if (storage_[out] < 0) {
          storage_[out] = static_cast<int>(storages_.size());
          storages_.push_back({graph_.type(Value{out}).bytes(), first_[out], last_[out]});
        }
      }
      add_workspace(p);
    }
  }

  void add_workspace(int p) {
    Instruction& in = program_.instructions[p];
    int64_t bytes = in.workspace_bytes;
    int first = p, last = p;
    if (in.transfer && in.transfer->held_bytes) {
      // Alive as long as the loop; the kernel's own workspace stands before it.
      in.workspace_bytes = aligned_bytes(in.workspace_bytes);
      bytes = in.workspace_bytes + in.transfer->held_bytes(in, local_.micro_batches);
      const Block& block = program_.blocks[loop_of(p)];
      first = block.first;
      last = block.last - 1;
    }
    workspace_.push_back(bytes > 0 ? static_cast<int>(storages_.size()) : -1);
    if (bytes > 0) storages_.push_back({bytes, first, last});
  }

  void lay_out_arena() {
    MemoryLayout layout = lay_out(storages_);
    for (const Storage& s : storages_) program_.arena_bytes = std::max(program_.arena_bytes, s.offset + s.bytes);
    program_.arena_live_bytes = layout.largest_live;
  }

  Location location(Value v) const {
    if (!v) return {};
    int root = root_[v.index];
    if (place_[root].space != Space::none) return place_[root];
    return {Space::arena, 0, storages_[storage_[root]].offset, 0};
  }

  void write_locations() {
    for (size_t p = 0; p < values_.size(); ++p) {
      Instruction& in = program_.instructions[p];
      for (Value v : values_[p].first) in.inputs.push_back(location(v));
      for (Value v : values_[p].second) in.outputs.push_back(location(v));
      if (workspace_[p] >= 0) in.workspace = {Space::arena, 0, storages_[workspace_[p]].offset, 0};
    }
    for (const Storage& s : storages_) {
      int loop = loop_of(s.last);
      bool last_turn = loop >= 0 && s.first <= program_.blocks[loop].first && s.last == program_.blocks[loop].last - 1;
      program_.instructions[s.last].releases.push_back({s.offset, s.bytes, last_turn});
    }
    for (size_t port = 0; port < local_.outputs.size(); ++port) {
      const LocalPort& out = local_.outputs[port];
      program_.outputs.push_back({out.name, out.global_type, graph_.type(output_value(port)), out.dim, out.outer,
                                  location(output_value(port))});
    }
  }

  const LocalGraph& local_;
  Graph graph_;
  const LowerOptions& options_;
  Program program_;
  std::vector<int> root_;          // by value: the value whose memory it is
  std::vector<Location> place_;    // by root; space none: the arena
  std::vector<int> first_, last_;  // by root
  std::vector<int> storage_;       // by root
  std::vector<Storage> storages_;
  std::vector<int> workspace_;                                             // by instruction
  std::vector<std::pair<std::vector<Value>, std::vector<Value>>> values_;  // by instruction: operands, results
  std::vector<Graph::Update> copies_;
};

}  // namespace

int Program::group(const std::string& axis) {
  const auto found = std::ranges::find(groups, axis);
  if (found == groups.end()) groups.push_back(axis);
  return static_cast<int>(std::ranges::find(groups, axis) - groups.begin());
}

Result<Program> lower(const LocalGraph& local, const LowerOptions& options) {
  Graph graph = options.fuse ? fuse_elementwise(local.graph, options.kernels) : local.graph;
  if (options.device && !options.device->shares_host_memory()) graph = with_uploads(graph);
  return Lowering(local, without_dead_nodes(graph), options).run();
}

}  // namespace epl
