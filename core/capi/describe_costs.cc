// Of the document "overview": what a step asks of the devices and of their links, beside what these can do.
#include <algorithm>

#include "core/capi/describe.h"
#include "core/compile/overview.h"

namespace epl::capi {
namespace {

// "any ranks"; empty where it is not known.
std::string level_name(const Machine& machine, int level) {
  return level < 0 ? std::string() : link_name(machine.links[static_cast<size_t>(level)]);
}

}  // namespace

Json describe_roofline(const StageRoofline& one) {
  Json parts = Json::array();
  for (const StageRoofline::Part& part : one.parts) {
    parts.push_back({{"work", work_name(part.kind)},
                     {"type", dtype_name(part.dtype)},
                     {"rate", part.rate},
                     {"kernels", part.kernels},
                     {"flops", part.flops},
                     {"bytes", part.bytes},
                     {"computing", part.computing},
                     {"memory", part.memory},
                     {"seconds", part.seconds}});
  }
  return {{"flops", one.flops},
          {"bytes", one.bytes},
          {"intensity", one.intensity()},
          {"bandwidth", one.bandwidth},
          {"computing", one.computing},
          {"memory", one.memory},
          {"launching", one.launching},
          {"kernels", one.kernels},
          {"seconds", one.seconds},
          {"bound_by", one.is_bound_by_memory() ? "memory" : "computing"},
          {"parts", parts}};
}

Json describe_link_seconds(const Machine& machine, const LinkSeconds& calls) {
  return {{"seconds", calls.seconds},
          {"least_seconds", calls.least},
          {"level", level_name(machine, calls.level)},
          {"two_levels", calls.two_levels}};
}

// A level of links for each of the machine's, and of each virtual device what a rank of it sends over them.
Json describe_links(const Machine& machine, const Overview& overview) {
  Json levels = Json::array();
  for (size_t l = 0; l < machine.links.size(); ++l) {
    const Machine::Link& link = machine.links[l];
    Json bytes = Json::array(), seconds = Json::array();
    for (const Overview::VirtualDevice& one : overview.virtual_devices) {
      bytes.push_back(one.links.uses[l].bytes);
      seconds.push_back(one.links.uses[l].seconds);
    }
    levels.push_back({{"name", link_name(link)},
                      {"ranks", link.ranks},
                      {"bandwidth", link.bandwidth},
                      {"message_seconds", link.seconds},
                      {"rings", link.rings},
                      {"bytes", bytes},
                      {"seconds", seconds}});
  }
  return levels;
}

}  // namespace epl::capi
