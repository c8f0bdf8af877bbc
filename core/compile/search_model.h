// The layers of a model as a search problem: from plans that are made and rehearsed, one for each way to cut a layer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/compile/compiled_plan.h"
#include "core/program/step_trace.h"
#include "core/strategy/search_problem.h"

namespace epl {

// A plan of one copy, whose ranks cut all nodes alike, in one stage and one micro-batch; and the first train step of
// it, rehearsed. Where experts are shared out, it has as many copies as share them, and zero.level is off.
struct RehearsedForm {
  std::string name;       // of the form; empty: nothing is cut
  bool sequence = false;  // as SearchForm::sequence
  int64_t experts = 1;    // as SearchForm::experts
  std::shared_ptr<const CompiledPlan> plan;
  StepTrace trace;
};

// Nodes of the forward pass that see the inputs, in their order, are cut into layers: those whose names share a number
// ("h.3."), what comes before the first of these, and what comes behind the last. In a model without such names each
// node is a layer. What follows a node, as its gradients and the transfers of its results, is of its layer.
//
// Seconds are those of the rehearsed step. They are taken to grow with the samples, but for launches and for reading
// weights. A layer may compute everything again but what comes into it, or all but its products.
//
// All plans must be of one model and one batch. `ranks`: of the job. An error where no input counts samples.
Result<SearchProblem> search_problem_of(const std::vector<RehearsedForm>& forms, int64_t ranks);

}  // namespace epl
