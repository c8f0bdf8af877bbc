# NVIDIA GPUs. It needs nothing to be built: what it calls is opened at run time. What it uses of core/base it has of
# its own, and the sources that its kernels are made of as text.
set(EPL_CUDA_MISSING "")
if(NOT EPL_PACKS)
  set(EPL_CUDA_MISSING "EPL_PACKS is off")
else()
  set(cuda_list ${PROJECT_SOURCE_DIR}/backends/cuda/texts.txt)
  set(cuda_texts ${GENERATED}/cuda_texts.cc)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${cuda_list})
  file(STRINGS ${cuda_list} cuda_files)
  list(TRANSFORM cuda_files REPLACE "^.*=" "")
  list(TRANSFORM cuda_files PREPEND ${PROJECT_SOURCE_DIR}/ REGEX "^[^/]")
  add_custom_command(OUTPUT ${cuda_texts}
    COMMAND ${CMAKE_COMMAND} -DLIST=${cuda_list} -DROOT=${PROJECT_SOURCE_DIR} -DOUTPUT=${cuda_texts}
    -DHEADER=backends/cuda/generate/texts.h -DNAME=epl::cuda::source_text
    -P ${PROJECT_SOURCE_DIR}/cmake/text_table.cmake
    DEPENDS ${cuda_list} ${cuda_files} ${PROJECT_SOURCE_DIR}/cmake/text_table.cmake COMMENT "texts of cuda kernels")
  epl_sources(cuda_sources backends/cuda/kernels backends/cuda/generate)
  add_library(epl_cuda_kernels OBJECT ${cuda_sources} ${cuda_texts})  # the tests have it too
  set_target_properties(epl_cuda_kernels PROPERTIES UNITY_BUILD OFF)
  target_include_directories(epl_cuda_kernels PRIVATE ${PROJECT_SOURCE_DIR})
  epl_precompile(epl_cuda_kernels ${EPL_COMMON_HEADERS} <array>)
  epl_sources(cuda_sources backends/cuda/api)
  set(cuda_base dtype.cc hash.cc status.cc tensor_type.cc text.cc)
  list(TRANSFORM cuda_base PREPEND ${PROJECT_SOURCE_DIR}/core/base/)
  epl_add_pack(cuda COMPONENT pack_cuda SOURCES ${cuda_sources} ${cuda_base} $<TARGET_OBJECTS:epl_cuda_kernels>
    LIBRARIES ${CMAKE_DL_LIBS})
  epl_precompile(epl_cuda ${EPL_COMMON_HEADERS} <array>)
endif()
