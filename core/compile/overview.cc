#include "core/compile/overview.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/program/describe.h"
#include "core/program/transfer.h"
#include "core/strategy/mesh_text.h"

namespace epl {
namespace {

// Times that differ by less are the same, and spans that are shorter are not drawn apart.
constexpr double finest = 1.0 / 4000, same = 1e-6;
constexpr size_t max_memory_points = 200;

const Entry& entry_of(const CompiledPlan& plan) { return plan.entries().front(); }

std::string_view phase_word(Phase phase, BlockKind block) {
  if (block_name(block) == "weight") return "weight";
  return phase == Phase::forward ? "forward" : phase == Phase::backward ? "backward" : "update";
}

class TraceRows {
 public:
  TraceRows(const CompiledPlan& plan, const StepTrace& trace) : begin_(trace.begin()), seconds_(trace.end() - begin_) {
    const Entry& entry = entry_of(plan);
    for (size_t t = 0; t < entry.programs.size(); ++t) {
      phases_.push_back(phases_of(entry.programs[t], entry.locals[t]));
      held_.emplace_back(entry.programs[t], entry.locals[t]);
    }
    for (const RankTrace& rank : trace.ranks) add(rank);
    if (std::ssize(trace.ranks) == plan.options().ranks) return;
    // Those of the trace represent all of their virtual device.
    for (Overview::Row& row : rows_) row.ranks = plan.mesh(row.virtual_device).device.ranks;
  }
  std::vector<Overview::Row> take() { return std::move(rows_); }

 private:
  void add(const RankTrace& rank) {
    Overview::Row row{.ranks = {rank.rank}, .virtual_device = rank.virtual_device, .spans = spans_of(rank)};
    const auto alike = [&](const Overview::Row& other) {
      return other.virtual_device == row.virtual_device &&
             std::ranges::equal(other.spans, row.spans, [&](auto& a, auto& b) {
               return a.kind == b.kind && a.micro_batch == b.micro_batch &&
                      std::abs(a.begin - b.begin) < same * seconds_ && std::abs(a.end - b.end) < same * seconds_;
             });
    };
    if (const auto found = std::ranges::find_if(rows_, alike); found != rows_.end()) {
      found->ranks.push_back(rank.rank);
      return;
    }
    add_memory(rank, row);
    row.marks = marks_of(rank);
    rows_.push_back(std::move(row));
  }

  std::vector<Overview::Span> spans_of(const RankTrace& rank) const {
    std::vector<Overview::Span> spans;
    const auto add = [&](std::string_view kind, int64_t micro_batch, double begin, double end) {
      if (end <= begin) return;
      Overview::Span* last = spans.empty() ? nullptr : &spans.back();
      const bool touches = last && begin - last->end < finest * seconds_;
      if (touches && last->micro_batch == micro_batch && (last->kind == kind || end - begin < finest * seconds_)) {
        last->end = end;
        return;
      }
      spans.push_back({std::string(kind), micro_batch, touches ? last->end : begin, end});
    };
    for (const TraceEvent& event : rank.events) {
      const Instruction* in = rank.instruction(event);
      if (in && in->stream != 0) continue;
      const BlockCall& call = rank.program->calls[static_cast<size_t>(event.call)];
      const int64_t micro_batch = block_loops(call.block) ? call.micro_batch : -1;
      const bool computes = in && in->group < 0;
      add(computes ? phase_word(phase(rank, event), call.block) : "moving", micro_batch, event.moves - begin_,
          event.end - begin_);
    }
    return spans;
  }

  Phase phase(const RankTrace& rank, const TraceEvent& event) const {
    return phases_[static_cast<size_t>(rank.virtual_device)][static_cast<size_t>(event.instruction)];
  }

  const HeldArena& held(const RankTrace& rank) const { return held_[static_cast<size_t>(rank.virtual_device)]; }

  // The most of each of many short times.
  void add_memory(const RankTrace& rank, Overview::Row& row) const {
    int at = 0;
    for (const TraceEvent& event : rank.events) {
      if (event.instruction == TraceEvent::agreement) continue;
      const HeldBytes& by_kind = held(rank).over_time()[static_cast<size_t>(at)];
      const int64_t bytes = held(rank).bytes_at(at++);
      const double time = event.begin - begin_;
      const bool near =
          !row.memory.empty() && time - row.memory.back().first < seconds_ / static_cast<double>(max_memory_points);
      if (near && bytes <= row.memory.back().second) continue;
      if (!near) {
        row.memory.emplace_back(time, bytes);
        row.held.push_back(by_kind);
      } else {
        row.memory.back().second = bytes;
        row.held.back() = by_kind;
      }
    }
  }

  std::vector<Overview::Mark> marks_of(const RankTrace& rank) const {
    std::vector<Overview::Mark> marks;
    std::map<std::string_view, size_t> latest;  // by what they are
    for (const TraceEvent& event : rank.events) {
      const Instruction* in = rank.instruction(event);
      const std::string_view what = in ? held(rank).mark(event.instruction) : "";
      if (what.empty()) continue;
      const double begin = event.moves - begin_, end = event.end - begin_;
      const auto [found, is_new] = latest.try_emplace(what, marks.size());
      if (is_new || begin - marks[found->second].end > seconds_ / static_cast<double>(max_memory_points)) {
        found->second = marks.size();
        marks.push_back({.what = std::string(what), .begin = begin, .end = end});
      }
      Overview::Mark& mark = marks[found->second];
      mark.end = std::max(mark.end, end);
      mark.bytes += result_side(*in);
      ++mark.count;
    }
    return marks;
  }

  // Of what an instruction gives; of what goes to another memory, all of it.
  static int64_t result_side(const Instruction& in) {
    int64_t bytes = 0;
    for (int o = 0; o < in.query->outputs(); ++o) bytes += in.query->out(o).bytes();
    return bytes;
  }

  double begin_, seconds_;
  std::vector<std::vector<Phase>> phases_;  // by virtual device, then by instruction
  std::vector<HeldArena> held_;             // by virtual device
  std::vector<Overview::Row> rows_;
};

// The first rank of each virtual device speaks for all of them.
std::vector<const RankTrace*> first_ranks(const StepTrace& trace, size_t virtual_devices) {
  std::vector<const RankTrace*> first(virtual_devices, nullptr);
  for (const RankTrace& rank : trace.ranks) {
    const RankTrace*& one = first[static_cast<size_t>(rank.virtual_device)];
    if (!one) one = &rank;
  }
  return first;
}

Overview::VirtualDevice describe_virtual_device(const CompiledPlan& plan, const RankTrace& rank,
                                                const StepTrace& trace) {
  Overview::VirtualDevice out;
  const Entry& entry = entry_of(plan);
  const auto t = static_cast<size_t>(rank.virtual_device);
  for (const StateSlot& slot : plan.state_of(rank.virtual_device).slots()) {
    if (slot.kind != ValueKind::parameter || slot.is_represented()) continue;
    ++out.parameters;
    out.parameter_bytes += slot.local.bytes();
  }
  const std::vector<Phase> phases = phases_of(entry.programs[t], entry.locals[t]);
  for (const TraceEvent& event : rank.events) {
    const Instruction* in = rank.instruction(event);
    if (!in || in->group >= 0 || !block_loops(rank.program->calls[static_cast<size_t>(event.call)].block)) continue;
    const Phase phase = phases[static_cast<size_t>(event.instruction)];
    (phase == Phase::forward ? out.forward_seconds : out.backward_seconds) += event.end - event.begin;
  }
  const auto micro_batches = static_cast<double>(entry.plan.micro_batches());
  out.forward_seconds /= micro_batches;
  out.backward_seconds /= micro_batches;
  out.time = time_of(rank, trace.begin(), trace.end());
  out.peak = peak_of(plan, rank.virtual_device);
  out.roofline = roofline_of(plan, rank);
  return out;
}

StepLinks add_collectives(const CompiledPlan& plan, const RankTrace& rank, std::vector<Overview::Collective>& out) {
  std::map<std::tuple<std::string, int, BlockKind>, size_t> rows;
  RankLinks links(plan, rank);
  for (const TraceEvent& event : rank.events) {
    const Instruction* in = rank.instruction(event);
    if (!in || !rank.group(event)) continue;
    const BlockKind block = rank.program->calls[static_cast<size_t>(event.call)].block;
    const auto [row, is_new] = rows.try_emplace({in->transfer->name, in->group, block}, out.size());
    if (is_new) {
      const ProgramGroup& group = rank.program->groups[static_cast<size_t>(in->group)];
      out.push_back({.what = in->transfer->name,
                     .axis = group.virtual_device < 0 ? group.axis
                                                      : entry_of(plan).plan.virtual_device_name(group.virtual_device),
                     .virtual_device = rank.virtual_device,
                     .block = std::string(block_name(block)),
                     .ranks = static_cast<int64_t>(rank.group(event)->size())});
    }
    Overview::Collective& one = out[row->second];
    ++one.calls;
    one.bytes += largest_side(*in);
    one.moving += event.end - event.moves;
    one.waiting += event.moves - event.begin;
    one.links.add(links.add(event));
  }
  return links.step();
}

std::string kind_word(ValueKind kind) {
  switch (kind) {
    case ValueKind::parameter:
      return "parameter";
    case ValueKind::buffer:
      return "buffer";
    case ValueKind::input:
      return "input";
    default:
      return "result";
  }
}

// The virtual devices besides its own that use a value.
std::vector<int> other_virtual_devices(const Plan& plan, Value v, const std::vector<NodeId>& users) {
  std::vector<int> others;
  for (const NodeId node : users) {
    const int at = plan.node_task_graph[node];
    if (at == every_task_graph || plan.virtual_device_of(at) == plan.virtual_device_of(v)) continue;
    if (std::ranges::find(others, plan.virtual_device_of(at)) == others.end())
      others.push_back(plan.virtual_device_of(at));
  }
  return others;
}

// Why a parameter that several stages use lies as it does.
std::string reason_of_lent(const Plan& plan, Value v, const std::vector<int>& others) {
  std::string names;
  for (const int at : others) names += cat(names.empty() ? "" : ", ", plan.virtual_device_name(at));
  const bool replicated = std::ranges::all_of(plan.shardings[v].dims, &Cuts::empty);
  return cat(names, others.size() == 1 ? " uses" : " use",
             " it as well: ", plan.virtual_device_name(plan.virtual_device_of(v)), " keeps it",
             replicated ? " replicated" : "", ", sends it there in each step, and gets its gradient back");
}

// Why a node lies so: first how it is cut, then where it is. A weight has no samples.
std::string ordered_reason(const std::string& why, bool weight) {
  std::string out, location;
  for (size_t from = 0; from < why.size();) {
    const size_t to = std::min(why.find("; ", from), why.size());
    const std::string_view one = std::string_view(why).substr(from, to - from);
    if (from == 0 && one.starts_with("in ")) {
      location = one;
    } else if (!weight || !one.starts_with("cut by samples")) {
      out += cat(out.empty() ? "" : "; ", one);
    }
    from = to + 2;
  }
  return location.empty() ? out : cat(out, out.empty() ? "" : "; ", location);
}

// Parameters, buffers, inputs, and what the forward pass computes: the rest lies as these do.
std::vector<Overview::Tensor> tensors_of(const Plan& plan) {
  const Graph& graph = *plan.graph;
  const auto users = graph.users();
  const auto why = [&](NodeId node) { return plan.why.empty() ? std::string() : plan.why[node]; };
  std::vector<Overview::Tensor> out;
  for (const Value v : graph.value_ids()) {
    const ValueInfo& info = graph.value(v);
    const bool leaf =
        info.kind == ValueKind::parameter || info.kind == ValueKind::buffer || info.kind == ValueKind::input;
    const bool result = info.producer && graph.node(info.producer).phase == Phase::forward;
    if (!leaf && !result) continue;
    const auto& used_by = users[v];
    std::string reason = result ? ordered_reason(why(info.producer), false) : "";
    if (leaf && !used_by.empty()) {
      const std::string& node = graph.node(used_by.front()).name;
      const std::string of_node = ordered_reason(why(used_by.front()), true);
      reason = info.kind == ValueKind::input && info.batch_dim >= 0
                   ? cat("dimension ", info.batch_dim, " counts samples")
               : of_node.empty() ? cat("as ", node, " reads it")
                                 : cat(of_node, " (", node, " reads it)");
      const std::vector<int> others = other_virtual_devices(plan, v, used_by);
      if (!others.empty() && info.kind != ValueKind::input) reason = reason_of_lent(plan, v, others);
    }
    const Sharding& sharding = plan.shardings[v];
    const int at = plan.value_task_graph[v];
    const Mesh& mesh = plan.mesh(at);
    Overview::Tensor& made = out.emplace_back(Overview::Tensor{
        .name = info.name,
        .kind = kind_word(info.kind),
        .type = info.type.text(),
        .sharding = cat(cuts_text(mesh, sharding.dims), sharding.rank_local
                                                            ? cat(" on shard ", sharding.rank_local.shard, " of ",
                                                                  axis_names(mesh, sharding.rank_local.axes))
                                                            : ""),
        .why = reason,
        .scope = plan.task_graphs[static_cast<size_t>(at)].scope});
    for (const Cuts& cuts : sharding.dims) {
      made.shards *= mesh.shards(cuts);
      for (const AxisCut& cut : cuts) {
        for (int axis : cut.axes) {
          const MeshAxis& one = mesh.axes[static_cast<size_t>(axis)];
          made.cut_over_ranks = made.cut_over_ranks || (one.kind == MeshAxis::Kind::rank && one.size > 1);
        }
      }
    }
  }
  return out;
}

}  // namespace

Overview make_overview(const CompiledPlan& plan, const Rehearsal& rehearsal) {
  const StepTrace& trace = rehearsal.trace;
  Overview out;
  out.device = rehearsal.device;
  out.seconds = trace.end() - trace.begin();
  for (const RankTrace& rank : trace.ranks) {
    const RankTime time = time_of(rank, trace.begin(), trace.end());
    const auto share = 1.0 / static_cast<double>(trace.ranks.size());
    out.time.computing += time.computing * share;
    out.time.moving += time.moving * share;
    out.time.waiting += time.waiting * share;
  }
  for (const RankTrace* rank : first_ranks(trace, entry_of(plan).programs.size())) {
    out.virtual_devices.push_back(describe_virtual_device(plan, *rank, trace));
    out.virtual_devices.back().links = add_collectives(plan, *rank, out.collectives);
  }
  out.rows = TraceRows(plan, trace).take();
  out.tensors = tensors_of(entry_of(plan).plan);
  return out;
}

}  // namespace epl
