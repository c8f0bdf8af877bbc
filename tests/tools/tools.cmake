# The command line as a person uses it. The training cases through it are in tests/cases.
add_test(NAME tools.command_line COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/cli.sh $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/command_line)
set_tests_properties(tools.command_line PROPERTIES LABELS tools TIMEOUT 900)
