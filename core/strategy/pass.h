// Strategy passes: one file each in core/strategy/passes. A pass writes decisions into the plan's tables and never
// rewrites the graph. The pass list is text: `place; propagate; schedule`, with options in brackets as
// `zero(level=v2)`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/backend/cost_model.h"
#include "core/ir/op.h"
#include "core/strategy/plan.h"
#include "core/strategy/samples.h"
#include "core/strategy/solved_recompute.h"

namespace epl {

struct PlanRequest {
  std::shared_ptr<const Graph> graph;
  Strategy strategy;
  int64_t ranks = 1;
  std::string passes;  // empty: the default list
  // Of an entry that shares its state with this one: what state it has lies here as it does there. Null: none.
  const Plan* state_of = nullptr;
  // Where outputs count samples, for an independent micro-batch of one sample: its own graph does not show it.
  SamplePositions outputs = {};
  Machine machine = processor_core();  // by whose seconds one way is weighed against another
  // Where values may lie that nobody uses; device: there is no other memory.
  MemoryKind beside = MemoryKind::host;
  SolvedRecompute* solved = nullptr;  // of a search; null: nothing has been solved before
};
// All decisions of a step, and nothing made of them: `lower` (core/program/program.h) makes programs. So a search may
// decide as often as it likes.
Result<Plan> decide(const PlanRequest& request);

struct PassContext {
  Plan& plan;
  const PlanRequest& request;
  const CostModel& cost;  // of the request's machine
  Attributes options;     // those of the row, with their defaults
};
struct PassRow {
  std::string name;
  std::string doc;
  std::vector<Option> options;
  Status (*run)(PassContext&) = nullptr;
};
using PassTable = TableOf<PassRow>;
const PassTable& pass_table();  // generated
const std::string& default_passes();

// Runs a pass list, verifying the plan after each; `after` (optional) sees the plan after every pass.
Status run_passes(Plan& plan, const PlanRequest& request, std::string_view list,
                  const std::function<void(const std::string& pass, const Plan&)>& after = nullptr);

// Where `node` makes Plan::coupled true of several micro-batches: the error of its pass, for which decide has an
// answer.
Status several_micro_batches(const Plan& plan, const Node& node);

#define EPL_PASS(row_name) EPL_ROW(EPL_PASS, row_name, ::epl::PassTable, ::epl::PassRow)

}  // namespace epl
