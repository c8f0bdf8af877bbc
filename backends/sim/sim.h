// The simulated device: commands take virtual time and compute nothing.
//
// It simulates jobs of thousands of ranks on one machine. Addresses are never touched (reading one would fault), and
// time comes from the cost model that plans are decided by (core/backend/cost_model.h). Nothing blocks: see
// Stream::settled.
#pragma once

#include <memory>
#include <span>

#include "core/backend/cost_model.h"
#include "core/backend/device.h"

namespace epl::sim {

// Programs are those of `planned_for` and name its kernels; without it there are no kernels. `represented`: as
// DeviceOptions has it.
std::shared_ptr<Device> make_device(const Machine& machine, std::shared_ptr<Device> planned_for = nullptr,
                                    std::span<const int> represented = {});

}  // namespace epl::sim
