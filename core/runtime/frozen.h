// Frozen weights that a checkpoint leaves to the model's file: beside low-rank adapters they are nearly all there is,
// and the file has them.
#pragma once

#include <string>
#include <vector>

#include "core/capi/objects.h"
#include "core/runtime/checkpoint.h"

namespace epl::capi {

// The frozen parameters of a session with adapters that are, to the bit, as the model's file has them. Their hash goes
// into `facts`.
Result<std::vector<std::string>> leave_to_the_file(const epl_session& handle, Facts& facts);
// Those that a checkpoint has left out, which must be the session's own.
Result<std::vector<std::string>> left_to_the_file(const epl_session& handle, const Checkpoint& checkpoint,
                                                  const std::string& path);
// Makes them again what the model's file has.
Status restore_from_the_file(epl_session& handle, const std::vector<std::string>& names);

}  // namespace epl::capi
