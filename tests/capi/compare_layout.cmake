# cmake -DPROGRAM=<capi_layout> -DGOLDEN=core/capi/epl.layout -P compare_layout.cmake
execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE now COMMAND_ERROR_IS_FATAL ANY)
file(READ ${GOLDEN} golden)
if(NOT now STREQUAL golden)
  message(FATAL_ERROR "core/capi/epl.layout is stale: fields of include/epl.h lie elsewhere. A field may only come after the last one. If that is so, put this there:\n${now}")
endif()
