# Headers of the standard library that nearly every file reads, compiled once instead of once per file: a tenth of a
# build from nothing. None of ours is among them, which would save a twentieth more: a line changed in one would rebuild
# every file. Not with a compiler cache: it would have to take a precompiled header's name for its content. Such builds,
# the developer's, also show that each file includes what it uses.
set(EPL_COMMON_HEADERS <algorithm> <atomic> <cmath> <cstdint> <cstring> <functional> <map> <memory> <mutex> <optional>
  <set> <span> <string>
  <string_view> <unordered_map> <variant> <vector>)

# epl_precompile(TARGET HEADER...): targets of one directory and of one kind (library or program) that ask for the same
# headers and have the same options share them.
function(epl_precompile target)
  if(CCACHE)
    return()
  endif()
  get_target_property(kind ${target} TYPE)
  get_target_property(options ${target} COMPILE_OPTIONS)
  string(MD5 key "${kind};${options};${ARGN}")
  get_property(owner DIRECTORY PROPERTY EPL_PRECOMPILED_${key})
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  else()
    set_property(DIRECTORY PROPERTY EPL_PRECOMPILED_${key} ${target})
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()
