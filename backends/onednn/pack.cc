// libepl_onednn.so: matrix products and convolutions of the cpu backend by oneDNN, in the order of summation that
// oneDNN finds fastest. See docs/packs.md.
#include <iterator>

#include "backends/onednn/rows.h"

#define EPL_ONEDNN_TEXT(x) #x
#define EPL_ONEDNN_VERSION(major, minor, patch) \
  EPL_ONEDNN_TEXT(major) "." EPL_ONEDNN_TEXT(minor) "." EPL_ONEDNN_TEXT(patch)

#include <oneapi/dnnl/dnnl_version.h>

extern "C" __attribute__((visibility("default"))) const epl_pack* epl_pack_entry(void) {
  using namespace epl::onednn;
  static const epl_pack_kernel* const kernels[] = {&matmul_row, &linear_row,          &linear_grad_weight_row,
                                                   &conv_row,   &conv_grad_input_row, &conv_grad_weight_row};
  static const epl_pack pack = {.struct_size = sizeof(epl_pack),
                                .abi = EPL_PACK_ABI,
                                .reserved = 0,
                                .name = "onednn",
                                .version = "oneDNN " EPL_ONEDNN_VERSION(DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR,
                                                                        DNNL_VERSION_PATCH) " with OpenMP",
                                .device = "cpu",
                                .kernels = kernels,
                                .kernel_count = std::size(kernels)};
  return &pack;
}
