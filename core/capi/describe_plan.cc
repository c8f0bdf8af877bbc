#include <map>

#include "core/base/json.h"
#include "core/capi/describe.h"
#include "core/program/transfer.h"
#include "core/runtime/process_memory.h"

namespace epl::capi {
namespace {

struct Range {
  std::string name;
  const char* kind;
  int64_t offset, bytes;
  int first, last;
};

// The phase of each node of the local graph, which instructions carry in their name.
using Phases = std::map<std::string, Phase, std::less<>>;

Phase phase_of(const Instruction& in, const Phases& phases) {
  const auto at = phases.find(in.name);
  return at == phases.end() ? Phase::forward : at->second;
}

const char* range_kind(const Instruction& in, const Phases& phases) {
  if (in.transfer && !in.transfer->holds.empty()) return in.transfer->holds.c_str();
  switch (phase_of(in, phases)) {
    case Phase::backward:
      return "gradient";
    case Phase::update:
      return "update";
    default:
      return "activation";
  }
}

// When each range of the arena is alive, from what instructions write and release.
std::vector<Range> arena_ranges(const Program& program, const Phases& phases) {
  std::vector<Range> done;
  std::map<int64_t, Range> open;  // by offset
  const int count = static_cast<int>(program.instructions.size());
  for (int i = 0; i < count; ++i) {
    const Instruction& in = program.instructions[static_cast<size_t>(i)];
    for (size_t o = 0; o < in.outputs.size(); ++o) {
      const Location& at = in.outputs[o];
      if (at.space != Location::Space::arena || open.contains(at.offset)) continue;
      const int64_t bytes =
          in.query && static_cast<int>(o) < in.query->outputs() ? in.query->out(static_cast<int>(o)).bytes() : in.bytes;
      for (int64_t slot = 0; slot < at.slots; ++slot) {
        const int64_t offset = at.offset_of(slot);
        open[offset] = {in.name, range_kind(in, phases), offset, bytes, i, count - 1};
      }
    }
    if (in.workspace_bytes > 0) done.push_back({in.name, "scratch", in.workspace.offset, in.workspace_bytes, i, i});
    for (const Instruction::Release& release : in.releases) {
      for (int64_t slot = 0; slot < release.slots; ++slot) {
        const int64_t begin = release.offset + slot * release.stride;
        auto it = open.lower_bound(begin);
        while (it != open.end() && it->first < begin + std::max<int64_t>(release.bytes, 1)) {
          it->second.last = i;
          done.push_back(it->second);
          it = open.erase(it);
        }
      }
    }
  }
  for (auto& [offset, range] : open) done.push_back(range);
  return done;
}

}  // namespace

std::string describe_memory(const CompiledPlan& plan) {
  Json out;
  out["peak_bytes"] = plan.memory_bytes_peak();
  out["arena_bytes"] = plan.arena_bytes();
  Json items = Json::array();
  for (const MemoryItem& item : plan.memory_items()) items.push_back({{"what", item.what}, {"bytes", item.bytes}});
  out["items"] = items;
  const ProcessMemory process = process_memory(plan);
  Json parts = Json::array();
  for (const MemoryItem& item : process.items) parts.push_back({{"what", item.what}, {"bytes", item.bytes}});
  out["process_bytes"] = process.peak;
  out["process_items"] = parts;
  const auto fullest = static_cast<size_t>(plan.fullest_task_graph());
  const Program& program = plan.entries().front().programs[fullest];
  out["arena_live_bytes"] = program.arena_live_bytes;
  out["instructions"] = program.instructions.size();
  Json blocks = Json::array();
  for (const Block& block : program.blocks)
    blocks.push_back({{"name", block_name(block.kind)}, {"first", block.first}, {"last", block.last}});
  out["blocks"] = blocks;
  Phases phases;
  const Graph& graph = plan.entries().front().locals[fullest].graph;
  for (const Node& node : graph.nodes()) phases.emplace(node.name, node.phase);
  // Where the forward pass of a micro-batch ends and where the backward pass does.
  int backward = -1, update = -1;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Phase phase = phase_of(program.instructions[i], phases);
    if (phase == Phase::backward && backward < 0) backward = static_cast<int>(i);
    if (phase == Phase::update && update < 0) update = static_cast<int>(i);
  }
  out["backward_from"] = backward;
  out["update_from"] = update;
  Json ranges = Json::array();
  for (const Range& r : arena_ranges(program, phases)) {
    ranges.push_back({{"name", r.name},
                      {"kind", r.kind},
                      {"offset", r.offset},
                      {"bytes", r.bytes},
                      {"first", r.first},
                      {"last", r.last}});
  }
  out["ranges"] = ranges;
  return print_json(out);
}

std::string describe_notes(const CompiledPlan& plan) { return print_json(Json(plan.notes())); }

std::string describe_parameters(const CompiledPlan& plan) {
  Json out = Json::array();
  for (const std::string& name : plan.trained()) {
    const StateSlot* slot = plan.state().find(name);
    Json one = {{"name", name}, {"trained", true}};
    if (slot) one["type"] = slot->type.text();
    out.push_back(std::move(one));
  }
  for (const auto& [name, reason] : plan.untrained())
    out.push_back({{"name", name}, {"trained", false}, {"reason", reason}});
  return print_json(out, 2);
}

}  // namespace epl::capi
