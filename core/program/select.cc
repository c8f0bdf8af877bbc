// Writes the instructions of a program: nodes in the order of their blocks, with kernels of the backend, and between
// them the transfers that no node stands for.
#include <algorithm>
#include <ranges>

#include "core/backend/device.h"
#include "core/base/shown.h"
#include "core/ir/op.h"
#include "core/program/lowering.h"
#include "core/program/reference_kernel.h"
#include "core/program/transfer.h"
#include "core/strategy/mesh_text.h"

namespace epl {
namespace {

using Space = Location::Space;

class Selection {
 public:
  explicit Selection(Lowering& lowering)
      : l_(lowering),
        local_(lowering.local),
        graph_(lowering.graph),
        options_(lowering.options),
        program_(lowering.program) {}

  Status run() {
    program_.name = graph_.name;
    program_.mesh.axes = local_.mesh.axes;
    program_.batch = local_.batch;
    program_.calls = local_.calls;
    program_.commits = local_.commits;
    locate_leaves();
    find_views();
    EPL_TRY(write_instructions());
    return check_memories();
  }

 private:
  void locate_leaves() {
    for (const Value v : graph_.value_ids()) {
      const ValueInfo& info = graph_.value(v);
      Location& at = l_.location[v];
      switch (info.kind) {
        case ValueKind::result:
          break;
        case ValueKind::input:
          break;  // below, in the order of ports
        case ValueKind::parameter:
        case ValueKind::buffer:
        case ValueKind::state:
          l_.memory[v] = local_.home(info.name);
          at = {.space = Space::state, .memory = l_.memory[v], .offset = program_.memory(l_.memory[v]).state_bytes};
          add_slot(info, at);
          break;
        case ValueKind::constant:
          at = {.space = Space::constant, .offset = program_.constant_bytes};
          program_.constants.push_back(info.data);
          program_.constant_offsets.push_back(at.offset);
          program_.constant_bytes += aligned_bytes(info.type.bytes());
          break;
        case ValueKind::scalar:
          at = {.space = Space::scalar, .offset = program_.scalar_bytes};
          program_.scalars.push_back({info.name, at, static_cast<int>(program_.scalars.size())});
          program_.scalar_bytes += memory_alignment;
          break;
      }
    }
    if (std::ranges::any_of(graph_.nodes(), [](const Node& node) { return node.op->random; })) {
      program_.drawn_at = program_.scalar_bytes;
      program_.scalar_bytes += memory_alignment;
    }
    if (program_.commits && options_.device && options_.device->guards()) {
      program_.decided_at = program_.scalar_bytes;
      program_.scalar_bytes += memory_alignment;
    }
    for (const LocalPort& port : local_.inputs) {
      const Value v = graph_.find(port.name);
      const TensorType& type = graph_.type(v);
      const auto index = static_cast<int>(program_.inputs.size());
      const Location at{.space = Space::input, .index = index, .stride = port.dim() == 0 ? type.bytes() : 0};
      l_.location[v] = at;
      program_.inputs.push_back({port.name, port.global_type, type, port.sharding, at, index});
    }
  }

  void add_slot(const ValueInfo& info, const Location& at) {
    StateSlot slot{.name = info.name, .kind = info.kind, .type = info.type};
    slot.sharding.dims.resize(info.type.shape.size());
    slot.local = info.type;
    slot.offset = at.offset;
    slot.memory = at.memory;
    slot.initial = info.data;
    const auto cut = std::ranges::find(local_.cut_state, info.name, &LocalState::name);
    if (cut != local_.cut_state.end()) {
      slot.type = cut->global_type;
      slot.sharding = cut->sharding;
      slot.initial = cut->initial;
      slot.representative = cut->representative;
    }
    program_.state.push_back(slot);
    program_.memory(at.memory).state_bytes += aligned_bytes(info.type.bytes());
    for (const LocalState& other : local_.cut_state) {
      if (slot.representative.empty() || other.representative != info.name || other.name == info.name) continue;
      slot.name = other.name;
      slot.sharding = other.sharding;
      slot.initial = other.initial;
      program_.state.push_back(slot);
    }
  }

  void find_views() {
    for (const Value v : graph_.value_ids()) {
      l_.root[v] = v;
      const NodeId producer = graph_.value(v).producer;
      if (!producer) continue;
      const Node& node = graph_.node(producer);
      if (graph_.value(v).output != 0) continue;
      Lowering::ShardOffset& offset = l_.shard_offset[v];
      if (!node.op->view && !is_shard(node, offset)) continue;
      l_.root[v] = root(node.inputs[0]);
      if (!offset) offset = l_.shard_offset[node.inputs[0]];
    }
  }

  // Whether a node takes this rank's shard of state, one run of it: then it is read where it lies.
  bool is_shard(const Node& node, Lowering::ShardOffset& offset) const {
    const TransferRow* transfer = transfer_of(node.op->name);
    if (!transfer || !transfer->gives_shard) return false;
    const Value full = node.inputs[0];
    const TensorType &all = graph_.type(full), &shard = graph_.type(node.outputs[0]);
    const int64_t dim = node.attributes.integer("dim");
    const bool one_run = node.attributes.integer("outer") == 1 &&
                         std::ranges::all_of(all.shape | std::views::take(dim), [](int64_t n) { return n == 1; });
    std::vector<int> axes;
    if (!one_run || !parse_axis_names(node.attributes.text("axes"), program_.mesh, axes) || axes.size() != 1 ||
        program_.mesh.axes[axes[0]].kind != MeshAxis::Kind::rank || l_.location[root(full)].space != Space::state ||
        l_.shard_offset[full] || shard.bytes() % memory_alignment != 0 ||
        shard.bytes() * program_.mesh.axes[axes[0]].size != all.bytes())
      return false;
    offset = {.axis = axes[0], .stride = shard.bytes()};
    return true;
  }
  bool is_view(const Node& node) const {
    return node.op->view ||
           (!node.outputs.empty() && l_.shard_offset[node.outputs[0]] && transfer_of(node.op->name) != nullptr);
  }

  Value root(Value v) const { return l_.root[v]; }

  Status write_instructions() {
    for (int b = 0; b < std::ssize(local_.blocks); ++b) {
      Block block{local_.blocks[b], size(), 0};
      if (!block_loops(local_.blocks[b].kind)) emit_late();
      for (const NodeId n : graph_.node_ids()) {
        const Node& node = graph_.node(n);
        if (node.region != b || is_view(node)) continue;
        if (node.phase == Phase::update && program_.commit_begin == 0) begin_commit();
        EPL_TRY(write_instruction(node));
        emit_outputs(node);
      }
      if (b == local_.sample_block()) emit_leaves();
      const bool copies_alone = b + 1 == std::ssize(local_.blocks) && !graph_.updates.empty();
      if (copies_alone && program_.commit_begin == 0) begin_commit();
      block.last = size();
      program_.blocks.push_back(block);
    }
    EPL_CHECK(late_.empty());  // a loop that sums has a block behind it
    if (program_.commit_begin == 0) program_.commit_begin = size();
    for (const Graph::Update& update : graph_.updates) {
      const MemoryKind next = l_.memory[root(update.next)], state = l_.memory[root(update.state)];
      if (next == state) continue;
      return invalid("the new value of ", graph_.value(update.state).name, " is in memory ", memory_kind_name(next),
                     ", and the old one in memory ", memory_kind_name(state));
    }
    return {};
  }

  int size() const { return static_cast<int>(program_.instructions.size()); }

  // From here on the state changes.
  void begin_commit() {
    program_.commit_begin = size();
    if (program_.decided_at < 0) return;
    Instruction& in = l_.append(&transfer_named("decide"), "decide");
    in.outputs = {{.space = Space::scalar, .offset = program_.decided_at}};
    in.query->output_types = {{DType::i64, {}}};
    in.query->output_present = {true};
    in.bytes = in.query->output_types[0].bytes();
  }

  // Outputs that are leaves or views of leaves: no node gives them, so the block does that sees every sample and runs
  // before any update.
  void emit_leaves() {
    for (size_t port = 0; port < local_.outputs.size(); ++port) {
      if (!graph_.value(root(graph_.outputs[port].value)).producer) emit(port);
    }
  }

  // A result that the caller wants leaves right behind its producer, before the memory is used again.
  void emit_outputs(const Node& node) {
    for (size_t port = 0; port < local_.outputs.size(); ++port) {
      const NodeId producer = graph_.value(root(graph_.outputs[port].value)).producer;
      if (!producer || &graph_.node(producer) != &node) continue;
      const TransferRow* transfer = transfer_of(node.op->name);
      // What is complete when a loop has ended leaves behind the loop.
      if (transfer && transfer->at_last_iteration && block_loops(local_.block(node).kind))
        late_.push_back(port);
      else
        emit(port);
    }
  }

  void emit_late() {
    for (const size_t port : late_) emit(port);
    late_.clear();
  }

  void emit(size_t port) {
    if (!local_.outputs[port].emitted) return;
    const Value v = graph_.outputs[port].value;
    Instruction& in = l_.append(&transfer_named("emit"), graph_.outputs[port].name);
    in.port = static_cast<int>(port);
    in.bytes = graph_.type(v).bytes();
    in.query->input_types = {graph_.type(v)};
    in.query->input_present = {true};
    l_.operands.back() = {{v}, {}};
  }

  Status write_instruction(const Node& node) {
    const TransferRow* transfer = transfer_of(node.op->name);
    Instruction& in = l_.append(transfer, node.name);
    l_.operands.back() = {node.inputs, node.outputs};
    const auto region = l_.regions.find(node.name);
    in.nodes =
        region == l_.regions.end() ? std::vector<DoneNode>{{node.name, node.op->name, node.source}} : region->second;
    fill_query(node, *in.query);
    EPL_TRY(take_memories(node, transfer));
    if (transfer) EPL_TRY(write_transfer(node, *transfer, in));
    if (!transfer || !transfer->kernel.empty()) EPL_TRY(choose_kernel(node, in));
    program_.flops +=
        in.query->flops * static_cast<double>(block_loops(local_.block(node).kind) ? local_.micro_batches() : 1);
    return {};
  }

  // Kernels compute in one memory, and a transfer moves values within that, but for those to and from other memories.
  Status take_memories(const Node& node, const TransferRow* transfer) {
    const bool fetches = transfer && transfer->fetches;
    for (Value v : node.inputs) {
      const MemoryKind kind = v ? l_.memory[root(v)] : MemoryKind::device;
      if ((kind == MemoryKind::device) == fetches)
        return invalid("node ", node.name, " reads ", graph_.value(v).name, ", which is in memory ",
                       memory_kind_name(kind))
            .at(node.name);
    }
    if (!transfer || !transfer->evicts) return {};
    const std::string& wanted = node.attributes.text("memory");
    const auto kind = std::ranges::find(memory_kinds, wanted, memory_kind_name);
    if (kind == std::end(memory_kinds) || *kind == MemoryKind::device)
      return invalid("node ", node.name, " evicts to memory ", shown(wanted, 40)).at(node.name);
    l_.memory[node.outputs[0]] = *kind;
    program_.memory(*kind);
    return {};
  }

  // The device has them.
  Status check_memories() const {
    for (const ProgramMemory& memory : program_.memories) {
      if (!options_.device || options_.device->has_memory(memory.kind)) continue;
      return unsupported("a plan keeps values in memory of the kind ", memory_kind_name(memory.kind), ", which ",
                         options_.device->description(), " has not");
    }
    return {};
  }

  Status write_transfer(const Node& node, const TransferRow& transfer, Instruction& in) {
    if (transfer.prepare) transfer.prepare(in);
    if (transfer.grouped) in.group = program_.group({.axis = node.attributes.text("axis")});
    if (!transfer.counterpart.empty()) {
      EPL_ASSIGN(const ProgramGroup group, counterpart_group(transfer, node.attributes));
      in.group = program_.group(group);
    }
    if (const Attribute* axes = node.attributes.find("axes")) {
      const bool known = parse_axis_names(std::get<std::string>(*axes), program_.mesh, in.axes);
      if (!known) return invalid("node ", node.name, " has an axis that the mesh has not");
    }
    if (!transfer.kernel.empty()) take_kernel(transfer, *in.query);
    for (const TensorType& type : in.query->outputs() > 0 ? in.query->output_types : in.query->input_types)
      in.bytes += type.bytes();
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
    query.key = node.key_name();
    query.units = node.units;
    query.splits_keep_bits = options_.splits_keep_bits;
    query.level = options_.level;
    OpQuery op_query(*node.op, node.attributes, inputs, outputs);
    query.flops = op_flops(op_query);
    const TensorType* first = !inputs.empty() && inputs[0] ? inputs[0] : outputs.empty() ? nullptr : outputs[0];
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

  Lowering& l_;
  const LocalGraph& local_;
  const Graph& graph_;
  const LowerOptions& options_;
  Program& program_;
  std::vector<size_t> late_;  // outputs of a loop that leave behind it
};

}  // namespace

Instruction& Lowering::append(const TransferRow* transfer, const std::string& name) {
  Instruction& in = program.instructions.emplace_back();
  in.transfer = transfer;
  in.name = name;
  in.query = std::make_unique<KernelQuery>();
  in.query->node = in.query->key = name;
  in.query->threads = options.threads;
  in.query->device = options.device;
  operands.emplace_back();
  return in;
}

Status select_instructions(Lowering& lowering) { return Selection(lowering).run(); }

}  // namespace epl
