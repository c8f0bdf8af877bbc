// Writes the .program text form (core/program/program_text.h).
#include <span>

#include "core/ir/text.h"
#include "core/program/program.h"
#include "core/program/program_text.h"
#include "core/program/reshard.h"
#include "core/program/transfer.h"
#include "core/strategy/mesh_text.h"

namespace epl {
namespace {

using Space = Location::Space;

// An offset, or the table of those that micro-batches have.
std::string offset_text(const Location& at) {
  return at.offset_table < 0 ? cat(at.offset) : cat("table", at.offset_table);
}

// Of another memory than that in which kernels compute.
std::string memory_text(MemoryKind memory) {
  return memory == MemoryKind::device ? "" : cat(memory_kind_name(memory), ".");
}

std::string location_text(const Location& at) {
  if (at.space == Space::none) return "_";
  if (at.space == Space::input) return at.stride ? cat("in", at.index, "+", at.stride) : cat("in", at.index);
  for (const auto& [space, name] : space_names) {
    if (space == at.space)
      return cat(memory_text(at.memory), name, offset_text(at),
                 at.axis < 0 ? "" : cat("+", at.stride, "*axis", at.axis));
  }
  return "?";
}

std::string operands_text(const std::vector<Location>& locations, const std::vector<TensorType>& types) {
  std::string out;
  for (size_t i = 0; i < locations.size(); ++i) {
    out += cat(i ? ", " : "", location_text(locations[i]));
    if (locations[i].space != Space::none) out += ":" + types[i].text();
  }
  return out;
}

std::string port_text(const Program& program, const ProgramPort& port) {
  return cat(name_text(port.name), " ", port.global_type.text(), " local ", port.local_type.text(), " ",
             port_sharding_text(program.mesh, port.sharding), " at ", location_text(port.location), "\n");
}

std::string instruction_text(const Instruction& in, int index) {
  std::string out = cat("  ", index, " ", in.transfer ? std::string_view(in.transfer->name) : "launch", " ");
  if (in.row) out += cat(in.query->op, ".", in.row->name, " ");
  out += cat(name_text(in.name), " (", operands_text(in.inputs, in.query->input_types), ") -> (",
             operands_text(in.outputs, in.query->output_types), ")");
  if (in.port >= 0) out += cat(" port ", in.port);
  if (in.workspace.space != Space::none)
    out += cat(" workspace ", location_text(in.workspace), ":", in.workspace_bytes);
  if (in.bytes) out += cat(" bytes ", in.bytes);
  if (in.slice.run_bytes)
    out += cat(" runs ", in.slice.outer, " of ", in.slice.run_bytes, " in ", in.slice.global_bytes);
  if (in.query->key != in.name) out += cat(" key ", name_text(in.query->key));
  if (in.query->units != Units()) out += cat(" units ", in.query->units.count);
  if (in.query->units.outer != 1) out += cat(" outer ", in.query->units.outer);
  if (in.stream) out += cat(" stream ", in.stream);
  for (const Wait& wait : in.waits) out += cat(" waits ", wait.event, wait.each ? "*" : "");
  if (in.records >= 0) out += cat(" records ", in.records);
  out += attributes_text(in.query->attributes);
  for (const Instruction::Release& r : in.releases) {
    out += cat(" frees ", offset_text(r.at), ":", r.bytes, r.last_iteration ? "!" : "", r.sent ? "?" : "");
  }
  return out + "\n";
}

}  // namespace

std::string print_program(const Program& program) {
  int threads = program.instructions.empty() ? 1 : program.instructions[0].query->threads;
  std::string out =
      cat("program ", name_text(program.name), " threads ", threads, program.commits ? " commits" : "", "\n");
  out += cat("memory ", program.memory_bytes_peak(), " arena ", program.memories[0].arena_bytes, " live ",
             program.memories[0].arena_live_bytes, " state ", program.memories[0].state_bytes, " constants ",
             program.constant_bytes, " scalars ", program.scalar_bytes,
             program.drawn_at < 0 ? "" : cat(" drawn ", program.drawn_at),
             program.decided_at < 0 ? "" : cat(" decided ", program.decided_at), "\n");
  for (const ProgramMemory& memory : std::span(program.memories).subspan(1))
    out += cat("beside ", memory_kind_name(memory.kind), " arena ", memory.arena_bytes, " live ",
               memory.arena_live_bytes, " state ", memory.state_bytes, "\n");
  out += axis_lines(program.mesh) + batch_line(program.mesh, program.batch);
  for (size_t r = 0; r < program.offset_tables.size(); ++r) {
    out += cat("table ", r, " at");
    for (int64_t offset : program.offset_tables[r]) out += cat(" ", offset);
    out += "\n";
  }
  for (const StateSlot& slot : program.state) {
    out += cat("slot ", value_kind_name(slot.kind), " ", name_text(slot.name), " ", slot.type.text(), " at ",
               memory_text(slot.memory), slot.offset,
               slot.local == slot.type ? "" : cat(" cut ", cuts_text(program.mesh, slot.sharding.dims)),
               rank_local_text(program.mesh, slot.sharding.rank_local, slot.representative), "\n");
  }
  for (size_t i = 0; i < program.constants.size(); ++i) {
    out += cat("constant ", program.constants[i].type().text(), " at ", program.constant_offsets[i], "\n");
  }
  for (const ProgramScalar& scalar : program.scalars)
    out += cat("scalar ", name_text(scalar.name), " at ", location_text(scalar.location), "\n");
  for (const ProgramPort& port : program.inputs) out += "input " + port_text(program, port);
  for (const ProgramPort& port : program.outputs) out += "output " + port_text(program, port);
  for (int c = 0; c < std::ssize(program.calls); ++c) {
    out += cat("run ", program.calls[c].text());
    for (const CallWait& wait : program.waits[c])
      out += cat(" waits ", wait.event, wait.instruction < 0 ? "" : cat(" at ", wait.instruction));
    out += "\n";
  }
  if (program.numbers_event >= 0) out += cat("numbers record ", program.numbers_event, "\n");
  out += cat("commit at ", program.commit_begin, "\n");
  for (const Block& block : program.blocks) {
    out += cat("block ", block.id.text(), " from ", block.first, " to ", block.last, "\n");
    for (int i = block.first; i < block.last; ++i) out += instruction_text(program.instructions[i], i);
  }
  return out;
}

}  // namespace epl
