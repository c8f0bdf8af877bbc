# What `cmake --install` puts where, the Debian packages of `cpack`, and the target `uninstall`. Components, a package
# each; those of the languages are in languages.cmake:
#   runtime      libepl1            libepl.so.1
#   development  libepl-dev         the headers, libepl.so, libepl.a, the CMake package, pkg-config
#   tool         epl                the command line, its man page and completions
#   pack_onednn  libepl1-onednn     the oneDNN pack, where it is built: alone, because of what it brings along
#   pack_gloo    libepl1-gloo       the Gloo pack, alone for the same reason
#   pack_mpi     libepl1-mpi        the MPI pack, alone for the same reason
#   pack_cuda    libepl1-cuda       the CUDA pack: NVIDIA GPUs
#   pack_readers libepl1-readers    the packs that readers of data use, those of them that are built
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(EPL_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/epl)

install(TARGETS epl EXPORT epl_targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
install(FILES ${PROJECT_SOURCE_DIR}/include/epl.h ${PROJECT_SOURCE_DIR}/include/epl_dl.h
  ${PROJECT_SOURCE_DIR}/include/epl.hpp ${PROJECT_SOURCE_DIR}/include/epl_settings.hpp
  ${PROJECT_SOURCE_DIR}/include/epl_launch.hpp
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
# The archive, for programs that take the library in (the feature `static` of the crate). It names zlib, libstdc++ and
# libm, which Libs.private of pkg-config says too.
set_target_properties(epl_internal PROPERTIES EXCLUDE_FROM_ALL OFF)
install(FILES ${PROJECT_BINARY_DIR}/static/libepl.a DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)

# find_package(epl), then epl::epl. Before 1.0 a minor version may break what the one before promised.
install(EXPORT epl_targets NAMESPACE epl:: FILE epl-targets.cmake DESTINATION ${EPL_PACKAGE_DIR} COMPONENT development)
file(WRITE ${PROJECT_BINARY_DIR}/epl-config.cmake "include(\${CMAKE_CURRENT_LIST_DIR}/epl-targets.cmake)\n")
write_basic_package_version_file(${PROJECT_BINARY_DIR}/epl-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/epl-config.cmake ${PROJECT_BINARY_DIR}/epl-config-version.cmake
  DESTINATION ${EPL_PACKAGE_DIR} COMPONENT development)

# pkg-config: the prefix is where the file lies, so that a copied tree works.
file(RELATIVE_PATH EPL_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(PREPEND EPL_PC_PREFIX "\${pcfiledir}/")
set(EPL_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
set(EPL_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
set(EPL_PC_RPATH "")
configure_file(${PROJECT_SOURCE_DIR}/cmake/epl.pc.in ${PROJECT_BINARY_DIR}/epl.pc @ONLY)
# The same for the library as it is built here, in a folder of its own: PKG_CONFIG_PATH=build/release/pkgconfig.
string(REPLACE " " "\\ " EPL_PC_PREFIX "${PROJECT_BINARY_DIR}")
set(EPL_PC_LIBDIR "\${prefix}/lib")
string(REPLACE " " "\\ " EPL_PC_INCLUDEDIR "${PROJECT_SOURCE_DIR}/include")
set(EPL_PC_RPATH " -Wl,-rpath,\${libdir}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/epl.pc.in ${PROJECT_BINARY_DIR}/pkgconfig/epl.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/epl.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

include(${CMAKE_CURRENT_LIST_DIR}/languages.cmake)
set(components runtime development ${languages})
if(EPL_TOOL)
  list(APPEND components tool)
  file(RELATIVE_PATH library_from_bin /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(epl_tool PROPERTIES INSTALL_RPATH "$ORIGIN/${library_from_bin}")
  install(TARGETS epl_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tool)
  # The tool prints its own man page and completions, from the options it has.
  set(texts "")
  foreach(text man:epl.1 "completion bash:epl" "completion zsh:_epl" "completion fish:epl.fish")
    string(REGEX MATCH "^(.*):(.*)$" found "${text}")
    separate_arguments(command UNIX_COMMAND "${CMAKE_MATCH_1}")
    set(file ${GENERATED}/texts/${CMAKE_MATCH_2})
    add_custom_command(OUTPUT ${file} COMMAND epl_tool ${command} > ${file} DEPENDS epl_tool VERBATIM
      COMMENT "epl ${CMAKE_MATCH_1} > ${CMAKE_MATCH_2}")
    list(APPEND texts ${file})
  endforeach()
  file(MAKE_DIRECTORY ${GENERATED}/texts)
  add_custom_target(epl_texts ALL DEPENDS ${texts})
  install(FILES ${GENERATED}/texts/epl.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tool)
  install(FILES ${GENERATED}/texts/epl DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT tool)
  install(FILES ${GENERATED}/texts/_epl DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT tool)
  install(FILES ${GENERATED}/texts/epl.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d
    COMPONENT tool)
endif()
get_property(packs GLOBAL PROPERTY EPL_PACK_TARGETS)
foreach(pack ${packs})  # they are looked for beside libepl.so
  get_target_property(component ${pack} EPL_COMPONENT)
  list(APPEND components ${component})
  install(TARGETS ${pack} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component})
endforeach()
list(REMOVE_DUPLICATES components)

# Every package carries the licence; the documents go where the header goes.
foreach(pair runtime:libepl1 development:libepl-dev tool:epl pack_onednn:libepl1-onednn pack_readers:libepl1-readers
    pack_cuda:libepl1-cuda pack_gloo:libepl1-gloo pack_mpi:libepl1-mpi go:golang-epl-go-dev rust:librust-epl-dev
    python:python3-epl java:libepl-java)
  string(REGEX MATCH "^(.*):(.*)$" found ${pair})
  if(CMAKE_MATCH_1 IN_LIST components)
    install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${CMAKE_MATCH_2}
      RENAME copyright COMPONENT ${CMAKE_MATCH_1})
  endif()
endforeach()
file(GLOB documents ${PROJECT_SOURCE_DIR}/docs/*.md)
set(EPL_DOC_DIR ${CMAKE_INSTALL_DATADIR}/doc/libepl-dev)
install(FILES ${PROJECT_SOURCE_DIR}/README.md DESTINATION ${EPL_DOC_DIR} COMPONENT development)
install(FILES ${documents} DESTINATION ${EPL_DOC_DIR}/docs COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/samples DESTINATION ${EPL_DOC_DIR} COMPONENT development
  PATTERN target EXCLUDE PATTERN __pycache__ EXCLUDE)
install(CODE "set(FOLDER \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${EPL_DOC_DIR}\")
include(${PROJECT_SOURCE_DIR}/cmake/installed_links.cmake)" COMPONENT development)

configure_file(${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake.in ${PROJECT_BINARY_DIR}/uninstall.cmake @ONLY)
add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -P ${PROJECT_BINARY_DIR}/uninstall.cmake
  COMMENT "Removing what install_manifest*.txt lists")

# Packages: `cpack --config build/release/CPackConfig.cmake`.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME epl)
set(CPACK_PACKAGE_VENDOR "the EPL authors")
set(CPACK_PACKAGE_CONTACT "the EPL authors <epl@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "embedded training engine for neural networks")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL ${components})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# Which C library and which packages the files need is read from them by dpkg-shlibdeps.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib)
set(version "(= ${PROJECT_VERSION})")
# epl_debian_package(COMPONENT NAME SECTION DEPENDS SUMMARY): what cpack asks of a component.
function(epl_debian_package component name section depends summary)
  string(TOUPPER ${component} key)
  foreach(setting PACKAGE_NAME=${name} PACKAGE_SECTION=${section} "PACKAGE_DEPENDS=${depends}" "DESCRIPTION=${summary}")
    string(REGEX MATCH "^([A-Z_]*)=(.*)$" found "${setting}")
    set(CPACK_DEBIAN_${key}_${CMAKE_MATCH_1} "${CMAKE_MATCH_2}" PARENT_SCOPE)
  endforeach()
endfunction()
epl_debian_package(runtime libepl1 libs ""
  "Trains neural networks inside a program: the shared library. It takes an ONNX graph, adds loss, gradients and optimizer, and runs steps behind a C API.")
epl_debian_package(development libepl-dev libdevel "libepl1 ${version}"
  "The C header epl.h, the CMake package epl::epl, pkg-config and the documents for programs that use libepl.")
epl_debian_package(tool epl science "libepl1 ${version}"
  "The command line of EPL: train, evaluate, plan, inspect and export ONNX models.")
epl_debian_package(pack_onednn libepl1-onednn libs "libepl1 ${version}"
  "Kernels of oneDNN for libepl, used where a strategy says that equal bits from run to run are enough.")
epl_debian_package(pack_readers libepl1-readers libs "libepl1 ${version}"
  "What libepl needs to read Parquet files packed with snappy or Zstandard, and JPEG and PNG images.")
epl_debian_package(pack_gloo libepl1-gloo libs "libepl1 ${version}"
  "What libepl needs to move data between processes by Gloo.")
epl_debian_package(pack_mpi libepl1-mpi libs "libepl1 ${version}, openmpi-bin"
  "What libepl needs to move data between processes by Open MPI.")
epl_debian_package(pack_cuda libepl1-cuda libs "libepl1 ${version}"
  "NVIDIA GPUs for libepl. It opens NVIDIA's driver, compiler and matrix products at run time.")
# It is built without them, so no tool finds these in it. Plans for GPUs that are not there need none.
set(CPACK_DEBIAN_PACK_CUDA_PACKAGE_RECOMMENDS "libcuda1 (>= 580), cuda-nvrtc-13-0, libcublas-13-0")
set(CPACK_DEBIAN_PACK_CUDA_PACKAGE_SUGGESTS "libnvidia-ml1, libnccl2")
epl_debian_package(go golang-epl-go-dev golang "libepl-dev ${version}"
  "The Go module epl.ai/go, which trains neural networks inside a Go program.")
set(CPACK_DEBIAN_GO_PACKAGE_PROVIDES "golang-epl-dev ${version}")
epl_debian_package(rust librust-epl-dev rust "libepl-dev ${version}"
  "The Rust crates epl and epl-sys, which train neural networks inside a Rust program.")
set(CPACK_DEBIAN_RUST_PACKAGE_PROVIDES "librust-epl-sys-dev ${version}")
set(CPACK_DEBIAN_RUST_PACKAGE_RECOMMENDS "zlib1g-dev")  # the feature `static`
epl_debian_package(python python3-epl python "libepl1 ${version}, python3 (>= 3.9)"
  "The Python package epl, which trains neural networks inside a Python program.")
set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS "python3-numpy")
set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/python3-epl/postinst
  ${CMAKE_CURRENT_LIST_DIR}/python3-epl/prerm)
epl_debian_package(java libepl-java java "libepl1 ${version}"
  "The Java package ai.epl, which trains neural networks inside a Java program.")
set(CPACK_DEBIAN_JAVA_PACKAGE_SUGGESTS "java17-runtime-headless")
foreach(language GO RUST PYTHON)  # sources alone
  set(CPACK_DEBIAN_${language}_PACKAGE_ARCHITECTURE all)
endforeach()
if(pack_readers IN_LIST components)
  set(CPACK_DEBIAN_TOOL_PACKAGE_RECOMMENDS "libepl1-readers ${version}")
endif()
include(CPack)
