// Linked into a libepl.so for tests, makes its backend `cpu` the far device, so that all that uses the library runs
// there.
#include "core/backend/device.h"
#include "tests/backend/far_device.h"

namespace {
const bool added = (epl::add_backend(epl::far_backend("cpu", 5)), true);
}  // namespace
