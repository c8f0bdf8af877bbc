# NVIDIA GPUs. It needs nothing to be built: what it calls is opened at run time. What it uses of core/base it has of its
# own.
set(EPL_CUDA_MISSING "")
if(NOT EPL_PACKS)
  set(EPL_CUDA_MISSING "EPL_PACKS is off")
else()
  epl_sources(cuda_sources backends/cuda/api backends/cuda/kernels backends/cuda/generate)
  set(cuda_base dtype.cc status.cc tensor_type.cc text.cc)
  list(TRANSFORM cuda_base PREPEND ${PROJECT_SOURCE_DIR}/core/base/)
  epl_add_pack(cuda COMPONENT pack_cuda SOURCES ${cuda_sources} ${cuda_base} LIBRARIES ${CMAKE_DL_LIBS})
endif()
