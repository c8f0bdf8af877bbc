// A block of threads: its warps, its shared memory, its barrier.
#pragma once

#include "tests/cuda/machine/warp.h"

namespace epl::cuda_machine {

class Block {
 public:
  explicit Block(Launch& launch);
  void run(uint64_t number);  // the block of this number, from its beginning to its end
  std::string who(uint32_t thread) const;
  std::string name(uint64_t number) const;

  Launch& launch;
  Dimensions at;
  uint32_t index = 0;
  uint32_t barrier = 0;
  Region shared;
  Before order;

 private:
  void open_barrier();
  std::vector<Warp> warps_;
};

}  // namespace epl::cuda_machine
