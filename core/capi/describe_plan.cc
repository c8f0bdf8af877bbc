// The documents "memory", "notes" and "parameters" of a plan.
#include <algorithm>
#include <map>

#include "core/base/json.h"
#include "core/capi/describe.h"
#include "core/compile/peak.h"
#include "core/compile/plan_memory.h"
#include "core/compile/process_memory.h"
#include "core/program/describe.h"
#include "core/program/timeline.h"
#include "core/program/transfer.h"

namespace epl::capi {
namespace {

struct Range {
  std::string name;
  const char* kind;
  int64_t offset, bytes;
  int first, last;
};

const char* range_kind(const Instruction& in, Phase phase) {
  if (in.transfer && !in.transfer->holds.empty()) return in.transfer->holds.c_str();
  switch (phase) {
    case Phase::backward:
      return "gradient";
    case Phase::update:
      return "update";
    default:
      return "activation";
  }
}

// When each range of the arena is alive, from what instructions write and release.
class Arena {
 public:
  Arena(const Program& program, const Timeline& timeline, const std::vector<Phase>& phases)
      : program_(program), timeline_(timeline), phases_(phases) {}

  std::vector<Range> ranges() {
    for (const Timeline::Stretch& stretch : timeline_.stretches()) {
      const Block& block = program_.blocks[static_cast<size_t>(stretch.block)];
      for (int p = block.first; p < block.last; ++p) visit(stretch, p, stretch.begin + p - block.first);
    }
    for (auto& [offset, range] : open_) done_.push_back(range);
    return std::move(done_);
  }

 private:
  void visit(const Timeline::Stretch& stretch, int position, int time) {
    const Instruction& in = program_.instructions[static_cast<size_t>(position)];
    const int64_t micro_batch = std::max<int64_t>(stretch.micro_batch, 0);
    const bool last_iteration = stretch.micro_batch < 0 || micro_batch + 1 == program_.micro_batches();
    const bool writes = last_iteration || !in.transfer || !in.transfer->at_last_iteration;
    for (size_t o = 0; writes && o < in.outputs.size(); ++o) {
      if (!in.outputs[o].in_arena()) continue;
      const int64_t offset = program_.offset_of(in.outputs[o], micro_batch);
      const int64_t bytes =
          in.query && static_cast<int>(o) < in.query->outputs() ? in.query->out(static_cast<int>(o)).bytes() : in.bytes;
      // Where nobody noted that what was there is dead.
      const bool in_place = std::ranges::any_of(in.inputs, [&](const Location& from) {
        return from.in_arena() && program_.offset_of(from, micro_batch) == offset;
      });
      const auto there = open_.find(offset);
      if (!in_place && there != open_.end() && there->second.name != in.name) close(offset, bytes, time - 1);
      open_.try_emplace(offset, Range{in.name, range_kind(in, phases_[static_cast<size_t>(position)]), offset, bytes,
                                      time, timeline_.end() - 1});
    }
    if (in.workspace_bytes > 0) {
      const int64_t offset = program_.offset_of(in.workspace, micro_batch);
      done_.push_back({in.name, "scratch", offset, in.workspace_bytes, time, time});
    }
    for (const Instruction::Release& release : in.releases) {
      if (!release.last_iteration || last_iteration)
        close(program_.offset_of(release.at, micro_batch), release.bytes, time);
    }
  }

  void close(int64_t begin, int64_t bytes, int time) {
    auto it = open_.lower_bound(begin);
    while (it != open_.end() && it->first < begin + std::max<int64_t>(bytes, 1)) {
      it->second.last = time;
      done_.push_back(it->second);
      it = open_.erase(it);
    }
  }

  const Program& program_;
  const Timeline& timeline_;
  const std::vector<Phase>& phases_;  // by instruction
  std::vector<Range> done_;
  std::map<int64_t, Range> open_;  // by offset
};

}  // namespace

void add_fit(const CompiledPlan& plan, Json& to) {
  const int64_t has = plan.device()->memory_bytes();
  if (has == 0) return;
  to["device_bytes"] = has;
  to["fits"] = PlanMemory(plan).peak() <= has;
}

std::string describe_memory(const CompiledPlan& plan) {
  Json out = {{"schema", 1}};
  out["peak_bytes"] = PlanMemory(plan).peak();
  out["arena_bytes"] = PlanMemory(plan).arena();
  add_fit(plan, out);
  Json items = Json::array();
  for (const MemoryItem& item : PlanMemory(plan).items()) items.push_back({{"what", item.what}, {"bytes", item.bytes}});
  out["items"] = items;
  out["peak"] = describe_peak(peak_of(plan, PlanMemory(plan).fullest_class()));
  out["tried"] = describe_trials(plan.options().tried);
  const ProcessMemory process = process_memory(plan);
  Json parts = Json::array();
  for (const MemoryItem& item : process.items) parts.push_back({{"what", item.what}, {"bytes", item.bytes}});
  out["process_bytes"] = process.peak;
  out["process_items"] = parts;
  // Of a predictor that this plan is the one of, beside a session of this plan; where the session has another plan, it
  // also has room for the largest weight.
  int64_t predictor = 0;
  for (int v = 0; v < plan.virtual_devices(); ++v)
    predictor += PlanMemory(plan).prediction(v) * std::ssize(plan.mesh(v).device.ranks);
  out["predictor_bytes"] = predictor;
  const auto fullest = static_cast<size_t>(PlanMemory(plan).fullest_class());
  const Program& program = plan.entries().front().programs[fullest];
  out["arena_live_bytes"] = program.memories[0].arena_live_bytes;
  const Timeline timeline(program);
  out["instructions"] = timeline.end();
  Json blocks = Json::array();
  for (const Timeline::Stretch& stretch : timeline.stretches()) {
    const Block& block = program.blocks[static_cast<size_t>(stretch.block)];
    const int last = stretch.begin + block.last - block.first;
    blocks.push_back({{"name", block.id.text()}, {"first", stretch.begin}, {"last", last}});
  }
  out["blocks"] = blocks;
  const std::vector<Phase> phases = phases_of(program, plan.entries().front().locals[fullest]);
  // Where the forward pass of a micro-batch ends and where the backward pass does.
  int backward = -1, update = -1;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Phase phase = phases[i];
    const int time = timeline.first(static_cast<int>(i));
    if (phase == Phase::backward && backward < 0) backward = time;
    if (phase == Phase::update && update < 0) update = time;
  }
  out["backward_from"] = backward;
  out["update_from"] = update;
  Json ranges = Json::array();
  for (const Range& r : Arena(program, timeline, phases).ranges()) {
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
