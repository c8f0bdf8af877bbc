// What libepl.so has of NVIDIA GPUs: the name of the device, of the pack that is one, and what is known of some GPUs.
#include "backends/cuda/sheets/sheets.h"
#include "core/backend/pack_device.h"
#include "core/base/pack.h"

namespace epl {

EPL_PACK(cuda) { return {.doc = "NVIDIA GPUs as the device cuda", .packages = "no package", .device = "cuda"}; }

EPL_BACKEND(cuda) {
  return {
      .name = "cuda",
      .doc = "NVIDIA GPUs, by the pack cuda: rank r on GPU r, counted around; cuda:1 or cuda:0,2 names some",
      .open =
          [](const Host& host, const DeviceOptions& options) {
            return open_pack_devices("cuda", host, options, cuda::device_sheets());
          },
      .numbered = true,
      .sheets = cuda::device_sheets(),
      .plan_for = [](const Host& host, const DeviceSheet& sheet) { return plan_for_pack_device("cuda", host, sheet); }};
}

}  // namespace epl
