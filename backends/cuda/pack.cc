// libepl_cuda.so: NVIDIA GPUs as a device. It is built with the ordinary compiler and no toolkit: what it calls of
// NVIDIA's libraries it declares itself (api/), and opens at run time. See docs/packs.md.
#include "backends/cuda/verbs.h"

extern "C" __attribute__((visibility("default"))) const epl_pack* epl_pack_entry(void) {
  using namespace epl::cuda;
  static const epl_pack pack = {.struct_size = sizeof(epl_pack),
                                .abi = EPL_PACK_ABI,
                                .reserved = 0,
                                .name = "cuda",
                                .version = "CUDA 13.0, opened at run time",
                                .device = "cuda",
                                .kernels = pack_rows().data(),
                                .kernel_count = pack_rows().size(),
                                .codecs = nullptr,
                                .codec_count = 0,
                                .carrier = nullptr,
                                .verbs = &device_verbs};
  return &pack;
}
