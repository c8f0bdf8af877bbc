# cmake -DPROGRAM=<capi_layout> -DGOLDEN=core/capi/epl.layout -P compare_layout.cmake
execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE now COMMAND_ERROR_IS_FATAL ANY)
file(READ ${GOLDEN} golden)
if(NOT now STREQUAL golden)
  message(FATAL_ERROR "cmake/interface says that fields lie where this compiler does not put them; it puts them so:\n${now}")
endif()
