# The command line as a person uses it. The training cases through it are in tests/cases.
add_test(NAME tools.command_line COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/cli.sh
  $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/command_line)
set_tests_properties(tools.command_line PROPERTIES LABELS tools TIMEOUT 900)
add_test(NAME tools.saving COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/saving.sh
  $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/saving)
set_tests_properties(tools.saving PROPERTIES LABELS tools TIMEOUT 900)
add_test(NAME tools.options COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/options.sh
  $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/options)
set_tests_properties(tools.options PROPERTIES LABELS tools TIMEOUT 900)
add_test(NAME tools.validation COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/validation.sh
  $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/validation)
set_tests_properties(tools.validation PROPERTIES LABELS tools TIMEOUT 900)
add_test(NAME tools.adapters COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/adapters.sh
  $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/adapters)
set_tests_properties(tools.adapters PROPERTIES LABELS tools TIMEOUT 300)
add_test(NAME tools.meaning COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/meaning.sh
  $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/meaning)
set_tests_properties(tools.meaning PROPERTIES LABELS tools TIMEOUT 300)
add_test(NAME tools.bench COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/bench.sh
  $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/bench_of_levels)
set_tests_properties(tools.bench PROPERTIES LABELS tools TIMEOUT 300)
add_test(NAME tools.help COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/help.sh
  $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/help)
set_tests_properties(tools.help PROPERTIES LABELS "tools;only_release" TIMEOUT 900)
add_test(NAME tools.exit_codes COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/exit_codes.sh
  $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/exit_codes)
set_tests_properties(tools.exit_codes PROPERTIES LABELS "tools;only_release" TIMEOUT 300)

add_test(NAME tools.slicing COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/slicing.sh
  $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/slicing)
set_tests_properties(tools.slicing PROPERTIES LABELS tools TIMEOUT 300)

add_test(NAME tools.annotated COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/annotated.sh
  $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/annotated)
set_tests_properties(tools.annotated PROPERTIES LABELS tools TIMEOUT 300)
add_test(NAME tools.pins COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/pins.sh
  $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/pins)
set_tests_properties(tools.pins PROPERTIES LABELS tools TIMEOUT 300)

# Pairs of layouts, of graphs that are drawn and of cases: the same bits.
add_test(NAME tools.fuzz_layouts COMMAND epl_tool fuzz-layouts --seed 1 --count 40)
file(GLOB cases CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cases/*/reference.json
  ${PROJECT_SOURCE_DIR}/../shared/cases/*/reference.json)
list(TRANSFORM cases REPLACE "/reference.json$" "")
add_test(NAME tools.fuzz_layouts_of_cases COMMAND epl_tool fuzz-layouts --seed 1 --count 20 ${cases})
# A sample of strategies x cases; `./test --all` goes through all of it.
add_test(NAME cases.strategies COMMAND epl_tool check --strategies ${PROJECT_SOURCE_DIR}/tests/cases/strategies.json
  --every 19 ${cases})
set_tests_properties(cases.strategies PROPERTIES LABELS "cases;only_release" TIMEOUT 900)
add_test(NAME cases.strategies_over_processes COMMAND epl_tool check --processes 4 --every 97
  --strategies ${PROJECT_SOURCE_DIR}/tests/cases/strategies.json ${cases})
set_tests_properties(cases.strategies_over_processes PROPERTIES LABELS "cases;only_release" TIMEOUT 900)
add_test(NAME tools.check_processes COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/check_processes.sh
  $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/check_processes)
set_tests_properties(tools.check_processes PROPERTIES LABELS "tools;only_release" TIMEOUT 300)
set_tests_properties(tools.fuzz_layouts PROPERTIES LABELS tools TIMEOUT 900)
set_tests_properties(tools.fuzz_layouts_of_cases PROPERTIES LABELS "tools;only_release" TIMEOUT 900)

# Sanitizers take many times as long.
set(many_ranks_seconds 5)
if(EPL_SANITIZE)
  set(many_ranks_seconds 200)
endif()
add_test(NAME tools.many_ranks COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/many_ranks.sh
  $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/many_ranks ${many_ranks_seconds})
set_tests_properties(tools.many_ranks PROPERTIES LABELS tools TIMEOUT 600)

# The pages in a browser; the screenshots stay in the build folder.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME tools.pages_in_a_browser COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/tools/browser.py
    $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/pages)
  set_tests_properties(tools.pages_in_a_browser PROPERTIES LABELS "tools;only_release" SKIP_REGULAR_EXPRESSION "SKIP: "
    TIMEOUT 600)
endif()
add_test(NAME tools.binding COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/binding.sh
  $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/command_line_binding)
set_tests_properties(tools.binding PROPERTIES LABELS tools TIMEOUT 300)
set(launch_python "")
if(EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  set(launch_python ${PROJECT_SOURCE_DIR}/.venv/bin/python)
endif()
add_test(NAME tools.launch COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/launch.sh
  $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/launch ${launch_python})
set_tests_properties(tools.launch PROPERTIES LABELS "tools;only_release" TIMEOUT 600)
add_test(NAME tools.hosts COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/namespaces.sh
  $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/hosts)
set_tests_properties(tools.hosts PROPERTIES LABELS "tools;only_release" SKIP_REGULAR_EXPRESSION "SKIP: " TIMEOUT 300)
