// The simulated device: commands take virtual time and compute nothing.
//
// It is the cost model of plans, and it simulates jobs of thousands of ranks on one machine. Addresses are never
// touched (reading one would fault), and time comes from the table below and the flops and bytes of a KernelQuery
// (roofline: Williams, Waterman, Patterson, 2009). Nothing blocks: see Stream::settled.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/backend/device.h"

namespace epl::sim {

// Data sheet numbers of one device, and of its link to each peer: in seconds, bytes and flops, and these per second.
struct Machine {
  std::string name;
  double flops = 0;       // multiply and add counted as two, float32
  double flops_half = 0;  // bf16 and f16
  double memory_bandwidth = 0;
  double launch_seconds = 0;  // of the smallest kernel
  double host_bandwidth = 0;  // uploads and downloads
  double link_bandwidth = 0;  // to peers, one direction
  double link_seconds = 0;    // latency of a message
  int64_t memory_bytes = 0;   // of all buffers together; 0: no limit
  bool is_core = false;       // of a processor: a stream has one for each of its threads
};

std::span<const Machine> machines();  // "a100", "h100", "cpu_core"; the last is what "sim" opens
Result<Machine> find_machine(std::string_view name);
// What a stream with so many threads has.
Machine of_threads(Machine machine, int threads);
// Programs are those of `planned_for` and name its kernels; without it there are no kernels.
std::shared_ptr<Device> make_device(const Machine& machine, std::shared_ptr<Device> planned_for = nullptr);

double kernel_seconds(const Machine& machine, const KernelQuery& query);
// Costs of collectives over `ranks` ranks: the cheaper of a latency-optimal and a bandwidth-optimal algorithm, from
// Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005. `bytes` is what
// one rank contributes; of a reduce-scatter and an all-to-all what it gets from or gives to each. A message is one send
// and its receive. A barrier is Hensgen, Finkel and Manber's dissemination, 1988.
double all_reduce_seconds(const Machine& machine, int ranks, int64_t bytes);
double reduce_scatter_seconds(const Machine& machine, int ranks, int64_t bytes);
double all_to_all_seconds(const Machine& machine, int ranks, int64_t bytes);
double message_seconds(const Machine& machine, int64_t bytes);
double all_gather_seconds(const Machine& machine, int ranks, int64_t bytes);
double broadcast_seconds(const Machine& machine, int ranks, int64_t bytes);
double barrier_seconds(const Machine& machine, int ranks);

}  // namespace epl::sim
