# What is shipped: the header in every dialect, the interface against its golden, the library's symbols and needs.
foreach(dialect c99 c11 c++17 c++20)
  if(dialect MATCHES "\\+\\+")
    set(compiler ${CMAKE_CXX_COMPILER} -xc++)
  else()
    set(compiler ${CMAKE_C_COMPILER} -xc)
  endif()
  add_test(NAME capi.header_${dialect}
    COMMAND ${compiler} -std=${dialect} -Wall -Wextra -pedantic-errors -Werror -fsyntax-only -I ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/tests/capi/header_user.c)
  set_tests_properties(capi.header_${dialect} PROPERTIES LABELS capi)
endforeach()

add_test(NAME capi.interface_is_the_golden
  COMMAND ${CMAKE_COMMAND} -DABI=${EPL_ABI} -DGOLDEN=${PROJECT_SOURCE_DIR}/core/capi/epl.abi -P ${PROJECT_SOURCE_DIR}/tests/capi/compare_abi.cmake)
add_test(NAME capi.library_exports_the_interface_alone
  COMMAND ${CMAKE_COMMAND} -DLIBRARY=$<TARGET_FILE:epl> -DMAP=${EPL_MAP} -DNM=${CMAKE_NM} -DREADELF=${CMAKE_READELF}
          -P ${PROJECT_SOURCE_DIR}/tests/capi/check_library.cmake)
add_test(NAME capi.nothing_runs_when_the_library_is_loaded
  COMMAND ${CMAKE_COMMAND} "-DOBJECTS=$<TARGET_OBJECTS:epl_objects>" -DREADELF=${CMAKE_READELF} -P ${PROJECT_SOURCE_DIR}/tests/capi/check_objects.cmake)
set_tests_properties(capi.nothing_runs_when_the_library_is_loaded PROPERTIES LABELS "capi;only_release")
set_tests_properties(capi.interface_is_the_golden PROPERTIES LABELS capi)
set_tests_properties(capi.library_exports_the_interface_alone PROPERTIES LABELS "capi;only_release")
