// What a step asks of a device and of its links, beside what these can do: a roofline of each stage, and bytes over
// each level of links with the least seconds that they need. All seconds are those of the cost model of the plan's
// device.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/backend/link_bound.h"
#include "core/program/step_trace.h"

namespace epl {

class CompiledPlan;

// Kernels of a rank in a step (Williams, Waterman, Patterson, 2009). What it copies and moves is no part of this.
struct StageRoofline {
  // Of one kind of work on one type, which have one rate.
  struct Part {
    WorkKind kind = WorkKind::product;
    DType dtype = DType::f32;
    double rate = 0;  // operations per second
    int64_t kernels = 0;
    double flops = 0, bytes = 0;
    double computing = 0, memory = 0;  // seconds of operations alone, and of what is read and written alone
    double seconds = 0;                // of each kernel the longer of both, and its launch
  };
  double bandwidth = 0;  // of the memory
  std::vector<Part> parts;
  int64_t kernels = 0;
  double flops = 0, bytes = 0, computing = 0, memory = 0, seconds = 0;
  double launching = 0;

  double intensity() const { return bytes > 0 ? flops / bytes : 0; }  // operations for each byte
  bool is_bound_by_memory() const { return memory > computing; }
};
std::string_view work_name(WorkKind kind);
StageRoofline roofline_of(const CompiledPlan& plan, const RankTrace& rank);

// What a call, or several, take by the way that is taken, and at least.
struct LinkSeconds {
  double seconds = 0, least = 0;
  int level = -1;  // of Machine::links, that needs the least; -1: it is not told what moves
  bool two_levels = false;
  void add(const LinkSeconds& other);
};

// What a rank sends in a step. What it gets by messages goes over links the other way, and is the sender's.
struct StepLinks {
  std::vector<LinkUse> uses;  // by level of Machine::links
  LinkSeconds all;            // the least: that of all calls, which may take place at one time
};

// Calls of one rank, one after the other.
class RankLinks {
 public:
  RankLinks(const CompiledPlan& plan, const RankTrace& rank);
  // Of what a rank does with others.
  LinkSeconds add(const TraceEvent& event);
  StepLinks step() const;

 private:
  struct Call {
    LinkSeconds seconds;
    std::vector<LinkUse> uses;
    std::vector<LinkNeed> needs;
  };
  Call call_of(const TraceEvent& event) const;

  const RankTrace& rank_;
  const CostModel cost_;
  const bool levels_;
  std::map<int, Call> known_;  // by instruction
  StepLinks step_;
  LinkNeeds needs_;
};

// For people, the lines of `epl plan`. `names`: of virtual devices, that the others go by.
std::string rooflines_text(const std::vector<StageRoofline>& stages, const std::vector<std::string>& names);
std::string links_text(const Machine& machine, const std::vector<StepLinks>& ranks,
                       const std::vector<std::string>& names);
// Behind what else is known of calls; empty where nothing is.
std::string link_seconds_text(const Machine& machine, const LinkSeconds& calls);

}  // namespace epl
