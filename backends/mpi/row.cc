#include "core/base/pack.h"

namespace epl {

EPL_PACK(mpi) {
  return {.doc = "what processes send each other goes over Open MPI, whose mpirun has started them: transport mpi",
          .packages = "libopenmpi-dev",
          .carries = true};
}

}  // namespace epl
