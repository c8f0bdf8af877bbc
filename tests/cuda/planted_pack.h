// Mistakes in calls: the pack calls NVIDIA's libraries through tables of functions (backends/cuda/api), and the pack of
// planted_pack.cc hands its tables out, so that a test can put another function in the place of one.
#pragma once

#include "backends/cuda/api/blas_lt.h"
#include "backends/cuda/api/dnn.h"
#include "backends/cuda/api/driver.h"
#include "backends/cuda/api/nccl.h"

namespace epl::cuda {

struct PackTables {
  Driver* driver = nullptr;
  BlasLt* blas = nullptr;
  Nccl* nccl = nullptr;
  Dnn* dnn = nullptr;
};

}  // namespace epl::cuda

// Opens the libraries of the folder. Null, or why not.
extern "C" const char* epl_planted_tables(const char* folder, epl::cuda::PackTables* tables);
