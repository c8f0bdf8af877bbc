// Linked into a libepl.so for tests, makes its backend `cpu` the far device, so that all that uses the library runs
// there; with EPL_WITHOUT_COMPOSITES in the environment, the one that has no kernels of composites.
#include <cstdlib>

#include "core/backend/device.h"
#include "tests/backend/far_device.h"

namespace {
const bool added = (epl::add_backend(std::getenv("EPL_WITHOUT_COMPOSITES") ? epl::far_backend_of_parts("cpu", 5)
                                                                           : epl::far_backend("cpu", 5)),
                    true);
}  // namespace
