# What is shipped: the header in every dialect, the interface against its golden, the library's symbols and needs.
foreach(dialect c99 c11 c++17 c++20)
  if(dialect MATCHES "\\+\\+")
    set(compiler ${CMAKE_CXX_COMPILER} -xc++)
  else()
    set(compiler ${CMAKE_C_COMPILER} -xc)
  endif()
  add_test(NAME capi.header_${dialect}
    COMMAND ${compiler} -std=${dialect} -Wall -Wextra -pedantic-errors -Werror -fsyntax-only
    -I ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/tests/capi/header_user.c)
  add_test(NAME capi.table_${dialect}
    COMMAND ${compiler} -std=${dialect} -Wall -Wextra -pedantic-errors -Werror -fsyntax-only
    -I ${PROJECT_SOURCE_DIR}/include -include epl_dl.h ${PROJECT_SOURCE_DIR}/tests/capi/header_user.c)
  set_tests_properties(capi.header_${dialect} capi.table_${dialect} PROPERTIES LABELS capi)
endforeach()

# What tests are built with that the header says: a line for each function and each struct, and a program that prints
# layouts.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(interface_files ${GENERATED}/epl_functions.inc ${GENERATED}/epl_structs.inc ${GENERATED}/epl_layout.c)
file(GLOB generators CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/interface/*.py)
add_custom_command(OUTPUT ${interface_files}
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/interface ${GENERATED}
  DEPENDS ${PROJECT_SOURCE_DIR}/include/epl.h ${generators}
  COMMENT "Reading the interface from include/epl.h")
add_custom_target(epl_interface ALL DEPENDS ${interface_files})

add_test(NAME capi.what_is_generated_is_fresh COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/interface
  --check)
add_test(NAME capi.the_header_says_what_a_generator_needs
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/capi/interface_test.py)
set_tests_properties(capi.what_is_generated_is_fresh capi.the_header_says_what_a_generator_needs PROPERTIES LABELS capi)
add_test(NAME capi.library_exports_the_interface_alone
  COMMAND ${CMAKE_COMMAND} -DLIBRARY=$<TARGET_FILE:epl> -DMAP=${EPL_MAP} -DNM=${CMAKE_NM} -DREADELF=${CMAKE_READELF}
          -P ${PROJECT_SOURCE_DIR}/tests/capi/check_library.cmake)
add_test(NAME capi.nothing_runs_when_the_library_is_loaded
  COMMAND ${CMAKE_COMMAND} "-DOBJECTS=${EPL_ALL_OBJECTS}" -DREADELF=${CMAKE_READELF}
  -P ${PROJECT_SOURCE_DIR}/tests/capi/check_objects.cmake)
set_tests_properties(capi.nothing_runs_when_the_library_is_loaded PROPERTIES LABELS "capi;only_release")

# Where the fields of structs lie is part of the interface too.
add_executable(capi_layout ${GENERATED}/epl_layout.c)
target_include_directories(capi_layout PRIVATE ${PROJECT_SOURCE_DIR}/include)
add_dependencies(capi_layout epl_interface)
add_test(NAME capi.layouts_are_the_golden
  COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:capi_layout> -DGOLDEN=${PROJECT_SOURCE_DIR}/core/capi/epl.layout
  -P ${PROJECT_SOURCE_DIR}/tests/capi/compare_layout.cmake)
set_tests_properties(capi.layouts_are_the_golden PROPERTIES LABELS capi)

# By libabigail, against what was recorded as the candidate for 1.0.
add_test(NAME capi.programs_built_with_the_baseline_still_run
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/abi/compare.py $<TARGET_FILE:epl>)
set_tests_properties(capi.programs_built_with_the_baseline_still_run PROPERTIES LABELS "capi;only_release"
  SKIP_REGULAR_EXPRESSION "SKIP: ")

# What was released stays, whatever a commit says is the golden; and that this would be seen.
set(golden_interface -DABI=${PROJECT_SOURCE_DIR}/core/capi/epl.abi -DLAYOUT=${PROJECT_SOURCE_DIR}/core/capi/epl.layout)
add_test(NAME capi.released_interfaces_still_hold
  COMMAND ${CMAKE_COMMAND} -DRELEASED=${PROJECT_SOURCE_DIR}/core/capi/released ${golden_interface}
  -P ${PROJECT_SOURCE_DIR}/tests/capi/conforms.cmake)
add_test(NAME capi.what_an_interface_loses_is_seen
  COMMAND ${CMAKE_COMMAND} -DTRY=1 ${golden_interface} -P ${PROJECT_SOURCE_DIR}/tests/capi/conforms.cmake)
set_tests_properties(capi.released_interfaces_still_hold capi.what_an_interface_loses_is_seen PROPERTIES LABELS capi)
set_tests_properties(capi.library_exports_the_interface_alone PROPERTIES LABELS "capi;only_release")

# Programs against the library as it is shipped, where the sanitizers' own allocator and loader would be in the way.
if(NOT EPL_SANITIZE)
  add_executable(capi_out_of_memory capi/out_of_memory.c)
  set_target_properties(capi_out_of_memory PROPERTIES C_VISIBILITY_PRESET default)  # its malloc is the library's
  target_include_directories(capi_out_of_memory PRIVATE ${PROJECT_SOURCE_DIR} ${GENERATED})
  target_link_libraries(capi_out_of_memory PRIVATE epl Threads::Threads ${CMAKE_DL_LIBS})
  add_dependencies(capi_out_of_memory epl_interface)
  add_test(NAME capi.every_allocation_may_fail COMMAND capi_out_of_memory ${CMAKE_CURRENT_BINARY_DIR}/out_of_memory)
  add_executable(capi_embedding capi/embedding.c)
  target_include_directories(capi_embedding PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(capi_embedding PRIVATE epl m)
  add_test(NAME capi.embedding COMMAND capi_embedding ${CMAKE_CURRENT_BINARY_DIR}/embedding)
  set_tests_properties(capi.embedding PROPERTIES LABELS capi)
  add_executable(capi_reload capi/reload.c)
  target_include_directories(capi_reload PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(capi_reload PRIVATE ${CMAKE_DL_LIBS})
  add_dependencies(capi_reload epl)
  add_executable(capi_dl_user capi/dl_user.c)
  set_target_properties(capi_dl_user PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON)
  target_compile_options(capi_dl_user PRIVATE -Wall -Wextra -Werror)
  target_include_directories(capi_dl_user PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(capi_dl_user PRIVATE ${CMAKE_DL_LIBS})
  add_dependencies(capi_dl_user epl)
  add_test(NAME capi.a_program_loads_the_library_itself COMMAND capi_dl_user $<TARGET_FILE:epl>
    ${CMAKE_CURRENT_BINARY_DIR})
  set_tests_properties(capi.a_program_loads_the_library_itself PROPERTIES LABELS capi)
  add_test(NAME capi.a_thousand_reloads COMMAND capi_reload $<TARGET_FILE:epl> ${CMAKE_CURRENT_BINARY_DIR}/reload)
  set_tests_properties(capi.every_allocation_may_fail capi.a_thousand_reloads PROPERTIES LABELS capi TIMEOUT 120)
endif()
