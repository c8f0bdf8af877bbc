// What the files of the driver's functions share.
#pragma once

#include "tests/cuda/machine/machine.h"

#define EPL_DRIVER extern "C" __attribute__((visibility("default"))) int

namespace epl::cuda_machine {

// Issues a command and, where the settings say so, carries it out at once. Of a stream that is recorded it becomes a
// node. `function`: that it launches.
void submit(std::unique_lock<std::mutex>& lock, Stream& stream, std::function<void(const Command&)> run,
            const Function* function = nullptr);
void check(const Context& context);  // its failure, if it has one
// The bytes of a device for a command that reads or writes them, from `at` on; commands in no order are found here.
// `what`: "a fill".
Region& touch(Machine& machine, const Command& command, int device, uint64_t address, int64_t bytes, bool writes,
              const std::string& what, int64_t* at);

}  // namespace epl::cuda_machine
