# Installed, packaged and embedded in another project, as a stranger does it. The variable EPL_TEST_WHOLE (set by ./test
# --all) builds the library once more, inside that project.
set(STRANGER ${PROJECT_BINARY_DIR}/as_a_stranger)
add_test(NAME install.as_a_stranger COMMAND sh ${CMAKE_CURRENT_LIST_DIR}/install.sh ${PROJECT_SOURCE_DIR}
  ${PROJECT_BINARY_DIR} ${STRANGER} $ENV{EPL_TEST_WHOLE})
set_tests_properties(install.as_a_stranger PROPERTIES LABELS "install;packaging;only_release" TIMEOUT 1500 RUN_SERIAL ON
  FIXTURES_SETUP debian_packages)

# The packages of the languages, made as for others, and used by a program in a clean folder, against the Debian
# packages that the test above has installed.
foreach(language go rust python java)
  add_test(NAME packaging.${language} COMMAND sh ${CMAKE_CURRENT_LIST_DIR}/${language}.sh ${PROJECT_SOURCE_DIR}
    ${STRANGER}/root/usr ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/packaging/${language})
endforeach()

# What the target `archives` makes has the same bytes whoever makes it.
add_test(NAME packaging.archives COMMAND sh ${CMAKE_CURRENT_LIST_DIR}/archives.sh ${PROJECT_SOURCE_DIR}
  ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/packaging/archives ${PROJECT_VERSION} ${Python3_EXECUTABLE}
  $ENV{EPL_TEST_WHOLE})
set_tests_properties(packaging.archives PROPERTIES LABELS "packaging;only_release" TIMEOUT 300)

# The library as it is shipped is small, and a program that loads it does not wait.
add_executable(start_time install/start_time.c)
target_include_directories(start_time PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(start_time PRIVATE ${CMAKE_DL_LIBS})
add_test(NAME packaging.the_library_is_small_and_starts_at_once COMMAND start_time ${STRANGER}/root/usr/lib/libepl.so.1)

foreach(test go rust python java the_library_is_small_and_starts_at_once)
  set_tests_properties(packaging.${test} PROPERTIES LABELS "packaging;only_release" FIXTURES_REQUIRED debian_packages
    SKIP_REGULAR_EXPRESSION "SKIP: " TIMEOUT 300)
endforeach()
