// What this build can do, on a screen.
#pragma once

#include "tools/json.h"

namespace epl::tools {

// `engine` is what epl_engine_describe says. All of it is in `epl inspect --json`.
void print_build(const Json& engine);

}  // namespace epl::tools
