# Packs: optional shared objects beside libepl.so; docs/packs.md says what they are. libepl.so is the same with and
# without them.
#
# A pack is a folder of backends: row.cc is its row, in libepl.so; all else is the pack, which pack.cmake builds where
# its libraries are present. EPL_<NAME>_MISSING is why it is not built, for the tests to say.

# epl_add_pack(NAME [COMPONENT component] SOURCES file... INCLUDES dir... LIBRARIES lib...): libepl_NAME.so of the files
# in backends/NAME and those sources, installed with that component (cmake/install.cmake).
function(epl_add_pack name)
  cmake_parse_arguments(P "" "COMPONENT" "SOURCES;INCLUDES;LIBRARIES" ${ARGN})
  if(NOT P_COMPONENT)
    set(P_COMPONENT pack_readers)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/backends/${name}/*.cc
    ${PROJECT_SOURCE_DIR}/backends/${name}/*.c)
  list(FILTER sources EXCLUDE REGEX "/row\\.cc$")
  add_library(epl_${name} MODULE ${sources} ${P_SOURCES})
  set_target_properties(epl_${name} PROPERTIES UNITY_BUILD OFF PREFIX lib OUTPUT_NAME epl_${name}
    EPL_COMPONENT ${P_COMPONENT}
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/pack.map)
  target_include_directories(epl_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(epl_${name} SYSTEM PRIVATE ${P_INCLUDES})
  target_link_libraries(epl_${name} PRIVATE ${P_LIBRARIES})
  target_link_options(epl_${name} PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/pack.map LINKER:-z,relro
    LINKER:-z,now)
  if(NOT EPL_SANITIZE)
    target_link_options(epl_${name} PRIVATE LINKER:--no-undefined)
  endif()
  # A pack is part of what using the library means, so building the tool builds it too.
  if(TARGET epl_tool)
    add_dependencies(epl_tool epl_${name})
  endif()
  set_property(GLOBAL APPEND PROPERTY EPL_PACK_TARGETS epl_${name})
endfunction()

# epl_find_pack(NAME HEADERS file... LIBRARIES name...): looks for what a pack of codecs wraps, and builds it if all of
# it is there.
function(epl_find_pack name)
  cmake_parse_arguments(P "" "PACKAGES" "HEADERS;LIBRARIES" ${ARGN})
  string(TOUPPER ${name} upper)
  set(missing "")
  if(NOT EPL_PACKS)
    set(missing "EPL_PACKS is off")
  endif()
  set(includes "")
  foreach(header ${P_HEADERS})
    string(MAKE_C_IDENTIFIER "EPL_HAS_${header}" variable)
    find_path(${variable} ${header})
    mark_as_advanced(${variable})
    list(APPEND includes ${${variable}})
    if(NOT missing AND NOT ${variable})
      set(missing "${header} is not there (${P_PACKAGES})")
    endif()
  endforeach()
  set(libraries "")
  foreach(library ${P_LIBRARIES})
    find_library(EPL_LIB_${library} NAMES ${library})
    mark_as_advanced(EPL_LIB_${library})
    list(APPEND libraries ${EPL_LIB_${library}})
    if(NOT missing AND NOT EPL_LIB_${library})
      set(missing "lib${library} is not there (${P_PACKAGES})")
    endif()
  endforeach()
  if(missing)
    message(STATUS "pack ${name}: not built, ${missing}")
  else()
    message(STATUS "pack ${name}: ${P_LIBRARIES}")
    epl_add_pack(${name} INCLUDES ${includes} LIBRARIES ${libraries})
  endif()
  set(EPL_${upper}_MISSING "${missing}" PARENT_SCOPE)
endfunction()

file(GLOB packs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/backends/*/pack.cmake)
foreach(pack ${packs})
  include(${pack})
endforeach()
