// Reads the .program text form (core/program/program_text.h). Kernels are found again by name in the backend's table.
#include "core/program/program_text.h"

#include <algorithm>

#include "core/ir/op.h"
#include "core/ir/text.h"
#include "core/program/program.h"
#include "core/program/reference_kernel.h"
#include "core/program/reshard.h"
#include "core/program/transfer.h"
#include "core/strategy/mesh_text.h"

namespace epl {
namespace {

using Space = Location::Space;

constexpr int max_streams = 1 << 16, max_events = 1 << 24;

class ProgramParser {
 public:
  ProgramParser(std::string_view text, const KernelTable& kernels) : reader_(text), kernels_(kernels) {}

  Result<Program> parse() {
    int64_t commit = 0, peak = 0;
    if (!reader_.next_line() || !reader_.take("program") || !reader_.name(program_.name) ||
        !number("threads", threads_)) {
      return reader_.fail("expected program name threads N");
    }
    program_.commits = reader_.take("commits");
    if (!reader_.next_line() || !number("memory", peak) || !number("arena", program_.memories[0].arena_bytes) ||
        !number("live", program_.memories[0].arena_live_bytes) || !number("state", program_.memories[0].state_bytes) ||
        !number("constants", program_.constant_bytes) || !number("scalars", program_.scalar_bytes)) {
      return reader_.fail("expected the memory");
    }
    if (peak != program_.memory_bytes_peak()) return reader_.fail("the memory does not add up");
    if (int64_t& at = program_.drawn_at; number("drawn", at) && (at < 0 || at > program_.scalar_bytes - drawn_bytes))
      return reader_.fail("expected a location among the scalars");
    if (int64_t& at = program_.decided_at;
        number("decided", at) && (at < 0 || at > program_.scalar_bytes - static_cast<int64_t>(sizeof(Decision))))
      return reader_.fail("expected a location among the scalars");
    while (reader_.next_line()) {
      if (number("commit at", commit)) {
        program_.commit_begin = static_cast<int>(commit);
      } else if (number("numbers record", commit)) {
        if (!has_event(commit)) return reader_.fail("expected an event");
        program_.numbers_event = static_cast<int>(commit);
      } else {
        EPL_TRY(line());
      }
      if (!reader_.at_end()) return reader_.fail("text after a line");
    }
    if (program_.batch.empty()) program_.batch = BatchLayout::over_all_axes(program_.mesh);
    return std::move(program_);
  }

 private:
  bool number(std::string_view word, int64_t& out) { return reader_.take(word) && reader_.integer(out); }

  bool offset(Location& at) {
    int64_t table = 0;
    if (at.space != Space::arena || !reader_.take("table")) return reader_.integer(at.offset) && at.offset >= 0;
    if (!reader_.integer(table) || table < 0 || table >= std::ssize(program_.offset_tables)) return false;
    at.offset_table = static_cast<int32_t>(table);
    at.offset = program_.offset_tables[table].front();
    return true;
  }

  bool shard_offset(Location& at) {
    int64_t axis = 0;
    if (!reader_.integer(at.stride) || at.stride < 0 || !reader_.take("*axis") || !reader_.integer(axis)) return false;
    at.axis = static_cast<int32_t>(axis);
    return axis >= 0 && axis < std::ssize(program_.mesh.axes);
  }

  // "table 3 at 0 4096": an offset for each micro-batch.
  Status offset_table() {
    int64_t index = 0;
    std::vector<int64_t> offsets;
    if (!reader_.integer(index) || index != std::ssize(program_.offset_tables) || !reader_.take("at"))
      return reader_.fail(cat("expected table ", program_.offset_tables.size()));
    while (!reader_.at_end()) {
      if (!reader_.integer(offsets.emplace_back()) || offsets.back() < 0) return reader_.fail("expected an offset");
    }
    if (offsets.empty() || std::ssize(offsets) != program_.micro_batches())
      return reader_.fail(cat("expected ", program_.micro_batches(), " offsets"));
    program_.offset_tables.push_back(std::move(offsets));
    return {};
  }

  bool location(Location& at) {
    if (reader_.take("_")) return true;
    int64_t index = 0;
    at.memory = memory();
    for (const auto& [space, name] : space_names) {
      if (!reader_.take(name)) continue;
      at.space = space;
      return offset(at) && (!reader_.take("+") || shard_offset(at));
    }
    if (!number("in", index) || index < 0) return false;
    at.space = Space::input;
    at.index = static_cast<int32_t>(index);
    return !reader_.take("+") || reader_.integer(at.stride);
  }

  // "host." before a location; none: that of the device.
  MemoryKind memory() {
    const auto kind = std::ranges::find_if(memory_kinds, [&](MemoryKind one) {
      return one != MemoryKind::device && reader_.take(cat(memory_kind_name(one), "."));
    });
    return kind == std::end(memory_kinds) ? MemoryKind::device : *kind;
  }

  // What the program has in another memory.
  Status beside() {
    const auto kind = std::ranges::find_if(
        memory_kinds, [&](MemoryKind one) { return one != MemoryKind::device && reader_.take(memory_kind_name(one)); });
    if (kind == std::end(memory_kinds)) return reader_.fail("expected a memory");
    ProgramMemory& memory = program_.memory(*kind);
    const bool read = number("arena", memory.arena_bytes) && number("live", memory.arena_live_bytes) &&
                      number("state", memory.state_bytes);
    return read ? Status() : reader_.fail("expected what is in a memory");
  }

  bool port(ProgramPort& port, size_t index) {
    const bool read = reader_.name(port.name) && reader_.type(port.global_type) && reader_.take("local") &&
                      reader_.type(port.local_type) &&
                      parse_port_sharding(reader_, program_.mesh, port.global_type, port.sharding) &&
                      reader_.take("at") && location(port.location);
    port.index = static_cast<int>(index);
    return read;
  }

  Status line() {
    std::string word;
    if (reader_.take("slot ")) return slot();
    if (reader_.take("beside ")) return beside();
    if (reader_.take("constant ")) {
      TensorType type;
      int64_t offset = 0;
      if (!reader_.type(type) || !number("at", offset)) return reader_.fail("expected a constant");
      program_.constants.push_back(Tensor(type));
      program_.constant_offsets.push_back(offset);
      return {};
    }
    if (reader_.take("scalar ")) {
      Location at;
      if (!reader_.name(word) || !reader_.take("at") || !location(at)) return reader_.fail("expected a scalar");
      program_.scalars.push_back({word, at, static_cast<int>(program_.scalars.size())});
      return {};
    }
    if (bool input = reader_.take("input "); input || reader_.take("output ")) {
      ProgramPort made;
      auto& ports = input ? program_.inputs : program_.outputs;
      if (!port(made, ports.size())) return reader_.fail("expected a port");
      ports.push_back(std::move(made));
      return {};
    }
    if (reader_.take("axis ")) return parse_axis(reader_, program_.mesh) ? Status() : reader_.fail("expected an axis");
    if (reader_.take("batch "))
      return parse_batch(reader_, program_.mesh, program_.batch) ? Status() : reader_.fail("expected a batch");
    if (reader_.take("table ")) return offset_table();
    if (reader_.take("run ")) return run();
    if (reader_.take("block ")) {
      int64_t first = 0, last = 0;
      BlockId block;
      if (!parse_block(reader_, block) || !number("from", first) || !number("to", last))
        return reader_.fail("expected a block");
      program_.blocks.push_back({block, static_cast<int>(first), static_cast<int>(last)});
      return {};
    }
    return instruction();
  }

  Status run() {
    if (!parse_call(reader_, program_.calls.emplace_back())) return reader_.fail("expected a block");
    std::vector<CallWait>& waits = program_.waits.emplace_back();
    for (int64_t event = 0; number("waits", event);) {
      if (!has_event(event)) return reader_.fail("expected an event");
      waits.push_back({.event = static_cast<int>(event)});
      if (int64_t at = 0; number("at", at)) {
        if (at < 0 || at > max_events) return reader_.fail("expected an instruction");
        waits.back().instruction = static_cast<int>(at);
      }
    }
    return {};
  }

  bool has_event(int64_t event) {
    if (event < 0 || event > max_events) return false;
    program_.events = std::max(program_.events, static_cast<int>(event) + 1);
    return true;
  }

  bool order(Instruction& in) {
    int64_t value = 0;
    if (number("stream", value)) in.stream = static_cast<int>(value);
    if (value < 0 || value > max_streams) return false;
    program_.streams = std::max(program_.streams, in.stream + 1);
    while (number("waits", value)) {
      if (!has_event(value)) return false;
      in.waits.push_back({.event = static_cast<int>(value), .each = reader_.take("*")});
    }
    if (!number("records", value)) return true;
    if (!has_event(value)) return false;
    in.records = static_cast<int>(value);
    const bool loops = !program_.blocks.empty() && block_loops(program_.blocks.back().id.kind);
    const int64_t end = value + (loops ? program_.micro_batches() : 1);
    program_.events = std::max(program_.events, static_cast<int>(std::min<int64_t>(end, max_events)));
    return true;
  }

  Status slot() {
    StateSlot made;
    std::string kind;
    if (!reader_.name(kind) || !reader_.name(made.name) || !reader_.type(made.type) || !reader_.take("at"))
      return reader_.fail("expected a slot");
    made.memory = memory();
    if (!reader_.integer(made.offset)) return reader_.fail("expected an offset");
    made.kind = ValueKind::result;
    for (ValueKind k : {ValueKind::parameter, ValueKind::buffer, ValueKind::state}) {
      if (value_kind_name(k) == kind) made.kind = k;
    }
    if (made.kind == ValueKind::result) return reader_.fail("unknown kind of state");
    made.sharding.dims.resize(made.type.shape.size());
    if (reader_.take("cut")) {
      made.sharding.dims.clear();
      if (!parse_cuts(reader_, program_.mesh, made.sharding.dims) ||
          made.sharding.dims.size() != made.type.shape.size())
        return reader_.fail("expected the axes that cut a slot");
    }
    if (!parse_rank_local(reader_, program_.mesh, made.sharding.rank_local, made.representative))
      return reader_.fail("expected which ranks have a slot, and in whose place it lies");
    made.local = local_type(program_.mesh, made.type, made.sharding);
    program_.state.push_back(std::move(made));
    return {};
  }

  bool operands(std::vector<Location>& locations, std::vector<TensorType>& types, std::vector<bool>& present) {
    if (!reader_.take("(")) return false;
    while (!reader_.take(")")) {
      if (!locations.empty() && !reader_.take(",")) return false;
      locations.emplace_back();
      types.emplace_back();
      if (!location(locations.back())) return false;
      present.push_back(locations.back().space != Space::none);
      if (present.back() && (!reader_.take(":") || !reader_.type(types.back()))) return false;
    }
    return true;
  }

  Status instruction() {
    int64_t index = 0, number_value = 0;
    std::string word;
    Instruction in;
    in.query = std::make_unique<KernelQuery>();
    KernelQuery& q = *in.query;
    if (!reader_.integer(index) || index != std::ssize(program_.instructions) || !reader_.name(word)) {
      return reader_.fail(cat("expected instruction ", program_.instructions.size()));
    }
    in.transfer = find_transfer(word);
    if (!in.transfer && word != "launch") return reader_.fail(cat("unknown instruction ", word));
    const bool has_kernel = !in.transfer || !in.transfer->kernel.empty();
    std::string row_name;
    if (has_kernel) {
      size_t dot = 0;
      if (!reader_.name(word) || (dot = word.find('.')) == std::string::npos) return reader_.fail("expected op.kernel");
      q.op = word.substr(0, dot);
      row_name = word.substr(dot + 1);
    }
    if (!reader_.name(in.name) || !operands(in.inputs, q.input_types, q.input_present) || !reader_.take("->") ||
        !operands(in.outputs, q.output_types, q.output_present)) {
      return reader_.fail("expected name (operands) -> (results)");
    }
    q.node = in.name;
    q.threads = static_cast<int>(threads_);
    if (number("port", number_value)) in.port = static_cast<int>(number_value);
    if (reader_.take("workspace") && (!location(in.workspace) || !number(":", in.workspace_bytes)))
      return reader_.fail("expected a workspace");
    number("bytes", in.bytes);
    if (reader_.take("runs") && (!reader_.integer(in.slice.outer) || !number("of", in.slice.run_bytes) ||
                                 !number("in", in.slice.global_bytes))) {
      return reader_.fail("expected runs N of N in N");
    }
    q.key = in.name;
    if (reader_.take("key") && !reader_.name(q.key)) return reader_.fail("expected a node name");
    number("units", q.units.count);
    number("outer", q.units.outer);
    if (q.units.count < 1 || q.units.outer < 1) return reader_.fail("expected units");
    if (!order(in)) return reader_.fail("expected a stream and its events");
    EPL_ASSIGN(q.attributes, reader_.attributes());
    while (reader_.take("frees")) {
      Instruction::Release release;
      release.at.space = Space::arena;
      if (!offset(release.at) || !number(":", release.bytes)) return reader_.fail("expected frees offset:bytes");
      release.last_iteration = reader_.take("!");
      release.sent = reader_.take("?");
      in.releases.push_back(release);
    }
    if (in.transfer) EPL_TRY(transfer(in));
    if (!row_name.empty()) EPL_TRY(find_kernel(in, row_name));
    program_.max_operands =
        std::max<int>(program_.max_operands, static_cast<int>(in.inputs.size() + in.outputs.size()) + 2);
    program_.instructions.push_back(std::move(in));
    return {};
  }

  // What follows from its row and its attributes.
  Status transfer(Instruction& in) {
    KernelQuery& q = *in.query;
    if (q.input_types.empty() && q.output_types.empty()) return reader_.fail("a transfer has an operand or a result");
    const bool has_kernel = !in.transfer->kernel.empty();
    if (has_kernel && q.input_types.empty()) return reader_.fail("a transfer with a kernel has an operand");
    if (has_kernel) take_kernel(*in.transfer, q);
    if (in.transfer->grouped) {
      const Attribute* axis = q.attributes.find("axis");
      if (!axis || !std::holds_alternative<std::string>(*axis)) return reader_.fail("expected the axis of a group");
      in.group = program_.group({.axis = std::get<std::string>(*axis)});
    }
    if (!in.transfer->counterpart.empty()) {
      EPL_ASSIGN(const ProgramGroup group, counterpart_group(*in.transfer, q.attributes));
      in.group = program_.group(group);
    }
    if (const Attribute* axes = q.attributes.find("axes")) {
      const auto* names = std::get_if<std::string>(axes);
      if (!names || !parse_axis_names(*names, program_.mesh, in.axes)) return reader_.fail("unknown axes");
    }
    if (in.port >= std::ssize(program_.outputs)) return reader_.fail("no such port");
    return {};
  }

  Status find_kernel(Instruction& in, const std::string& row_name) {
    for (const KernelRow& row : kernels_.rows(in.query->op)) {
      if (row.name == row_name) in.row = &row;
    }
    if (!in.row && row_name == "reference") {
      Node node{.name = in.name, .op = op_table().find(in.query->op), .attributes = in.query->attributes};
      if (!node.op) return reader_.fail(cat("unknown op ", in.query->op));
      EPL_TRY(complete_attributes(*node.op, node.attributes));
      EPL_ASSIGN(ChosenKernel reference, reference_kernel(node, *in.query, nullptr));
      in.row = reference.row;
      in.prepared = std::move(reference.prepared);
      return {};
    }
    if (!in.row) return reader_.fail(cat("this backend has no kernel ", row_name, " for ", in.query->op));
    try {
      if (!in.transfer) EPL_TRY(check_types(*in.query));
      auto prepared = prepare(*in.row, *in.query);
      if (!prepared.ok()) return reader_.fail(cat("kernel ", row_name, " does not fit: ", prepared.status().message()));
      in.prepared = *std::move(prepared);
    } catch (const InternalError& e) {  // what the lowering guarantees, a text does not
      return reader_.fail(cat("kernel ", row_name, " does not fit: ", e.what()));
    }
    return {};
  }

  // Kernels trust the graph that the shapes fit their op; a text may say anything.
  Status check_types(const KernelQuery& q) {
    const OpDef* op = op_table().find(q.op);
    if (!op) return reader_.fail(cat("unknown op ", q.op));
    std::vector<const TensorType*> inputs;
    for (int i = 0; i < q.inputs(); ++i) inputs.push_back(q.has(i) ? &q.in(i) : nullptr);
    auto types = infer_types(*op, q.attributes, inputs);
    if (!types.ok()) return reader_.fail(cat("operands do not fit ", q.op, ": ", types.status().message()));
    if (*types != q.output_types) return reader_.fail(cat("results do not fit ", q.op));
    return {};
  }

  TextReader reader_;
  const KernelTable& kernels_;
  Program program_;
  int64_t threads_ = 1;
  static constexpr int64_t drawn_bytes = sizeof(StepNumbers);
};

}  // namespace

Result<Program> parse_program(std::string_view text, const KernelTable& kernels) {
  return ProgramParser(text, kernels).parse();
}

}  // namespace epl
