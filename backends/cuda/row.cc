// What libepl.so has of NVIDIA GPUs: the name of the device, and of the pack that is one.
#include "core/backend/pack_device.h"
#include "core/base/pack.h"

namespace epl {

EPL_PACK(cuda) { return {.doc = "NVIDIA GPUs as the device cuda", .packages = "no package", .device = "cuda"}; }

EPL_BACKEND(cuda) {
  return {.name = "cuda",
          .doc = "an NVIDIA GPU, by the pack cuda; ranks share it",
          .open = [](const Host& host, const DeviceOptions&) { return open_pack_device("cuda", host, 0); }};
}

}  // namespace epl
