#include "core/program/held.h"

#include <algorithm>
#include <numeric>

#include "core/ir/op.h"
#include "core/program/moves.h"
#include "core/program/transfer.h"

namespace epl {

std::string_view held_name(Held held) {
  static constexpr std::array<std::string_view, helds.size()> names = {"input",
                                                                       "kept for the backward pass",
                                                                       "result",
                                                                       "recomputed",
                                                                       "gathered weight",
                                                                       "fetched",
                                                                       "gradient",
                                                                       "gradient of a result",
                                                                       "optimizer temporary",
                                                                       "communication",
                                                                       "workspace"};
  return names[static_cast<size_t>(held)];
}

HeldArena::HeldArena(const Program& program, const LocalGraph& local)
    : program_(program), local_(local), lives_(lives_of(program)), phases_(phases_of(program, local)) {
  for (const Instruction& in : program.instructions) {
    const auto is_again = [&](const DoneNode& node) { return local.again.contains(node.name); };
    again_.push_back(!in.nodes.empty() && std::ranges::all_of(in.nodes, is_again));
  }
  // First what comes and goes, then the sums.
  over_time_.assign(static_cast<size_t>(lives_.instructions) + 1, HeldBytes{});
  for (const Life& life : lives_.ranges) {
    for (size_t c = 0; c < life.contents.size(); ++c) {
      const auto kind = static_cast<size_t>(held(life.contents[c], end(life, c)));
      const int next = c + 1 < life.contents.size() ? life.contents[c + 1].time : life.last + 1;
      over_time_[static_cast<size_t>(life.contents[c].time)][kind] += life.bytes;
      over_time_[static_cast<size_t>(next)][kind] -= life.bytes;
    }
  }
  for (size_t t = 1; t < over_time_.size(); ++t) {
    for (size_t kind = 0; kind < helds.size(); ++kind) over_time_[t][kind] += over_time_[t - 1][kind];
  }
  over_time_.pop_back();
}

int64_t HeldArena::bytes_at(int time) const {
  const HeldBytes& bytes = over_time_[static_cast<size_t>(time)];
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

int HeldArena::fullest() const {
  int most = over_time_.empty() ? -1 : 0;
  for (int t = 1; t < lives_.instructions; ++t) {
    if (bytes_at(t) > bytes_at(most)) most = t;
  }
  return most;
}

std::vector<HeldValue> HeldArena::at(int time) const {
  std::vector<HeldValue> out;
  for (const Life& life : lives_.ranges) {
    if (time < life.first || time > life.last) continue;
    size_t content = 0;
    while (content + 1 < life.contents.size() && life.contents[content + 1].time <= time) ++content;
    out.push_back(describe(life, content));
  }
  return out;
}

std::string_view HeldArena::mark(int instruction) const {
  const Instruction& in = program_.instructions[static_cast<size_t>(instruction)];
  if (in.transfer && in.transfer->evicts) return "evicted";
  if (in.transfer && in.transfer->fetches) return "fetched";
  if (phases_[static_cast<size_t>(instruction)] != Phase::update && gathers_weight(instruction, 0)) return "gathered";
  return again_[static_cast<size_t>(instruction)] ? "recomputed" : "";
}

// An operand is read by the instruction that writes over it.
int HeldArena::end(const Life& life, size_t content) {
  return content + 1 < life.contents.size() ? life.contents[content + 1].time : life.last;
}

Held HeldArena::held(const Life::Content& content, int last) const {
  const Instruction& in = program_.instructions[static_cast<size_t>(content.instruction)];
  const TransferRow* transfer = in.transfer;
  const Phase phase = phases_[static_cast<size_t>(content.instruction)];
  const auto user = static_cast<size_t>(lives_.order[static_cast<size_t>(last)]);
  if (content.output < 0) {
    // Sums over micro-batches wait there.
    if (transfer && transfer->held_bytes) return phase == Phase::backward ? Held::gradient : Held::workspace;
    return in.group >= 0 ? Held::communication : Held::workspace;
  }
  if (transfer && transfer->fetches) return Held::fetched;
  if (phase == Phase::update) return Held::optimizer;
  if (gathers_weight(content.instruction, content.output)) return Held::gathered;
  const bool from_caller =
      std::ranges::any_of(in.inputs, [](const Location& at) { return at.space == Location::Space::input; });
  if (transfer && from_caller) return Held::input;
  if (again_[static_cast<size_t>(content.instruction)]) return Held::recomputed;
  if (phase == Phase::forward) return phases_[user] == Phase::forward ? Held::result : Held::kept;
  const TransferRow* taken_by = program_.instructions[user].transfer;
  if (taken_by && taken_by->scatters) return Held::communication;
  const bool summed = taken_by && taken_by->held_bytes;
  return phases_[user] == Phase::update || summed ? Held::gradient : Held::flowing;
}

bool HeldArena::gathers_weight(int instruction, int output) const {
  const Instruction& in = program_.instructions[static_cast<size_t>(instruction)];
  if (!in.transfer || !in.transfer->gathers) return false;
  const Graph& graph = local_.graph;
  const NodeId n = graph.find_node(in.name);
  if (!n || output >= std::ssize(graph.node(n).inputs)) return false;
  Value v = graph.node(n).inputs[static_cast<size_t>(output)];
  // Perhaps brought from another memory, or looked at in another shape.
  while (v && graph.value(v).producer) {
    const Node& made = graph.node(graph.value(v).producer);
    if (!made.op->view && !is_fetch(made)) return false;
    v = made.inputs[0];
  }
  return v && graph.value(v).kind == ValueKind::parameter;
}

HeldValue HeldArena::describe(const Life& life, size_t content) const {
  const Life::Content& at = life.contents[content];
  const Instruction& in = program_.instructions[static_cast<size_t>(at.instruction)];
  HeldValue out{.held = held(at, end(life, content)),
                .name = in.name,
                .node = in.name,
                .phase = phases_[static_cast<size_t>(at.instruction)],
                .bytes = life.own_bytes};
  const NodeId n = local_.graph.find_node(in.name);
  if (!n) return out;
  const Node& node = local_.graph.node(n);
  out.node = node.source.empty() ? node.origin_name() : node.source;
  // Of a region several nodes may have given the results.
  const auto output = static_cast<size_t>(std::max(at.output, 0));
  if (at.output >= 0 && in.nodes.size() <= 1 && output < node.outputs.size() && node.outputs[output])
    out.name = local_.graph.value(node.outputs[output]).name;
  return out;
}

}  // namespace epl
