// The kernels of packs (core/base/pack.h) as rows of a table.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/backend/kernel.h"
#include "core/base/host.h"
#include "core/base/pack.h"

namespace epl {

// Adds the pack's rows for `device` behind those that `table` has. Added to an empty table they come first.
void add_pack_kernels(const epl_pack& pack, std::string_view device, KernelTable& table);

// The same for every pack that has kernels for `device`, of those that sum in any order only where `any_order` says so.
// A sentence about each goes to `notes`; one that cannot be opened is no error.
void add_packs(std::string_view device, bool any_order, const Host& host, KernelTable& table,
               std::vector<std::string>& notes);

}  // namespace epl
