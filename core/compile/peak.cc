#include "core/compile/peak.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/compile/plan_memory.h"
#include "core/program/held.h"
#include "core/program/memory.h"

namespace epl {
namespace {

constexpr size_t most_values = 12;

class PeakValues {
 public:
  void add(Peak::Value value) {
    by_kind_[value.kind] += value.bytes;
    all_ += value.bytes;
    const auto key = std::tuple(value.kind, value.phase, without_numbers(value.name), without_numbers(value.node));
    const auto [found, is_new] = alike_.try_emplace(key, value);
    if (is_new) return;
    Peak::Value& several = found->second;
    ++several.values;
    several.bytes += value.bytes;
    several.name = std::get<2>(key);
    several.node = std::get<3>(key);
  }
  // What has no name.
  void add(const std::string& kind, int64_t bytes) {
    by_kind_[kind] += bytes;
    all_ += bytes;
  }
  int64_t bytes() const { return all_; }

  Peak take(std::string entry) const {
    Peak out{.entry = std::move(entry)};
    for (const auto& [kind, bytes] : by_kind_) {
      if (bytes != 0) out.kinds.push_back({kind, bytes});
    }
    std::ranges::stable_sort(out.kinds, std::ranges::greater(), &MemoryItem::bytes);
    for (const auto& [key, value] : alike_) out.largest.push_back(value);
    std::ranges::stable_sort(out.largest, std::ranges::greater(), &Peak::Value::bytes);
    out.largest.resize(std::min(out.largest.size(), most_values));
    return out;
  }

 private:
  std::map<std::string, int64_t> by_kind_;
  std::map<std::tuple<std::string, std::string, std::string, std::string>, Peak::Value> alike_;
  int64_t all_ = 0;
};

std::string kind_of_state(const CompiledPlan& plan, const StateSlot& slot) {
  if (slot.kind == ValueKind::parameter) return "weight";
  if (slot.kind == ValueKind::buffer) return "buffer";
  return std::string(gradient_of(plan, slot.name).empty() ? "optimizer state" : held_name(Held::gradient));
}

}  // namespace

std::string without_numbers(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c < '0' || c > '9') {
      out += c;
    } else if (out.empty() || out.back() != '*') {
      out += '*';
    }
  }
  return out;
}

Peak peak_of(const CompiledPlan& plan, int virtual_device) {
  const auto at = static_cast<size_t>(virtual_device);
  const auto arena = [&](const Entry& entry) { return entry.programs[at].memories[0].arena_bytes; };
  const Entry& largest = *std::ranges::max_element(plan.entries(), {}, arena);
  PeakValues values;
  for (const StateSlot& slot : plan.state_of(virtual_device).slots()) {
    if (slot.is_represented() || slot.memory != MemoryKind::device) continue;
    values.add({.name = slot.name, .kind = kind_of_state(plan, slot), .bytes = aligned_bytes(slot.local.bytes())});
  }
  const HeldArena held(largest.programs[at], largest.locals[at]);
  if (const int fullest = held.fullest(); fullest >= 0) {
    for (const HeldValue& value : held.at(fullest)) {
      values.add({.name = value.name,
                  .node = value.node,
                  .phase = std::string(phase_name(value.phase)),
                  .kind = std::string(held_name(value.held)),
                  .bytes = value.bytes});
    }
  }
  for (const Entry& entry : plan.entries()) {
    values.add("constant", entry.programs[at].constant_bytes);
    values.add("number of a step", entry.own_bytes(virtual_device) - entry.programs[at].constant_bytes);
  }
  values.add("room between values", PlanMemory(plan).peak(virtual_device) - values.bytes());
  return values.take(largest.name());
}

}  // namespace epl
