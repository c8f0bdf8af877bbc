// Which ranks of the plan live in this process, and how they find the others.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend/device.h"
#include "core/base/stop.h"

namespace epl {

// Each has executors, a memory map and, where numbers are computed, a thread. Representatives stand for more.
inline constexpr int most_local_ranks = 4096;

struct SessionOptions {
  uint64_t seed = 0;
  std::shared_ptr<Device> device;            // null: the plan's; else one that stands for it
  int first_rank = 0, ranks = 0;             // [first_rank, first_rank + ranks); 0: all of them
  std::vector<int> represented = {};         // DeviceOptions::represented of `device`; the others have no memory
  std::shared_ptr<Rendezvous> rendezvous;    // where some live elsewhere
  Secret secret{};                           // that they share: Joining::secret
  std::string address = "127.0.0.1";         // under which they reach this process
  std::string transport = "shared,sockets";  // Joining::transport
  double join_seconds = 60;                  // to wait for the others to come
  double silence_seconds = 600;              // to wait in a call for one that says nothing
  bool signs_frames = false;                 // Joining::signs_frames
  // Weights of the model's file that differ from those of rank 0 are taken from there; otherwise they are an error.
  bool take_weights = false;
  int64_t compare_every = 100;  // steps, before the next of which ranks compare what they share; 0: never
  bool slices = false;          // inputs are the samples that these ranks read: samples_read
  Stop stop;                    // while the session is made; not kept
  // The predict entry alone, with what it reads of the state and no initial values: a Predictor gives it others.
  bool predicts_only = false;
};

}  // namespace epl
