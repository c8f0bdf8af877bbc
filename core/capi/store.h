// What epl_session_options say of the processes of a job.
#pragma once

#include "core/capi/objects.h"

namespace epl::capi {

// It may have to reach a store elsewhere.
Result<SessionOptions> session_options(const epl_session_options& known, const epl_plan& plan, const Stop& stop);

}  // namespace epl::capi
