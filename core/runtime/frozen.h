// Frozen weights that a checkpoint leaves to the model's file. Beside low-rank adapters they are most of the weights,
// and the file has them.
#pragma once

#include <string>
#include <vector>

#include "core/runtime/checkpoint.h"
#include "core/runtime/session.h"

namespace epl {

// The frozen parameters of a session with adapters that are, to the bit, as the model's file has them. Their hash goes
// into `facts`.
Result<std::vector<std::string>> leave_to_the_file(Session& session, Facts& facts);
// Those that a checkpoint has left out, which must be the session's own.
Result<std::vector<std::string>> left_to_the_file(const Session& session, const Checkpoint& checkpoint,
                                                  const std::string& path);
// Sets them to the values of the model's file.
Status restore_from_the_file(Session& session, const std::vector<std::string>& names);

}  // namespace epl
