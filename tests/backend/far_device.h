// A device as a GPU is one, on the processor: memory at addresses that the host cannot touch, commands that are carried
// out when somebody waits for them and not before, and streams that take turns in any order that their events allow.
// What runs on it with the right numbers passes no pointer of the host to a kernel, reads no result before it waits,
// keeps host memory alive until then, and orders its streams by events.
#pragma once

#include <cstdint>
#include <string>

#include "core/backend/device.h"

namespace epl {

// Its kernels are those of the backend `cpu`. `seed` decides which stream goes on where several can.
BackendRow far_backend(std::string name, uint64_t seed);

}  // namespace epl
