// A plan as people look at it: who runs what, how tensors lie and why, and a step in virtual time with its calls, its
// memory and what moves. The text of `epl plan` and its page are made of this.
#pragma once

#include <string>
#include <vector>

#include "core/compile/compiled_plan.h"
#include "core/compile/peak.h"
#include "core/compile/step_costs.h"
#include "core/program/held.h"
#include "core/program/step_trace.h"

namespace epl {

// A step in virtual time (core/runtime/rehearsal.h).
struct Rehearsal {
  std::string device;
  StepTrace trace;  // of the plan's first entry, of all ranks or of those that represent all
};

struct Overview {
  struct VirtualDevice {  // whose ranks run the same TaskGraphs
    int parameters = 0;
    int64_t parameter_bytes = 0;                       // of one rank
    double forward_seconds = 0, backward_seconds = 0;  // of the calls of one micro-batch
    RankTime time;                                     // of its first rank
    Peak peak;                                         // of a rank
    StageRoofline roofline;                            // the same
    StepLinks links;
  };
  // What a rank does for a while; waits are what is between.
  struct Span {
    std::string kind;  // "forward", "backward", "weight", "update" or "moving"
    int64_t micro_batch = -1;
    double begin = 0, end = 0;
    friend bool operator==(const Span&, const Span&) = default;
  };
  // What changes memory for a while: "recomputed", "gathered", "fetched" or "evicted".
  struct Mark {
    std::string what;
    double begin = 0, end = 0;
    int64_t bytes = 0;  // of what comes, or goes
    int count = 0;      // of instructions, which follow each other closely
  };
  struct Row {
    std::vector<int> ranks;  // that do the same at the same time
    int virtual_device = 0;
    std::vector<Span> spans;
    std::vector<std::pair<double, int64_t>> memory;  // bytes of the arena that are alive, from a time on
    std::vector<HeldBytes> held;                     // the same by what they are for
    std::vector<Mark> marks;
  };
  struct Collective {
    std::string what, axis;  // or the virtual device at the other end
    int virtual_device = 0;
    std::string block;
    int64_t ranks = 0, calls = 0, bytes = 0;  // of a step of one rank
    double moving = 0, waiting = 0;
    LinkSeconds links;
  };
  struct Tensor {
    std::string name, kind, type, sharding, why;
    std::string scope;  // of its TaskGraph
    int64_t shards = 1;
    bool cut_over_ranks = false;
  };
  std::string device;  // of the rehearsal
  double seconds = 0;
  RankTime time;  // mean of all ranks
  std::vector<VirtualDevice> virtual_devices;
  std::vector<Row> rows;
  std::vector<Collective> collectives;
  std::vector<Tensor> tensors;
};

Overview make_overview(const CompiledPlan& plan, const Rehearsal& rehearsal);
// What `CompiledPlan::explain` does not say.
std::string explain(const CompiledPlan& plan, const Overview& overview);

}  // namespace epl
