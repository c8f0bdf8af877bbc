// libepl_cuda.so once more, with a second door.
#include "tests/cuda/planted_pack.h"

extern "C" __attribute__((visibility("default"))) const char* epl_planted_tables(const char* folder,
                                                                                 epl::cuda::PackTables* tables) {
  using namespace epl::cuda;
  static std::string why;
  const auto driver = open_driver(folder);
  const auto blas = open_blas_lt(folder);
  const auto nccl = open_nccl(folder);
  const auto dnn = open_dnn(folder);
  for (const epl::Status& status : {driver.status(), blas.status(), nccl.status(), dnn.status()}) {
    if (status.ok()) continue;
    why = status.message();
    return why.c_str();
  }
  *tables = {const_cast<Driver*>(*driver), const_cast<BlasLt*>(*blas), const_cast<Nccl*>(*nccl),
             const_cast<Dnn*>(*dnn)};
  return nullptr;
}
