// What a step asks of a device and of its links, in lines for people.
#include <charconv>

#include "core/base/seconds_text.h"
#include "core/base/text.h"
#include "core/compile/step_costs.h"

namespace epl {
namespace {

std::string with_digits(double value, int digits) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, digits).ptr;
  return {text, end};
}

// "80.0 Gflop/s".
std::string rate_text(double rate, std::string_view unit) {
  static constexpr std::string_view prefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t at = 0;
  for (; rate >= 1000 && at + 1 < std::size(prefixes); ++at) rate /= 1000;
  return cat(with_digits(rate, 1), " ", prefixes[at], unit, "/s");
}

std::string count_text(double count) { return grouped(static_cast<int64_t>(count + 0.5)); }

std::string link_text(const Machine::Link& link) {
  return cat(link_name(link), " (", rate_text(link.bandwidth, "B"), ", ", seconds_text(link.seconds), " a message)");
}

std::string times_text(const LinkSeconds& calls) {
  return calls.least > 0 ? cat(with_digits(calls.seconds / calls.least, 2), " times as long") : std::string();
}

}  // namespace

std::string rooflines_text(const std::vector<StageRoofline>& stages, const std::vector<std::string>& names) {
  std::string out = "roofline of the kernels of a step, by a rank of each virtual device:\n";
  for (size_t s = 0; s < stages.size(); ++s) {
    const StageRoofline& one = stages[s];
    if (one.kernels == 0) continue;
    out += cat("  ", names[s], ": ", count_text(one.flops), " operations, ", count_text(one.bytes), " bytes, ",
               with_digits(one.intensity(), 2), " operations a byte; ", seconds_text(one.computing), " computing, ",
               seconds_text(one.memory), " reading and writing, ", seconds_text(one.launching), " in ",
               grouped(one.kernels), " launches; ", one.is_bound_by_memory() ? "memory" : "computing",
               " bounds it; memory has ", rate_text(one.bandwidth, "B"));
    for (const StageRoofline::Part& part : one.parts)
      out += cat(", ", work_name(part.kind), " of ", dtype_name(part.dtype), " ", rate_text(part.rate, "flop"));
    out += "\n";
  }
  return out;
}

std::string link_seconds_text(const Machine& machine, const LinkSeconds& calls) {
  if (calls.level < 0 || !(calls.least > 0)) return "";
  return cat("; by the cost model ", seconds_text(calls.seconds), calls.two_levels ? " in two levels" : "",
             ", links need ", seconds_text(calls.least), " (",
             link_name(machine.links[static_cast<size_t>(calls.level)]), "), ", times_text(calls));
}

std::string links_text(const Machine& machine, const std::vector<StepLinks>& ranks,
                       const std::vector<std::string>& names) {
  std::string out;
  size_t slowest = 0;
  for (size_t v = 0; v < ranks.size(); ++v) {
    if (ranks[v].all.least > ranks[slowest].all.least) slowest = v;
  }
  if (ranks.empty() || !(ranks[slowest].all.least > 0)) return out;
  out += "links of a step, and what a rank of each virtual device sends over them by the cost model:\n";
  for (size_t l = 0; l < machine.links.size(); ++l) {
    out += cat("  ", link_text(machine.links[l]));
    for (size_t v = 0; v < ranks.size(); ++v) {
      out += cat(v == 0 ? ": " : "; ", names[v], " ", count_text(ranks[v].uses[l].bytes), " bytes in ",
                 seconds_text(ranks[v].uses[l].seconds));
    }
    out += "\n";
  }
  const LinkSeconds& all = ranks[slowest].all;
  return out + cat("link-capacity bound of a step: ", seconds_text(all.least), " (a rank of ", names[slowest],
                   ", links of ", link_name(machine.links[static_cast<size_t>(all.level)]),
                   "); the ways that are taken: ", seconds_text(all.seconds), ", ", times_text(all), "\n");
}

}  // namespace epl
