// Records of steps as a file for Perfetto and for chrome://tracing: ranks are processes, streams are threads. A call of
// a block encloses its instructions, which have their nodes' names; waiting for other ranks is apart from moving.
#pragma once

#include <string>

#include "core/compile/compiled_plan.h"
#include "core/program/step_trace.h"

namespace epl {

std::string print_trace(const CompiledPlan& plan, const StepTrace& trace, std::string_view device);

}  // namespace epl
