# Installed, packaged and embedded in another project, as a stranger does it. The variable EPL_TEST_WHOLE (set by ./test
# --all) builds the library once more, inside that project.
add_test(NAME install.as_a_stranger COMMAND sh ${CMAKE_CURRENT_LIST_DIR}/install.sh ${PROJECT_SOURCE_DIR}
  ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/as_a_stranger $ENV{EPL_TEST_WHOLE})
set_tests_properties(install.as_a_stranger PROPERTIES LABELS "install;only_release" TIMEOUT 1500 RUN_SERIAL ON)
