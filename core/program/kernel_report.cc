#include "core/program/kernel_report.h"

#include <map>
#include <set>
#include <utility>

#include "core/base/json.h"

namespace epl {
namespace {

struct Count {
  int instructions = 0;
  std::string first;  // a node, as an example
  void add(const std::string& node) {
    if (instructions++ == 0) first = node;
  }
  std::string text() const { return instructions == 1 ? first : cat(instructions, " instructions, the first ", first); }
};

struct KernelUse {
  Count count;
  std::map<std::pair<std::string, std::string>, Count> refused;  // by kernel and reason
};

}  // namespace

std::string report_kernels(const Program& program, const std::vector<std::string>& notes) {
  std::map<std::pair<std::string, std::string>, KernelUse> uses;  // by op and kernel
  for (const Instruction& in : program.instructions) {
    if (!in.row) continue;
    KernelUse& use = uses[{in.query->op, in.row->name}];
    use.count.add(in.name);
    for (const Refusal& refusal : in.refusals) use.refused[{refusal.kernel, refusal.reason}].add(in.name);
  }
  std::string out = cat("kernels of ", program.name, "\n");
  for (const std::string& note : notes) out += cat(note, "\n");
  for (const auto& [key, use] : uses) {
    out += cat(key.first, ": ", key.second, ", ", use.count.text(), "\n");
    for (const auto& [why, count] : use.refused)
      out += cat("  not ", why.first, ": ", why.second, " (", count.text(), ")\n");
  }
  return out;
}

std::string report_recording(const Device& device, int64_t ranks) {
  if (!device.records()) return "";
  if (ranks > 1) return cat("steps are given to the device anew each time: ", ranks, " ranks meet on the host\n");
  return "steps are recorded after the first one, and the device then carries out what was recorded\n";
}

std::string report_texts(const Program& program, const Device& device) {
  std::set<std::string> lines;
  const auto add = [&](const std::string& op, const std::string& kernel, const std::vector<KernelText>& texts) {
    for (const KernelText& text : texts)
      lines.insert(print_json(Json{{"op", op},
                                   {"kernel", kernel},
                                   {"entry", text.entry},
                                   {"threads", text.threads},
                                   {"shared_bytes", text.shared_bytes},
                                   {"options", text.options},
                                   {"source", text.source}}) +
                   "\n");
  };
  add("", "", device.texts());
  for (const Instruction& in : program.instructions)
    if (in.row && in.row->texts) add(in.query->op, in.row->name, in.row->texts(in.prepared.state.get()));
  std::string out;
  for (const std::string& line : lines) out += line;
  return out;
}

}  // namespace epl
