// What libepl.so has of NVIDIA GPUs: the name of the device, of the pack that is one, and what is known of some GPUs.
#include "backends/cuda/sheets/sheets.h"
#include "core/backend/pack_device.h"
#include "core/base/pack.h"

namespace epl {

EPL_PACK(cuda) { return {.doc = "NVIDIA GPUs as the device cuda", .packages = "no package", .device = "cuda"}; }

EPL_BACKEND(cuda) {
  return {
      .name = "cuda",
      .doc = "an NVIDIA GPU, by the pack cuda; ranks share it",
      .open = [](const Host& host,
                 const DeviceOptions&) { return open_pack_device("cuda", host, 0, cuda::device_sheets()); },
      .sheets = cuda::device_sheets(),
      .plan_for = [](const Host& host, const DeviceSheet& sheet) { return plan_for_pack_device("cuda", host, sheet); }};
}

}  // namespace epl
