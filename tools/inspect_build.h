// What this build can do, on a screen.
#pragma once

#include "tools/json.h"

namespace epl::tools {

// `engine` is what epl_engine_describe says. The whole of it is `epl inspect --json`.
void print_build(const Json& engine);

}  // namespace epl::tools
