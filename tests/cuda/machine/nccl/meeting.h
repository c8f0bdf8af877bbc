// Ranks of several processes, which meet in shared memory that their circle's id names. Call after call each rank puts
// its source there, and takes its result when all have; nobody is a call ahead of another one.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "tests/cuda/machine/nccl/circle.h"

namespace epl::cuda_nccl {

inline constexpr size_t id_bytes = 128;

class Meeting {
 public:
  static void new_id(char* id);
  static std::shared_ptr<Meeting> begin(const char* id, int ranks, int rank);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  // Until all have come, and once after each call: as the real one, which is begun so that no call waits, issues them
  // in another thread.
  bool in_progress();
  // Issues what one call of this rank is. None may be in progress.
  void carry_out(const std::shared_ptr<Meeting>& self, const End& end, const Call& call);
  // What waits in it goes on, with nothing done.
  void abort() { aborted_ = true; }

 private:
  struct Page;
  struct Turn;
  Meeting() = default;
  bool put(const Turn& turn, const char* source);
  bool take(const Turn& turn, char* target);

  Page* page_ = nullptr;
  std::string id_;
  size_t bytes_ = 0, rank_ = 0, ranks_ = 0;
  uint64_t calls_ = 0;  // that were issued
  std::atomic<bool> aborted_ = false;
  bool all_here_ = false, issuing_ = false;
};

}  // namespace epl::cuda_nccl
