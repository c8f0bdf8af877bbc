// What a compiled plan says of itself, its memory, its texts and why it is as it is, and the text of an overview.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "core/base/seconds_text.h"
#include "core/base/shown.h"
#include "core/base/text.h"
#include "core/compile/budget.h"
#include "core/compile/overview.h"
#include "core/compile/peak.h"
#include "core/compile/plan_memory.h"
#include "core/compile/process_memory.h"
#include "core/program/kernel_report.h"
#include "core/program/link.h"

namespace epl {
namespace {

std::string percent(double part, double all) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f%%", all > 0 ? 100 * part / all : 0);
  return text;
}

// "0 to 15", or "0, 4, 8".
std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return cat("rank ", ranks.front());
  const bool run = ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size());
  if (run) return cat("ranks ", ranks.front(), " to ", ranks.back());
  std::vector<std::string> names;
  for (size_t i = 0; i < ranks.size() && i < 8; ++i) names.push_back(cat(ranks[i]));
  return cat("ranks ", join(names, ", "), ranks.size() > 8 ? ", ..." : "");
}

std::string coordinates_text(const Mesh& mesh) {
  std::vector<std::string> parts;
  for (const MeshAxis& axis : mesh.axes) {
    if (axis.kind == MeshAxis::Kind::rank && (axis.size > 1 || mesh.ranks() == 1))
      parts.push_back(cat(axis.name, " ", axis.size));
  }
  return join(parts, " x ");
}

// "task graph a (stage 0, 12 nodes)", for each one that runs there.
std::string task_graphs_text(const Plan& plan, int virtual_device) {
  std::vector<std::string> parts;
  for (const TaskGraph& one : plan.task_graphs) {
    if (one.virtual_device != virtual_device) continue;
    parts.push_back(cat("task graph ", one.scope, " (", plan.stages() > 1 ? cat("stage ", one.stage, ", ") : "",
                        one.nodes, " nodes)"));
  }
  return join(parts, " and ");
}

struct TensorGroup {
  const Overview::Tensor* first = nullptr;
  int count = 0;
};

std::string shardings_text(const Overview& overview, const std::string& kind) {
  std::vector<std::pair<std::string, TensorGroup>> groups;
  for (const Overview::Tensor& tensor : overview.tensors) {
    if (tensor.kind != kind || !tensor.cut_over_ranks) continue;
    const std::string key = without_numbers(tensor.name) + tensor.type + tensor.sharding + without_numbers(tensor.why);
    auto found = std::ranges::find(groups, key, &std::pair<std::string, TensorGroup>::first);
    if (found == groups.end()) found = groups.insert(groups.end(), {key, {.first = &tensor}});
    ++found->second.count;
  }
  std::string out;
  for (const auto& [key, group] : groups) {
    const Overview::Tensor& tensor = *group.first;
    out += cat("  ", group.count > 1 ? without_numbers(tensor.name) : tensor.name,
               group.count > 1 ? cat(" (", group.count, ")") : "", ": ", tensor.type, " ", tensor.sharding,
               tensor.why.empty() ? "" : cat(": ", tensor.why), "\n");
  }
  return out;
}

// The arena of a rank in tenths of a step: the fullest moment of each, what has most of it, and what changes it.
std::string tenths_text(const Overview& overview, const Overview::Row& row) {
  std::string out = "the arena over a step, in tenths of it:\n";
  size_t next = 0;
  for (int tenth = 0; tenth < 10 && !row.memory.empty(); ++tenth) {
    const double begin = overview.seconds * tenth / 10, end = overview.seconds * (tenth + 1) / 10;
    // What is there when it begins is there in it.
    size_t shown = next > 0 ? next - 1 : 0;
    for (; next < row.memory.size() && (row.memory[next].first < end || tenth == 9); ++next) {
      if (row.memory[next].second > row.memory[shown].second) shown = next;
    }
    const HeldBytes& held = row.held[shown];
    const auto most = static_cast<size_t>(std::ranges::max_element(held) - held.begin());
    std::set<std::string> marks;
    for (const Overview::Mark& mark : row.marks) {
      if (mark.begin < end && mark.end > begin) marks.insert(mark.what);
    }
    const std::vector<std::string> changes(marks.begin(), marks.end());
    out += cat("  ", grouped(row.memory[shown].second), " bytes, most of it ", held_name(helds[most]),
               changes.empty() ? "" : cat("; ", join(changes, ", ")), "\n");
  }
  return out;
}

// What is asked of the devices and of their links.
std::string costs_text(const CompiledPlan& plan, const Overview& overview) {
  std::vector<StageRoofline> stages;
  std::vector<StepLinks> links;
  std::vector<std::string> names;
  for (size_t v = 0; v < overview.virtual_devices.size(); ++v) {
    stages.push_back(overview.virtual_devices[v].roofline);
    links.push_back(overview.virtual_devices[v].links);
    names.push_back(plan.entries().front().plan.virtual_device_name(static_cast<int>(v)));
  }
  return rooflines_text(stages, names) + links_text(plan.device()->machine(), links, names);
}

}  // namespace

std::string explain(const CompiledPlan& plan, const Overview& overview) {
  const Entry& entry = plan.entries().front();
  std::string out;
  for (size_t c = 0; c < overview.virtual_devices.size(); ++c) {
    const Mesh& mesh = entry.plan.meshes[c];
    const Overview::VirtualDevice& one = overview.virtual_devices[c];
    out +=
        cat("virtual device of ", task_graphs_text(entry.plan, static_cast<int>(c)), ": ",
            ranks_text(mesh.device.ranks), " (", coordinates_text(mesh), "), ", one.parameters, " parameters of ",
            grouped(one.parameter_bytes), " bytes a rank; a micro-batch takes ", seconds_text(one.forward_seconds),
            " forward", one.backward_seconds > 0 ? cat(" and ", seconds_text(one.backward_seconds), " backward") : "",
            "; memory of a rank ", grouped(PlanMemory(plan).peak(static_cast<int>(c))), " bytes\n");
  }
  if (const std::string cut = shardings_text(overview, "parameter"); !cut.empty())
    out += cat("parameters in shards:\n", cut);
  if (!overview.collectives.empty()) out += "moved in a step, by a rank of each virtual device:\n";
  for (const Overview::Collective& one : overview.collectives) {
    out += cat("  ", entry.plan.virtual_device_name(one.virtual_device), ", ", one.block, ": ", grouped(one.calls), " ",
               one.what, " over ", one.axis, " (", one.ranks, " ranks), ", grouped(one.bytes), " bytes, ",
               seconds_text(one.moving), link_seconds_text(plan.device()->machine(), one.links), "\n");
  }
  out += costs_text(plan, overview);
  out += cat("predicted step on ", overview.device, ": ", seconds_text(overview.seconds), ", of which ",
             percent(overview.time.computing, overview.seconds), " computing");
  if (plan.options().ranks > 1) {
    out += cat(", ", percent(overview.time.moving, overview.seconds), " moving, ",
               percent(overview.time.waiting, overview.seconds), " waiting for others");
  }
  out += cat("\nthese seconds rest on ", basis_text(plan.device()->machine(), plan.device()->description()), "\n");
  const int fullest = PlanMemory(plan).fullest_class();
  const auto row = std::ranges::find(overview.rows, fullest, &Overview::Row::virtual_device);
  return row == overview.rows.end() ? out : out + tenths_text(overview, *row);
}

Result<std::string> CompiledPlan::text(EntryKind kind, std::string_view stage, int shape) const {
  const Entry* found = entry(kind, shape);
  if (!found) return error(Code::not_found, "the plan has no ", entry_name(kind, shape), " entry");
  if (stage == "graph") return print_graph(*found->graph);
  if (stage == "plan") return print_plan(found->plan);
  std::string out;
  for (size_t t = 0; t < found->programs.size(); ++t) {
    if (stage == "local") out += print_local(found->locals[t]);
    if (stage == "program") out += print_program(found->programs[t]);
    if (stage == "kernels") {
      out += report_kernels(found->programs[t], device_->notes());
      out += report_recording(*device_, found->plan.ranks());
    }
    if (stage == "texts") out += report_texts(found->programs[t], *device_);
  }
  if (!out.empty() || stage == "texts") return out;
  return error(Code::not_found, "no stage ", shown(stage, 200));
}

namespace {

std::string with_mebibytes(int64_t bytes) {
  const int64_t tenths = (bytes * 10 + (1 << 19)) >> 20;
  return cat(grouped(bytes), " bytes (", tenths / 10, ".", tenths % 10, " MiB)");
}

std::string fit_text(int64_t needs, int64_t has) {
  if (needs > has)
    return cat("the plan does not fit: a rank needs ", grouped(needs - has), " bytes more than the ", grouped(has),
               " bytes of its device\n");
  return cat("the plan fits: of ", grouped(has), " bytes of its device a rank leaves ", with_mebibytes(has - needs),
             "; what the driver takes for kernels and for itself comes out of these\n");
}

// A line for each parameter, but one for many with the same reason: a frozen model has hundreds.
template <class List> std::string untrained_text(const List& untrained) {
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const auto& [name, reason] : untrained) by_reason[reason].push_back(name);
  std::string out;
  for (const auto& [reason, names] : by_reason) {
    if (names.size() <= 4) {
      for (const std::string& name : names) out += cat("not trained: ", name, ": ", reason, "\n");
    } else {
      out += cat("not trained: ", names.size(), " parameters, from ", names.front(), " to ", names.back(), ": ", reason,
                 "\n");
    }
  }
  return out;
}

// What there is at the peak, by what it is for, and what takes most of it.
std::string peak_text(const Peak& peak) {
  std::string out = cat("at that peak, in ", peak.entry, ":\n");
  for (const MemoryItem& item : peak.kinds) out += cat("  ", item.what, ": ", grouped(item.bytes), "\n");
  out += "the most bytes there have:\n";
  for (const Peak::Value& value : peak.largest) {
    out += cat("  ", grouped(value.bytes), ": ", value.name, value.values > 1 ? cat(" (", value.values, ")") : "", ", ",
               value.kind, value.phase.empty() ? "" : cat(", made in phase ", value.phase, " by ", value.node), "\n");
  }
  return out;
}

std::string trials_text(const std::vector<BudgetTrial>& tried) {
  std::string out = tried.empty() ? "" : "planned for memory.budget:\n";
  for (const BudgetTrial& trial : tried) {
    out += cat("  ", trial_text(trial), ": ", grouped(trial.peak), " bytes, ", seconds_text(trial.seconds), ", ",
               outcome_name(trial.outcome), "\n");
  }
  return out;
}

}  // namespace

std::string CompiledPlan::explain() const {
  const Entry& train = entries_.front();  // or predict, where that is all there is
  const Plan& plan = train.plan;
  std::string out =
      cat("device: ", device_->description(), ", ", options_.ranks, " rank(s) of ", threads_, " thread(s)\n");
  const std::string ranks = cat(plan.mesh().size(data_axis), " rank(s)"),
                    in_time = cat(plan.micro_batches(), " micro-batch(es)");
  const bool time_first = plan.batch_of(0).time_first(plan.mesh());
  out +=
      cat("batch: ", plan.batch, " samples = ", time_first ? in_time : ranks, " x ", time_first ? ranks : in_time,
          " x ", plan.mesh().size(unit_axis), " unit(s) of ",
          plan.batch / std::max<int64_t>(plan.units() * (plan.independent_micro_batches ? plan.micro_batches() : 1), 1),
          "\n");
  for (int shape = 0; shapes() > 1 && shape < shapes(); ++shape) {
    const Entry& of_shape = *entry(train.kind, shape);
    out +=
        cat("shape ", shape, ": ", inputs_text(of_shape), "; ", of_shape.name(), " needs ",
            grouped(of_shape.programs[static_cast<size_t>(PlanMemory(*this).fullest_class())].memories[0].arena_bytes),
            " bytes of the arena\n");
  }
  for (size_t t = 0; t < train.programs.size(); ++t) {
    out += cat(entry_name(train.kind),
               train.programs.size() == 1 ? "" : cat(", stage ", plan.virtual_device_name(static_cast<int>(t))), ": ",
               train.programs[t].instructions.size(), " instructions, ",
               grouped(static_cast<int64_t>(train.programs[t].flops)), " floating-point operations a rank\n");
  }
  if (train.kind == EntryKind::train) out += cat("parameters trained: ", trained_.size(), "\n");
  if (!adapters_.empty())
    out += cat("low-rank adapters: ", adapters_.size(), ", the first beside ", adapters_[0].weight, " with rank ",
               adapters_[0].spec.rank, "\n");
  out += untrained_text(untrained_);
  out += cat("memory of a rank at its peak: ", with_mebibytes(PlanMemory(*this).peak()), "\n");
  for (const MemoryItem& item : PlanMemory(*this).items()) out += cat("  ", item.what, ": ", grouped(item.bytes), "\n");
  if (const int64_t has = device_->memory_bytes(); has > 0) out += fit_text(PlanMemory(*this).peak(), has);
  out += peak_text(peak_of(*this, PlanMemory(*this).fullest_class())) + trials_text(options_.tried);
  const ProcessMemory process = process_memory(*this);
  out += cat("memory of the process at its peak, saving and exporting included: about ", with_mebibytes(process.peak),
             "\n");
  for (const MemoryItem& item : process.items) out += cat("  ", item.what, ": ", grouped(item.bytes), "\n");
  int references = 0;
  for (const Program& program : train.programs) {
    for (const Instruction& in : program.instructions) references += in.row && in.row->name == "reference";
  }
  if (references)
    out += cat("kernels: ", references, " instruction(s) run by slow references; see epl inspect MODEL --kernels\n");
  if (options_.decisions) out += "why: the decisions are those of a plan file\n";
  for (const std::string& note : device_->notes()) out += cat("why: ", note, "\n");
  for (const std::string& note : notes_) out += cat("note: ", note, "\n");
  for (const std::string& note : plan.notes) out += cat("why: ", note, "\n");
  return out;
}

}  // namespace epl
