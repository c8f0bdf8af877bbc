// The kernels of packs (core/base/pack.h) as rows of a table.
#pragma once

#include <string_view>

#include "core/backend/kernel.h"
#include "core/base/pack.h"

namespace epl {

// Adds the pack's rows for `device` behind those that `table` has. Added to an empty table they come first.
void add_pack_kernels(const epl_pack& pack, std::string_view device, KernelTable& table);

}  // namespace epl
