// JSON for people and tools: what the epl_..._describe functions return.
#pragma once

#include <string>

#include "core/capi/handle.h"

namespace epl {
class CompiledPlan;
class Model;
}

namespace epl::capi {

std::string describe_engine(const Engine& engine);
std::string describe_model(const Model& model, bool rewrites);
// Bytes by purpose, and when each range of the train step's arena is alive.
std::string describe_memory(const CompiledPlan& plan);
std::string describe_parameters(const CompiledPlan& plan);

}  // namespace epl::capi
