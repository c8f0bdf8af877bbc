// What the machine's library exports beside the driver's functions: its settings and what it found. Looked up by name
// with dlsym.
#pragma once

#include <cstdint>

extern "C" {

// "seed=3 devices=a100,h100 memory=1000000 races=0 uninitialised=0 eager=1 slow_stream=1 limit=1000000 driver=12040
// allocation_fails=2 launch_fails=1 copy_fails=1 collective_fails=1 device_lost=5 lost_device=1 peers=0 orders=1
// findings=FILE"; "reset" begins anew. 0: done. `slow_stream`: the number of a stream whose commands come last.
// `collective_fails`: the n-th group of calls of NCCL. `device_lost`: with this command the device is lost; only those
// of `lost_device` are counted where one is named. `peers`: devices of one kind can have access to each other.
// `orders`: libraries add up in an order that follows from the algorithm and the shape, as real ones do; without it
// their sums are exact and rounded once.
int epl_test_machine_set(const char* words);

// What was found wrong, a line each, since the last reset. Valid until the next call.
const char* epl_test_machine_findings();

// Why the last call that failed did so. Valid until the next call.
const char* epl_test_machine_last_error();

// "launches", "instructions", "steps", "commands", "allocations", "used", "library_calls", "orders", "peer_copies",
// "staged_copies", "recorded" (nodes of graphs), "graphs" (that were launched), "streams" (that were made): a number of
// the machine. "used_1": of device 1.
uint64_t epl_test_machine_count(const char* what);

// For libraries that stand beside the driver. Rows of device memory that a command reads, or writes: `bytes` of each.
struct epl_test_machine_rows {
  uint64_t address;
  int64_t bytes, rows, pitch;
  int writes;
};
// Issues a command on a stream of the current context; rows that are of no allocation are the driver's error at once.
// In its turn it calls run(context, places), where the host finds the first byte of each; before that, what it reads
// must have been written, and nobody may touch the rows out of order. It gives 0, or 1 where it waits for another
// process: then it is called again, and other streams go on. Then drop(context), which is called in every case.
int epl_test_machine_issue(void* stream, const char* what, const struct epl_test_machine_rows* rows, int count,
                           int (*run)(void* context, char* const* places), void (*drop)(void* context), void* context);
// Whether the address is one of a device: the host cannot touch it.
int epl_test_machine_of_device(const void* address);
// Whether the group of calls of NCCL that ends now fails as the settings want.
int epl_test_machine_collective_fails();
// Says why a call of a library fails: epl_test_machine_last_error then has it.
void epl_test_machine_refused(const char* why);
}
