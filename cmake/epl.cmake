# The library, its backends and its tools. Sources are found by folder: a new file needs no edit here.
set(GENERATED ${PROJECT_BINARY_DIR}/generated)
find_package(Threads REQUIRED)

function(epl_sources out)
  set(all "")
  foreach(dir ${ARGN})
    file(GLOB found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${dir}/*.cc)
    list(APPEND all ${found})
  endforeach()
  set(${out} ${all} PARENT_SCOPE)
endfunction()

epl_table(EPL_OP epl::op_table core/ir/op.h core/ops core/program/transfers)
epl_table(EPL_INDICES epl::index_table core/ir/index_range.h core/ops core/program/transfers)
epl_table(EPL_PARTITION epl::partition_rule_table core/ir/partition_rule.h core/ops)
epl_table(EPL_LOSS epl::loss_table core/train/loss.h core/train/losses)
epl_table(EPL_METRIC epl::metric_table core/train/metric.h core/train/metrics)
epl_table(EPL_SCHEDULE epl::schedule_table core/train/schedule.h core/train/schedules)
epl_table(EPL_OPTIMIZER epl::optimizer_table core/train/optimizer.h core/train/optimizers)
epl_table(EPL_PASS epl::pass_table core/strategy/pass.h core/strategy/passes)
epl_table(EPL_PIPELINE epl::pipeline_table core/strategy/pipeline.h core/strategy/pipelines)
epl_table(EPL_TRANSFER epl::transfer_table core/program/transfer.h core/program/transfers)
epl_table(EPL_REWRITE epl::rewrite_table core/rewrite/rewrite.h core/rewrite/rows)
epl_table(EPL_READER epl::reader_table core/data/reader.h core/data/readers)
epl_table(EPL_FRONTEND epl::frontend_table core/frontend/model.h frontends/onnx)
epl_table(EPL_TEMPLATE epl::template_table core/frontend/template.h frontends/onnx/templates)
epl_table(EPL_ONNX_OP epl::onnx::onnx_op_table frontends/onnx/onnx_op.h frontends/onnx/ops)
epl_table(EPL_KERNELS epl::cpu::kernel_table backends/cpu/kernels/rows.h backends/cpu/kernels)
epl_table(EPL_BACKEND epl::backend_table core/backend/device.h backends/cpu backends/cuda backends/sim)
# Of a pack, libepl.so has the row alone (cmake/packs.cmake).
file(GLOB pack_rows CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/backends/*/row.cc)
list(TRANSFORM pack_rows REPLACE "/row\\.cc$" "" OUTPUT_VARIABLE pack_folders)
epl_table(EPL_PACK epl::pack_table core/base/pack.h ${pack_folders})

# Not a glob over the folder: it would keep the table of a folder that is gone.
get_property(generated_sources DIRECTORY PROPERTY EPL_TABLES)
epl_sources(sources core/base core/ir core/frontend core/ops core/autodiff core/train core/train/losses
  core/train/metrics core/train/optimizers core/train/schedules
  core/rewrite core/rewrite/rows core/strategy core/strategy/passes
  core/strategy/pipelines core/program core/program/transfers core/backend core/net core/formats core/data
  core/data/readers core/compile core/runtime core/capi frontends/onnx frontends/onnx/ops frontends/onnx/templates
  backends/cpu backends/cpu/kernels backends/sim backends/cuda/sheets core/job)
list(TRANSFORM pack_rows PREPEND ${PROJECT_SOURCE_DIR}/)
list(APPEND sources ${pack_rows})

# A `*.simd.cc` file is one source for several processors: it is compiled once per level, each in its own namespace
# (EPL_SIMD), and the rows of its kernels choose at run time what the processor has.
set(plain "")
set(simd_objects "")
foreach(source ${sources})
  if(source MATCHES "\\.simd\\.cc$")
    list(APPEND simd_sources ${source})
  elseif(source MATCHES "\\.bf16\\.cc$")
    list(APPEND bf16_sources ${source})
  else()
    list(APPEND plain ${source})
  endif()
endforeach()
if(simd_sources)
  # Under a sanitizer these files are mostly checks: inlined, they take minutes to compile, called, half a minute.
  set(simd_optimization -O3)
  if(EPL_SANITIZE)
    set(simd_optimization -O1)
    if(EPL_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      list(APPEND simd_optimization "SHELL:--param asan-instrumentation-with-call-threshold=0")
    elseif(EPL_SANITIZE MATCHES address)
      list(APPEND simd_optimization "SHELL:-mllvm -asan-instrumentation-with-call-threshold=0")
    endif()
  endif()
  # What this machine cannot run is there to be linked: a sanitizer would find nothing in it and takes a minute over it.
  set(processor "")
  if(EPL_SANITIZE AND EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo processor REGEX "^flags" LIMIT_COUNT 1)
  endif()
  # What multiplies pairs of bf16 is the tile of the product once more, and what packs these.
  list(APPEND bf16_sources ${PROJECT_SOURCE_DIR}/backends/cpu/kernels/gemm_core.simd.cc)
  set(sources_v3 ${simd_sources})
  set(sources_v4 ${simd_sources})
  set(sources_v4_bf16 ${bf16_sources})
  set(flags_v3 -march=x86-64-v3)
  set(flags_v4 -march=x86-64-v4)
  set(flags_v4_bf16 -march=x86-64-v4 -mavx512bf16)
  set(feature_v3 " avx2")
  set(feature_v4 " avx512vl")
  set(feature_v4_bf16 " avx512_bf16")
  foreach(level v3 v4 v4_bf16)
    set(level_optimization ${simd_optimization})
    if(processor AND NOT processor MATCHES "${feature_${level}}")
      set(level_optimization -O0 -fno-sanitize=all)
    endif()
    add_library(epl_simd_${level} OBJECT ${sources_${level}})
    set_target_properties(epl_simd_${level} PROPERTIES UNITY_BUILD OFF)
    target_include_directories(epl_simd_${level} PRIVATE ${PROJECT_SOURCE_DIR} ${GENERATED})
    target_compile_options(epl_simd_${level} PRIVATE ${flags_${level}} ${level_optimization} -fno-math-errno)
    target_compile_definitions(epl_simd_${level} PRIVATE EPL_SIMD=${level} HWY_COMPILE_ONLY_STATIC=1
      HWY_DISABLE_PCLMUL_AES)  # Else Highway, which asks for AES where the levels do not promise it, falls back to SSE.
    # GCC 12 says this of its own intrinsics. Highway turns it off, which a precompiled header forgets.
    target_compile_options(epl_simd_${level} PRIVATE -Wno-maybe-uninitialized)
    epl_precompile(epl_simd_${level} ${EPL_COMMON_HEADERS} <hwy/highway.h>)
    list(APPEND simd_objects $<TARGET_OBJECTS:epl_simd_${level}>)
  endforeach()
endif()

# Schemas of what is kept on disk: checkpoint.fbs becomes checkpoint_generated.h in the build folder.
find_program(FLATC flatc REQUIRED)
file(GLOB schemas CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/core/*/*.fbs)
set(schema_headers "")
foreach(schema ${schemas})
  get_filename_component(name ${schema} NAME_WE)
  add_custom_command(OUTPUT ${GENERATED}/${name}_generated.h
    COMMAND ${FLATC} --cpp --cpp-std c++17 -o ${GENERATED} ${schema} DEPENDS ${schema} COMMENT "flatc ${name}.fbs")
  list(APPEND schema_headers ${GENERATED}/${name}_generated.h)
endforeach()

# zlib, for compressed npz files. Linked as an archive, so that the shared library still needs the C library alone.
find_path(ZLIB_INCLUDE zlib.h REQUIRED)
find_library(ZLIB_ARCHIVE NAMES libz.a REQUIRED)
mark_as_advanced(ZLIB_INCLUDE ZLIB_ARCHIVE)
include(${CMAKE_CURRENT_LIST_DIR}/sha256.cmake)

# What runs once for a model or a call, never in a loop over numbers, is compiled for its size: the library stays under
# 10 MB, which tests/install holds. What searches for plans takes no longer so than with -O1, and is a third smaller.
set(parts epl_objects)
function(epl_part name folders optimization)
  set(part ${plain})
  list(FILTER part INCLUDE REGEX "${folders}")
  list(REMOVE_ITEM plain ${part})
  add_library(${name} OBJECT ${part} ${schema_headers})
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:${optimization}>)
  set(plain ${plain} PARENT_SCOPE)
  set(parts ${parts} ${name} PARENT_SCOPE)
endfunction()
set(whole ${plain})
epl_part(epl_called_once "/frontends/onnx/|/core/(capi|job)/" -Os)
epl_part(epl_training "/core/(frontend|train|compile)/" -Os)
epl_part(epl_records "/core/ops/" -Os)
epl_part(epl_graphs "/core/(autodiff|ir|rewrite)/" -Os)
epl_part(epl_planning "/core/(strategy|program)/" -Os)
add_library(epl_objects OBJECT ${plain} ${generated_sources} ${schema_headers})
foreach(target ${parts})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include PRIVATE ${GENERATED})
  # The asserts of the libraries that these use must not end the process of a host; our own checks are EPL_CHECK, which
  # become an error there.
  target_compile_definitions(${target} PRIVATE NDEBUG)
  epl_precompile(${target} ${EPL_COMMON_HEADERS})
endforeach()
# Where several sources are compiled as one (CMAKE_UNITY_BUILD), kernels, schedules, losses and what adapts packs stay
# alone: in the file of each the same parts have the same names.
foreach(source ${whole})
  if(source MATCHES "/(cpu/kernels|strategy/pipelines|train/losses|backends/cuda)/|/core/backend/pack_")
    set_property(SOURCE ${source} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endforeach()
set(EPL_ALL_OBJECTS ${simd_objects} ${EPL_SHA256})
foreach(part ${parts})
  list(APPEND EPL_ALL_OBJECTS $<TARGET_OBJECTS:${part}>)
endforeach()

# Everything as an archive, internals included: what the tests link, and programs that want no shared library
# (build/PRESET/static/libepl.a, target epl_internal; it needs libstdc++, libz and libm). Two of them do not go into one
# program.
add_library(epl_internal STATIC EXCLUDE_FROM_ALL ${EPL_ALL_OBJECTS})
set_target_properties(epl_internal PROPERTIES OUTPUT_NAME epl ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/static)
target_include_directories(epl_internal PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(epl_internal PUBLIC Threads::Threads ${CMAKE_DL_LIBS} ${ZLIB_ARCHIVE})
