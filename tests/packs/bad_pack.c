/* Packs with one fault each, chosen by a macro (packs.cmake): every one must be refused with a sentence that names it.
 * One is only older: its device does not know ranks of other processes. */
#include <stddef.h>

#include "core/base/pack_abi.h"

#define SHOWN __attribute__((visibility("default")))

static const epl_pack_kernel row = {
#ifdef SHORT_ROW
    .struct_size = sizeof(epl_pack_kernel) - 8,
#else
    .struct_size = sizeof(epl_pack_kernel),
#endif
    .op = "matmul",
    .name = "matmul_nowhere",
};
static const epl_pack_kernel* const rows[] = {&row};

#if defined(SHORT_DEVICE) || defined(OLDER_DEVICE)
static const epl_pack_device device = {
#ifdef SHORT_DEVICE
    .struct_size = offsetof(epl_pack_device, meets) - 8,
#else
    .struct_size = offsetof(epl_pack_device, meets),
#endif
};
#endif

static const epl_pack pack = {
#ifdef SHORT_TABLE
    .struct_size = 16,
#else
    .struct_size = sizeof(epl_pack),
#endif
#ifdef OTHER_VERSION
    .abi = EPL_PACK_ABI + 1,
#elif defined(OLD_VERSION)
    .abi = EPL_PACK_ABI - 1,
#else
    .abi = EPL_PACK_ABI,
#endif
#ifdef OTHER_NAME
    .name = "another",
#else
    .name = "onednn",
#endif
    .version = "none",
    .device = "cpu",
    .kernels = rows,
    .kernel_count = 1,
#if defined(SHORT_DEVICE) || defined(OLDER_DEVICE)
    .verbs = &device,
#endif
};

#ifdef NO_ENTRY
SHOWN const epl_pack* some_other_function(void) { return &pack; }
#elif defined(GIVES_NOTHING)
SHOWN const epl_pack* epl_pack_entry(void) { return (void)&pack, NULL; }
#else
SHOWN const epl_pack* epl_pack_entry(void) { return &pack; }
#endif
