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

epl_sources(op_rows core/ops core/program/transfers)
epl_table(${GENERATED}/op_table.cc MACRO EPL_OP ROWS ${op_rows} HEADER core/ir/op.h TYPE OpTable TABLE epl::fill_op_table)
epl_table(${GENERATED}/index_table.cc MACRO EPL_INDICES ROWS ${op_rows} HEADER core/ir/index_range.h TYPE IndexTable TABLE epl::fill_index_table)

epl_sources(loss_rows core/train/losses)
epl_table(${GENERATED}/loss_table.cc MACRO EPL_LOSS ROWS ${loss_rows} HEADER core/train/loss.h TYPE LossTable TABLE epl::fill_loss_table)
epl_sources(metric_rows core/train/metrics)
epl_table(${GENERATED}/metric_table.cc MACRO EPL_METRIC ROWS ${metric_rows} HEADER core/train/metric.h TYPE MetricTable TABLE epl::fill_metric_table)
epl_sources(schedule_rows core/train/schedules)
epl_table(${GENERATED}/schedule_table.cc MACRO EPL_SCHEDULE ROWS ${schedule_rows} HEADER core/train/schedule.h TYPE ScheduleTable TABLE epl::fill_schedule_table)
epl_sources(optimizer_rows core/train/optimizers)
epl_table(${GENERATED}/optimizer_table.cc MACRO EPL_OPTIMIZER ROWS ${optimizer_rows} HEADER core/train/optimizer.h TYPE OptimizerTable TABLE epl::fill_optimizer_table)
epl_sources(pass_rows core/strategy/passes)
epl_table(${GENERATED}/pass_table.cc MACRO EPL_PASS ROWS ${pass_rows} HEADER core/strategy/pass.h TYPE PassTable TABLE epl::fill_pass_table)
epl_sources(transfer_rows core/program/transfers)
epl_table(${GENERATED}/transfer_table.cc MACRO EPL_TRANSFER ROWS ${transfer_rows} HEADER core/program/transfer.h TYPE TransferTable TABLE epl::fill_transfer_table)
epl_sources(rewrite_rows core/rewrite/rows)
epl_table(${GENERATED}/rewrite_table.cc MACRO EPL_REWRITE ROWS ${rewrite_rows} HEADER core/rewrite/rewrite.h TYPE RewriteTable TABLE epl::fill_rewrite_table)
epl_sources(reader_rows core/data/readers)
epl_table(${GENERATED}/reader_table.cc MACRO EPL_READER ROWS ${reader_rows} HEADER core/data/reader.h TYPE ReaderTable TABLE epl::fill_reader_table)
epl_sources(frontend_rows frontends/onnx)
epl_table(${GENERATED}/frontend_table.cc MACRO EPL_FRONTEND ROWS ${frontend_rows} HEADER core/ir/model.h TYPE FrontendTable TABLE epl::fill_frontend_table)
epl_sources(template_rows frontends/onnx/templates)
epl_table(${GENERATED}/template_table.cc MACRO EPL_TEMPLATE ROWS ${template_rows} HEADER core/ir/template.h TYPE TemplateTable TABLE epl::fill_template_table)
epl_sources(onnx_rows frontends/onnx/ops)
epl_table(${GENERATED}/onnx_op_table.cc MACRO EPL_ONNX_OP ROWS ${onnx_rows} HEADER frontends/onnx/onnx_op.h TYPE OnnxOpTable TABLE epl::onnx::fill_onnx_op_table)
epl_sources(cpu_kernel_rows backends/cpu/kernels)
epl_table(${GENERATED}/cpu_kernel_table.cc MACRO EPL_KERNELS ROWS ${cpu_kernel_rows} HEADER core/backend/kernel.h TYPE KernelTable TABLE epl::cpu::fill_kernel_table)
epl_sources(backend_rows backends/cpu backends/sim)
epl_table(${GENERATED}/backend_table.cc MACRO EPL_BACKEND ROWS ${backend_rows} HEADER core/backend/device.h TYPE BackendTable TABLE epl::fill_backend_table)

# Not a glob over the folder: it would keep the table of a folder that is gone.
get_property(generated_sources DIRECTORY PROPERTY EPL_TABLES)
epl_sources(sources core/base core/ir core/ops core/autodiff core/train core/train/losses core/train/metrics core/train/optimizers core/train/schedules
  core/rewrite core/rewrite/rows core/strategy core/strategy/passes core/program core/program/transfers core/backend core/data core/data/readers
  core/runtime core/capi frontends/onnx frontends/onnx/ops frontends/onnx/templates backends/cpu backends/cpu/kernels backends/sim)

# A `*.simd.cc` file is one source for several processors: it is compiled once per level, each in its own namespace
# (EPL_SIMD), and the rows of its kernels choose at run time what the processor has.
set(plain "")
set(simd_objects "")
foreach(source ${sources})
  if(source MATCHES "\\.simd\\.cc$")
    list(APPEND simd_sources ${source})
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
  foreach(level v3 v4)
    add_library(epl_simd_${level} OBJECT ${simd_sources})
    target_include_directories(epl_simd_${level} PRIVATE ${PROJECT_SOURCE_DIR} ${GENERATED})
    target_compile_options(epl_simd_${level} PRIVATE -march=x86-64-${level} ${simd_optimization} -fno-math-errno)
    target_compile_definitions(epl_simd_${level} PRIVATE EPL_SIMD=${level} HWY_COMPILE_ONLY_STATIC=1
      HWY_DISABLE_PCLMUL_AES)  # Else Highway, which asks for AES where the levels do not promise it, falls back to SSE.
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

# The asserts of the libraries that these use must not end the process of a host; our own checks are EPL_CHECK, which become
# an error there.
foreach(source ${plain})
  if(source MATCHES "/frontends/onnx/|/core/runtime/checkpoint\\.cc$")
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_DEFINITIONS NDEBUG)
  endif()
endforeach()

# zlib, for compressed npz files. Linked as an archive, so that the shared library still needs the C library alone.
find_path(ZLIB_INCLUDE zlib.h REQUIRED)
find_library(ZLIB_ARCHIVE NAMES libz.a REQUIRED)
mark_as_advanced(ZLIB_INCLUDE ZLIB_ARCHIVE)

add_library(epl_objects OBJECT ${plain} ${generated_sources} ${schema_headers})
target_include_directories(epl_objects PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include PRIVATE ${GENERATED})
epl_precompile(epl_objects ${EPL_COMMON_HEADERS})
set(EPL_ALL_OBJECTS $<TARGET_OBJECTS:epl_objects> ${simd_objects})

# What the tests link: everything, internals included.
add_library(epl_internal STATIC EXCLUDE_FROM_ALL ${EPL_ALL_OBJECTS})
target_include_directories(epl_internal PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(epl_internal PUBLIC Threads::Threads ${CMAKE_DL_LIBS} ${ZLIB_ARCHIVE})
