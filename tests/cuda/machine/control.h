// What the machine's library exports beside the driver's functions: its settings and what it found. Looked up by name
// with dlsym.
#pragma once

#include <cstdint>

extern "C" {

// "seed=3 devices=a100,h100 memory=1000000 races=0 uninitialised=0 eager=1 slow_stream=1 limit=1000000 driver=12040
// allocation_fails=2 launch_fails=1 copy_fails=1 device_lost=5 findings=FILE"; "reset" begins anew. 0: done.
int epl_test_machine_set(const char* words);

// What was found wrong, a line each, since the last reset. Valid until the next call.
const char* epl_test_machine_findings();

// Why the last call that failed did so. Valid until the next call.
const char* epl_test_machine_last_error();

// "launches", "instructions", "steps", "commands", "allocations", "used": a number of the machine.
uint64_t epl_test_machine_count(const char* what);
}
