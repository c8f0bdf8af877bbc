# What `cmake --install` gives the languages, where Debian's tools of each look for it, and the target `archives`, which
# makes what is published of each language (cmake/languages.sh).
#   go      golang-epl-go-dev    share/gocode/src/epl.ai/go
#   rust    librust-epl-dev      share/cargo/registry/epl-VERSION and epl-sys-VERSION
#   python  python3-epl          lib/python3/dist-packages, where there is a Python to write it
#   java    libepl-java          share/java, share/maven-repo, lib/jni, where there is a JDK
set(LANGUAGES ${PROJECT_BINARY_DIR}/languages)
set(languages_sh ${PROJECT_SOURCE_DIR}/cmake/languages.sh)
find_package(Python3 3.9 QUIET COMPONENTS Interpreter)
set(python "")
if(Python3_FOUND)
  set(python ${Python3_EXECUTABLE})
endif()

file(GLOB_RECURSE files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bindings/*.go ${PROJECT_SOURCE_DIR}/bindings/*.rs
  ${PROJECT_SOURCE_DIR}/bindings/*.py ${PROJECT_SOURCE_DIR}/bindings/*.toml ${PROJECT_SOURCE_DIR}/bindings/*.md)
list(FILTER files EXCLUDE REGEX "/target/")
add_custom_command(OUTPUT ${LANGUAGES}/stamp
  COMMAND sh ${languages_sh} stage ${PROJECT_SOURCE_DIR} ${LANGUAGES} ${PROJECT_VERSION} "${python}"
  COMMAND ${CMAKE_COMMAND} -E touch ${LANGUAGES}/stamp
  DEPENDS ${files} ${languages_sh} VERBATIM COMMENT "Staging what the languages install")
set(stamps ${LANGUAGES}/stamp)

set(languages go rust)
install(DIRECTORY ${LANGUAGES}/go/ DESTINATION ${CMAKE_INSTALL_DATADIR}/gocode/src/epl.ai/go COMPONENT go)
install(DIRECTORY ${LANGUAGES}/rust/ DESTINATION ${CMAKE_INSTALL_DATADIR}/cargo/registry COMPONENT rust)
if(python)
  list(APPEND languages python)
  install(DIRECTORY ${LANGUAGES}/python/ DESTINATION lib/python3/dist-packages COMPONENT python)
endif()

# A JDK is looked for as `javac` finds it; a sanitized library is loaded by no Java.
find_package(Java 17 QUIET COMPONENTS Development)
set(java_home "")
if(Java_FOUND AND NOT EPL_SANITIZE)
  file(REAL_PATH ${Java_JAVAC_EXECUTABLE} java_home)
  cmake_path(GET java_home PARENT_PATH java_home)
  cmake_path(GET java_home PARENT_PATH java_home)
endif()
if(java_home AND EXISTS ${java_home}/include/jni.h)
  list(APPEND languages java)
  file(RELATIVE_PATH library_from_jni /lib/jni /${CMAKE_INSTALL_LIBDIR})
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bindings/java/src/main/*)
  add_custom_command(OUTPUT ${LANGUAGES}/java/stamp
    COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} JAVA_HOME=${java_home}
            sh ${languages_sh} java ${PROJECT_SOURCE_DIR} ${LANGUAGES}/java ${PROJECT_VERSION} $<TARGET_FILE:epl>
            "$ORIGIN/${library_from_jni}"
    COMMAND ${CMAKE_COMMAND} -E touch ${LANGUAGES}/java/stamp
    DEPENDS epl ${files} ${languages_sh} ${PROJECT_SOURCE_DIR}/bindings/java/build.sh
            ${PROJECT_SOURCE_DIR}/bindings/java/pom.xml ${PROJECT_SOURCE_DIR}/include/epl.h
    VERBATIM COMMENT "Building the jar")
  list(APPEND stamps ${LANGUAGES}/java/stamp)
  install(DIRECTORY ${LANGUAGES}/java/share/ DESTINATION ${CMAKE_INSTALL_DATADIR} COMPONENT java)
  install(FILES ${LANGUAGES}/java/jni/libepl_jni.so DESTINATION lib/jni COMPONENT java)
else()
  message(STATUS "no JDK from 17 on with jni.h: no libepl-java")
endif()
add_custom_target(epl_languages ALL DEPENDS ${stamps})

add_custom_target(archives DEPENDS epl epl_internal epl_languages
  COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} JAVA_HOME=${java_home}
          sh ${languages_sh} archives ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/archives
          ${PROJECT_VERSION} "${python}"
  VERBATIM USES_TERMINAL COMMENT "What is published of each language")
