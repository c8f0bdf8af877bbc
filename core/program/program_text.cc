// The .program text form: what one rank runs, with every address.
#include "core/ir/text.h"
#include "core/program/program.h"

namespace epl {
namespace {

std::string_view kind_name(Instruction::Kind kind) {
  switch (kind) {
    case Instruction::Kind::launch: return "launch";
    case Instruction::Kind::slice: return "slice";
    case Instruction::Kind::accumulate: return "accumulate";
    case Instruction::Kind::all_reduce: return "all_reduce";
    case Instruction::Kind::copy: return "copy";
    case Instruction::Kind::emit: return "emit";
  }
  return "?";
}

std::string location_text(const Location& at) {
  switch (at.space) {
    case Location::Space::none: return "_";
    case Location::Space::arena: return cat("@", at.offset);
    case Location::Space::state: return cat("state@", at.offset);
    case Location::Space::constant: return cat("const@", at.offset);
    case Location::Space::scalar: return cat("scalar@", at.offset);
    case Location::Space::input: return at.stride ? cat("in", at.index, "+", at.stride) : cat("in", at.index);
  }
  return "?";
}

std::string operands_text(const std::vector<Location>& places, const std::vector<TensorType>& types) {
  std::string out;
  for (size_t i = 0; i < places.size(); ++i) {
    out += cat(i ? ", " : "", location_text(places[i]));
    if (places[i].space != Location::Space::none) out += ":" + types[i].text();
  }
  return out;
}

}  // namespace

std::string print_program(const Program& program) {
  std::string out = cat("program ", program.name, " ranks ", program.ranks, " micro_batches ", program.micro_batches, " units ",
                        program.units, "\n");
  out += cat("memory ", grouped(program.memory_bytes_peak()), " bytes: arena ", grouped(program.arena_bytes), ", state ",
             grouped(program.state_bytes), ", constants ", grouped(program.constant_bytes), ", scalars ",
             grouped(program.scalar_bytes), "\n");
  for (const StateSlot& slot : program.state) {
    out += cat("state@", slot.offset, " ", value_kind_name(slot.kind), " ", name_text(slot.name), " ", slot.type.text(), "\n");
  }
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    out += cat("in", i, " ", name_text(program.inputs[i].name), " ", program.inputs[i].global_type.text(), "\n");
  }
  for (const auto& [name, at] : program.scalars) out += cat(location_text(at), " ", name_text(name), "\n");
  std::string runs;
  for (const Action& action : program.schedule) runs += cat(" ", block_name(action.block), "(", action.micro_batch, ")");
  out += cat("schedule", runs, "\ncommit at ", program.commit_begin, "\n");
  for (const Block& block : program.blocks) {
    if (block.first == block.last) continue;
    out += cat(block_name(block.kind), ":\n");
    for (int i = block.first; i < block.last; ++i) {
      const Instruction& in = program.instructions[i];
      out += cat("  ", i, " ", kind_name(in.kind), " ");
      if (in.row) out += cat(in.query->op, ".", in.row->name, " ");
      out += name_text(in.name) + " " + operands_text(in.inputs, in.query->input_types);
      if (!in.outputs.empty()) out += " -> " + operands_text(in.outputs, in.query->output_types);
      if (in.port >= 0) out += cat(" -> ", name_text(program.outputs[in.port].name));
      if (in.workspace.space != Location::Space::none) out += cat(" workspace ", location_text(in.workspace), ":", in.workspace_bytes);
      if (in.query->units != 1) out += cat(" units ", in.query->units);
      out += attributes_text(in.query->attributes) + "\n";
    }
  }
  return out;
}

}  // namespace epl
