# Headers that nearly every file reads, compiled once instead of once per file, which is a quarter of a build from nothing. Not
# with a compiler cache: it would have to take a precompiled header's name for its content. Such builds, the developer's, also
# show that each file includes what it uses.
#
# epl_precompile(TARGET [HEADER...]): the common headers and those given. Targets that ask for the same headers share them;
# they must be of one kind (library or program) and of one directory, so that they are compiled with the same options.
function(epl_precompile target)
  if(CCACHE)
    return()
  endif()
  get_property(owner DIRECTORY PROPERTY EPL_PRECOMPILED_BY)
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
    return()
  endif()
  set_property(DIRECTORY PROPERTY EPL_PRECOMPILED_BY ${target})
  target_precompile_headers(${target} PRIVATE <algorithm> <cmath> <cstdint> <cstring> <functional> <map> <memory> <optional>
    <span> <string> <string_view> <vector> "${CMAKE_SOURCE_DIR}/core/backend/device.h" "${CMAKE_SOURCE_DIR}/core/ir/op.h"
    "${CMAKE_SOURCE_DIR}/core/program/program.h" ${ARGN})
endfunction()
