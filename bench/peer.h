// Other engines' own all-reduce, for comparison in the same processes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/status.h"

namespace epl {

class Peer {
 public:
  virtual ~Peer() = default;
  virtual void all_reduce(float* values, int64_t count) = 0;
};

// `folder` is where the ranks meet. Gloo's reasons become the status's. Unsupported where it was built without Gloo.
Result<std::unique_ptr<Peer>> join_gloo(const std::string& folder, int rank, int size);

// All ranks of the processes that mpirun has started; one of each process, until it ends. Unsupported where it was
// built without MPI.
Result<std::unique_ptr<Peer>> join_mpi();
// The rank that mpirun has given this process, -1 where it was not started so.
int mpi_rank();

}  // namespace epl
