// What we call of NVRTC, the compiler of CUDA C++ as a library: libnvrtc.so.13.
#pragma once

#include <cstddef>
#include <string>

#include "backends/cuda/api/library.h"
#include "core/base/status.h"

namespace epl::cuda {

using NvrtcCode = int;
using NvrtcProgram = struct NvrtcProgramTag*;

#define EPL_CUDA_NVRTC_FUNCTIONS(F)                                                                              \
  F(version, nvrtcVersion, 7000, (int* major, int* minor))                                                       \
  F(create, nvrtcCreateProgram, 7000,                                                                            \
    (NvrtcProgram * program, const char* source, const char* name, int header_count, const char* const* headers, \
     const char* const* header_names))                                                                           \
  F(destroy, nvrtcDestroyProgram, 7000, (NvrtcProgram * program))                                                \
  F(compile, nvrtcCompileProgram, 7000, (NvrtcProgram program, int option_count, const char* const* options))    \
  F(ptx_size, nvrtcGetPTXSize, 7000, (NvrtcProgram program, size_t* bytes))                                      \
  F(ptx, nvrtcGetPTX, 7000, (NvrtcProgram program, char* text))                                                  \
  F(log_size, nvrtcGetProgramLogSize, 7000, (NvrtcProgram program, size_t* bytes))                               \
  F(log, nvrtcGetProgramLog, 7000, (NvrtcProgram program, char* text))

struct Nvrtc {
#define EPL_CUDA_POINTER(name, symbol, since, parameters) NvrtcCode(*name) parameters = nullptr;
  EPL_CUDA_NVRTC_FUNCTIONS(EPL_CUDA_POINTER)
#undef EPL_CUDA_POINTER
  const char* (*error_text)(NvrtcCode code) = nullptr;
  std::string path;
};

extern const LibraryRow nvrtc_row;
Result<FoundLibrary> find_nvrtc(const std::string& folder);
Result<const Nvrtc*> open_nvrtc(const std::string& folder);

}  // namespace epl::cuda
