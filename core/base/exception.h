// Exceptions as values, where they end: at the top of threads and of the C API.
#pragma once

#include "core/base/status.h"

namespace epl {

// The status of the exception being handled. Memory that ran out is `Code::out_of_memory`, a failed check of our own
// `Code::internal`.
Status current_exception_status() noexcept;

}  // namespace epl
