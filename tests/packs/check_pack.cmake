# cmake -DPACK=libepl_NAME.so -DNM=nm -P check_pack.cmake: a pack exports one function.
execute_process(COMMAND ${NM} -D --defined-only ${PACK} OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "[0-9a-f]+ ([A-Za-z]) ([^\n]*)\n" "\\1 \\2;" symbols "${listing}")
list(REMOVE_ITEM symbols "")
if(NOT symbols STREQUAL "T epl_pack_entry")
  message(FATAL_ERROR "${PACK} exports ${symbols}; it should be epl_pack_entry alone")
endif()
