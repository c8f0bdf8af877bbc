# libepl.so, the one thing that is shipped: exactly the symbols of include/epl.h, and nothing needed but the C library.
# The listing of the interface says which (cmake/interface makes it from the header, and fails the build where it is
# stale).
set(EPL_MAP ${GENERATED}/epl.map)
set(interface ${PROJECT_SOURCE_DIR}/core/capi/epl.abi)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${interface})
file(STRINGS ${interface} functions REGEX "^[0-9]+[.][0-9]+ ")
list(TRANSFORM functions REPLACE ".*[ *](epl_[a-z0-9_]+)[(].*" "    \\1@\n")
list(SORT functions)
list(JOIN functions "" functions)
string(REPLACE "@" ";" map "EPL_1 {\n  global:\n${functions}  local:\n    *@\n}@\n")
file(CONFIGURE OUTPUT ${EPL_MAP} CONTENT "${map}")

add_library(epl SHARED ${EPL_ALL_OBJECTS})
add_library(epl::epl ALIAS epl)
set_target_properties(epl PROPERTIES SOVERSION 1 VERSION 1.0 LINK_DEPENDS ${EPL_MAP} LINKER_LANGUAGE CXX)
target_include_directories(epl INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
target_link_options(epl PRIVATE LINKER:--version-script=${EPL_MAP} LINKER:--no-undefined LINKER:--exclude-libs,ALL
  LINKER:--gc-sections LINKER:-z,relro LINKER:-z,now)
# Loaded for good: a dlclose would take the code away under threads and handles that are alive, and leave behind what
# the C++ runtime in it has allocated.
target_link_options(epl PRIVATE LINKER:-z,nodelete)
if(EPL_SANITIZE)
  # The sanitizers' runtime belongs to the program, so the library is left with names that only it defines.
  set_target_properties(epl PROPERTIES LINK_OPTIONS "LINKER:--version-script=${EPL_MAP};LINKER:-z,nodelete")
else()
  target_link_options(epl PRIVATE -static-libstdc++ -static-libgcc)
endif()
target_link_libraries(epl PRIVATE Threads::Threads ${CMAKE_DL_LIBS} ${ZLIB_ARCHIVE} m)

# What is generated from the header and committed: with Python at hand a build fails where it is stale, and says by what
# command it is written again.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND EPL_TESTS)
  file(GLOB generators CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/interface/*.py)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/interface --list
    OUTPUT_VARIABLE outputs OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE unread)
  string(REGEX REPLACE "([^\n]+)" "${PROJECT_SOURCE_DIR}/\\1" outputs "${outputs}")
  string(REPLACE "\n" ";" outputs "${outputs}")
  if(unread)  # the build says why
    set(outputs "")
  endif()
  set(fresh ${GENERATED}/interface.fresh)
  add_custom_command(OUTPUT ${fresh}
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/interface --check
    COMMAND ${CMAKE_COMMAND} -E touch ${fresh}
    DEPENDS ${PROJECT_SOURCE_DIR}/include/epl.h ${generators} ${outputs}
    COMMENT "Comparing what is generated from include/epl.h")
  add_custom_target(epl_interface_fresh DEPENDS ${fresh})
  add_dependencies(epl epl_interface_fresh)
endif()

# The command line: the first user of the C API, and of nothing else of ours.
if(EPL_TOOL)
  file(GLOB tool_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/*.cc)
  # The pages are files of their own, which the tool carries.
  set(EPL_PAGES)
  foreach(page report.html=report_template plan.html=plan_template plan_costs.js=plan_costs page.css=page_style
          page.js=page_script)
    string(REGEX MATCH "^(.*)=(.*)$" parts ${page})
    set(file ${CMAKE_MATCH_1})
    set(name ${CMAKE_MATCH_2})
    set(made ${GENERATED}/${name}.cc)
    add_custom_command(OUTPUT ${made}
      COMMAND ${CMAKE_COMMAND} -DINPUT=${PROJECT_SOURCE_DIR}/tools/${file} -DOUTPUT=${made}
              -DNAME=epl::tools::${name} -P ${PROJECT_SOURCE_DIR}/cmake/text_file.cmake
      DEPENDS ${PROJECT_SOURCE_DIR}/tools/${file} ${PROJECT_SOURCE_DIR}/cmake/text_file.cmake
      COMMENT "Reading tools/${file}")
    list(APPEND EPL_PAGES ${made})
  endforeach()
  add_custom_target(epl_pages DEPENDS ${EPL_PAGES})
  add_executable(epl_tool ${tool_sources} ${EPL_PAGES})
  set_target_properties(epl_tool PROPERTIES OUTPUT_NAME epl BUILD_RPATH "$ORIGIN/../lib")
  target_include_directories(epl_tool PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(epl_tool PRIVATE epl Threads::Threads)
  epl_precompile(epl_tool <CLI/CLI.hpp> <map> <set> <string> <vector>)
  # It reads arguments and prints: what takes the time is compiling it.
  target_compile_options(epl_tool PRIVATE $<$<CONFIG:Release>:-O1>)
  if(EPL_SANITIZE)  # as in tests/CMakeLists.txt
    target_compile_options(epl_tool PRIVATE -O0)
  endif()
endif()
