// The text of an overview.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "core/base/text.h"
#include "core/runtime/overview.h"

namespace epl {
namespace {

std::string seconds_text(double seconds) {
  char text[40];
  if (seconds >= 1) {
    std::snprintf(text, sizeof text, "%.2f s", seconds);
  } else if (seconds >= 1e-3) {
    std::snprintf(text, sizeof text, "%.2f ms", seconds * 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.1f us", seconds * 1e6);
  }
  return text;
}

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

std::string places_text(const Mesh& mesh) {
  std::vector<std::string> parts;
  for (const MeshAxis& axis : mesh.axes) {
    if (axis.kind == MeshAxis::Kind::rank && (axis.size > 1 || mesh.ranks() == 1))
      parts.push_back(cat(axis.name, " ", axis.size));
  }
  return join(parts, " x ");
}

// "task graph a (stage 0, 12 nodes)", for each one that runs there.
std::string task_graphs_text(const Plan& plan, int rank_class) {
  std::vector<std::string> parts;
  for (const TaskGraph& one : plan.task_graphs) {
    if (one.rank_class != rank_class) continue;
    parts.push_back(cat("task graph ", one.scope, " (", plan.stages() > 1 ? cat("stage ", one.stage, ", ") : "",
                        one.nodes, " nodes)"));
  }
  return join(parts, " and ");
}

// Layers are alike: "transformer.h.*.ln_1.weight" for twelve.
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

}  // namespace

std::string explain(const CompiledPlan& plan, const Overview& overview) {
  const Entry& entry = plan.entries().front();
  std::string out;
  for (size_t c = 0; c < overview.classes.size(); ++c) {
    const Mesh& mesh = entry.plan.meshes[c];
    const Overview::Class& one = overview.classes[c];
    out +=
        cat("virtual device of ", task_graphs_text(entry.plan, static_cast<int>(c)), ": ",
            ranks_text(mesh.device.ranks), " (", places_text(mesh), "), ", one.parameters, " parameters of ",
            grouped(one.parameter_bytes), " bytes a rank; a micro-batch takes ", seconds_text(one.forward_seconds),
            " forward", one.backward_seconds > 0 ? cat(" and ", seconds_text(one.backward_seconds), " backward") : "",
            "; memory of a rank ", grouped(plan.memory_bytes_peak(static_cast<int>(c))), " bytes\n");
  }
  if (const std::string cut = shardings_text(overview, "parameter"); !cut.empty())
    out += cat("parameters in pieces:\n", cut);
  if (!overview.collectives.empty()) out += "moved in a step, by a rank of each virtual device:\n";
  for (const Overview::Collective& one : overview.collectives) {
    out += cat("  ", entry.plan.class_name(one.rank_class), ", ", one.block, ": ", grouped(one.calls), " ", one.what,
               " over ", one.axis, " (", one.ranks, " ranks), ", grouped(one.bytes), " bytes, ",
               seconds_text(one.moving), "\n");
  }
  out += cat("predicted step on ", overview.device, ": ", seconds_text(overview.seconds), ", of which ",
             percent(overview.time.computing, overview.seconds), " computing");
  if (plan.options().ranks > 1) {
    out += cat(", ", percent(overview.time.moving, overview.seconds), " moving, ",
               percent(overview.time.waiting, overview.seconds), " waiting for others");
  }
  return out + "\n";
}

}  // namespace epl
