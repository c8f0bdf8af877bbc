#include "core/strategy/pass.h"

#include <algorithm>

#include "core/base/options.h"

namespace epl {

const std::string& default_passes() {
  static const std::string list =
      "place; propagate; segments; split; rows; flow; sequence; schedule; reduce; zero; recompute; offload";
  return list;
}

Status run_passes(Plan& plan, const PlanRequest& request, std::string_view list,
                  const std::function<void(const std::string&, const Plan&)>& after) {
  EPL_ASSIGN(const std::vector<RowText> passes, parse_rows(list, ';', "pass"));
  const CostModel cost(request.machine);
  for (const RowText& pass : passes) {
    EPL_ASSIGN(const PassRow* row, find_named(pass_table(), pass.name, "strategy pass"));
    const std::string what = cat("pass ", row->name);
    EPL_ASSIGN(Attributes options, parse_options(pass.options, row->options, what));
    EPL_ASSIGN(options, complete_options(row->options, options, what));
    PassContext context{plan, request, cost, std::move(options)};
    if (Status status = row->run(context); !status.ok()) return status.with_context(cat("pass ", row->name));
    if (Status status = verify_plan(plan); !status.ok()) return status.with_context(cat("after pass ", row->name));
    if (after) after(row->name, plan);
  }
  return {};
}

Status several_micro_batches(const Plan& plan, const Node& node) {
  return Status(Code::unsupported,
                cat(plan.coupled, "; it cannot run for one of ", plan.micro_batches(), " micro-batches at a time"),
                node.name);
}

namespace {

// The size of the global batch: every input that counts samples must agree.
Result<int64_t> batch_size(const Graph& graph) {
  int64_t batch = 0;
  std::string from;
  for (Value v : graph.leaves(ValueKind::input)) {
    const ValueInfo& info = graph.value(v);
    if (info.batch_dim < 0) continue;
    int64_t size = info.type.dim(info.batch_dim);
    if (batch != 0 && size != batch) {
      return invalid("input ", info.name, " has ", size, " samples in dimension ", info.batch_dim, " but ", from,
                     " has ", batch, "; name the dimension that counts samples for each input, or -1 for none");
    }
    batch = size;
    from = info.name;
  }
  return batch;
}

Result<Plan> run_all(const PlanRequest& request, std::string& coupled) {
  Plan plan;
  plan.graph = request.graph;
  plan.strategy = request.strategy;
  plan.coupled = coupled;
  EPL_ASSIGN(plan.rules, node_rules(*request.graph));
  EPL_ASSIGN(plan.batch, batch_size(*request.graph));
  plan.independent_micro_batches = plan.batch > 0 && independent_micro_batches(request.strategy) > 1;
  if (plan.independent_micro_batches) plan.batch *= independent_micro_batches(request.strategy);
  plan.passes = request.passes.empty() ? default_passes() : request.passes;
  const Status made = run_passes(plan, request, plan.passes);
  coupled = plan.coupled;
  return made.ok() ? Result<Plan>(std::move(plan)) : made;
}

}  // namespace

// Ranks exchange values where samples are coupled, micro-batches do not: there the batch goes through as one, for the
// same answer.
Result<Plan> decide(const PlanRequest& request) {
  if (request.ranks < 1) return invalid("a plan needs at least one rank, got ", request.ranks);
  EPL_TRY(check_built(request.strategy));
  std::string coupled;
  Result<Plan> plan = run_all(request, coupled);
  return plan.ok() || coupled.empty() ? std::move(plan) : run_all(request, coupled);
}

}  // namespace epl
