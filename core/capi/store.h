// What epl_session_options say of the processes of a job.
#pragma once

#include "core/capi/objects.h"

namespace epl::capi {

Result<SessionOptions> session_options(const epl_session_options& known, const epl_plan& plan);

}  // namespace epl::capi
