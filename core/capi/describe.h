// JSON for people and tools: what the epl_..._describe functions return.
#pragma once

#include <string>

#include "core/capi/handle.h"

namespace epl {
class Model;
}

namespace epl::capi {

std::string describe_engine(const Engine& engine);
std::string describe_model(const Model& model, bool rewrites);

}  // namespace epl::capi
