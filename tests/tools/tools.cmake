# The command line as a person uses it, and the training cases through it.
add_test(NAME tools.command_line COMMAND sh ${CMAKE_SOURCE_DIR}/tests/tools/cli.sh $<TARGET_FILE:epl_tool> ${CMAKE_BINARY_DIR}/command_line)
set_tests_properties(tools.command_line PROPERTIES LABELS tools TIMEOUT 900)

function(epl_cases name folder)
  add_test(NAME tools.cases_${name} COMMAND sh ${CMAKE_SOURCE_DIR}/tests/tools/cases.sh $<TARGET_FILE:epl_tool> ${folder} ${ARGN})
  set_tests_properties(tools.cases_${name} PROPERTIES LABELS tools SKIP_REGULAR_EXPRESSION "SKIP: " TIMEOUT 900)
endfunction()
epl_cases(own ${CMAKE_SOURCE_DIR}/tests/cases)
epl_cases(shared ${CMAKE_SOURCE_DIR}/../shared/cases)
epl_cases(shared_threads ${CMAKE_SOURCE_DIR}/../shared/cases --threads 2)
add_test(NAME tools.weights_have_the_committed_bits
  COMMAND sh ${CMAKE_SOURCE_DIR}/tests/tools/hashes.sh $<TARGET_FILE:epl_tool> ${CMAKE_SOURCE_DIR}/tests/tools/weights_hashes.txt
          ${CMAKE_SOURCE_DIR}/tests/cases ${CMAKE_SOURCE_DIR}/../shared/cases)
set_tests_properties(tools.weights_have_the_committed_bits PROPERTIES LABELS tools TIMEOUT 900)
