# The command line as a person uses it. The training cases through it are in tests/cases.

# script_test(NAME LABELS SECONDS [ARGUMENT ...]): NAME.sh EPL FOLDER ARGUMENT..., in a folder of its own.
function(script_test name labels seconds)
  add_test(NAME tools.${name} COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/${name}.sh
    $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/tools.${name} ${ARGN})
  set_tests_properties(tools.${name} PROPERTIES LABELS "${labels}" TIMEOUT ${seconds})
endfunction()

script_test(command_line tools 900)
script_test(saving tools 900)
script_test(offload "tools;only_release" 300)
script_test(options tools 900)
script_test(validation tools 900)
script_test(adapters tools 300)
script_test(meaning tools 300)
script_test(bench tools 300)
script_test(templates tools 300)
script_test(help "tools;only_release" 900)
script_test(exit_codes "tools;only_release" 300)
script_test(slicing tools 300)
script_test(annotated tools 300)
script_test(pins tools 300)
script_test(found_plans tools 300)
script_test(calibrate "tools;only_release" 300)
script_test(odd_texts tools 300)
# With the machine for tests, where there is one (tests/CMakeLists.txt), as the GPU.
set(machine_of_tests "")
if(NOT EPL_SANITIZE)
  set(machine_of_tests ${PROJECT_BINARY_DIR}/cuda_machine)
  if(EXISTS ${PROJECT_SOURCE_DIR}/build/nvrtc/version)
    list(APPEND machine_of_tests ${PROJECT_SOURCE_DIR}/build/nvrtc)
  endif()
endif()
script_test(devices tools 300 ${machine_of_tests})

# Pairs of layouts, of graphs that are drawn and of cases: the same bits.
add_test(NAME tools.fuzz_layouts COMMAND epl_tool fuzz-layouts --seed 1 --count 40)
file(GLOB cases CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cases/*/reference.json
  ${PROJECT_SOURCE_DIR}/../shared/cases/*/reference.json)
list(TRANSFORM cases REPLACE "/reference.json$" "")
add_test(NAME tools.fuzz_layouts_of_cases COMMAND epl_tool fuzz-layouts --seed 1 --count 20 ${cases})
# A sample of strategies x cases; `./test --all` goes through all of it.
add_test(NAME cases.strategies COMMAND epl_tool check --strategies ${PROJECT_SOURCE_DIR}/tests/cases/strategies.json
  --every 29 ${cases})
set_tests_properties(cases.strategies PROPERTIES LABELS "cases;only_release" TIMEOUT 900)
# A sample of options x strategies x cases.
add_test(NAME cases.options COMMAND epl_tool check --strategies ${PROJECT_SOURCE_DIR}/tests/cases/strategies.json
  --options ${PROJECT_SOURCE_DIR}/tests/cases/options.json --every 997 ${cases})
set_tests_properties(cases.options PROPERTIES LABELS "cases;only_release" TIMEOUT 900)
# Plans that are found, of a few cases; the standard list has them for all.
add_test(NAME cases.found COMMAND epl_tool check --strategies ${PROJECT_SOURCE_DIR}/tests/cases/found.json
  ${PROJECT_SOURCE_DIR}/tests/cases/mlp_sgd_legacy ${PROJECT_SOURCE_DIR}/tests/cases/gpt_legacy_adamw
  ${PROJECT_SOURCE_DIR}/tests/cases/cnn_adam_dynamo)
set_tests_properties(cases.found PROPERTIES LABELS cases TIMEOUT 300)
add_test(NAME cases.strategies_over_processes COMMAND epl_tool check --processes 4 --every 97
  --strategies ${PROJECT_SOURCE_DIR}/tests/cases/strategies.json ${cases})
set_tests_properties(cases.strategies_over_processes PROPERTIES LABELS "cases;only_release" TIMEOUT 900)
script_test(check_processes "tools;only_release" 300)
set_tests_properties(tools.fuzz_layouts PROPERTIES LABELS tools TIMEOUT 900)
set_tests_properties(tools.fuzz_layouts_of_cases PROPERTIES LABELS "tools;only_release" TIMEOUT 900)

# Sanitizers take many times as long.
set(many_ranks_seconds 5)
if(EPL_SANITIZE)
  set(many_ranks_seconds 200)
endif()
script_test(many_ranks tools 600 ${many_ranks_seconds})

# What ./test says of tests that failed.
add_test(NAME tools.counts COMMAND bash ${PROJECT_SOURCE_DIR}/tests/tools/counts.sh ${PROJECT_SOURCE_DIR}
  ${PROJECT_BINARY_DIR}/tools.counts)
set_tests_properties(tools.counts PROPERTIES LABELS "tools;only_release" TIMEOUT 300)

# The pages in a browser; the screenshots stay in the build folder.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME tools.pages_in_a_browser COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/tools/browser.py
    $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/pages)
  set_tests_properties(tools.pages_in_a_browser PROPERTIES LABELS "tools;only_release" SKIP_REGULAR_EXPRESSION "SKIP: "
    TIMEOUT 600)
endif()
script_test(binding tools 300)
set(launch_python "")
if(EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  set(launch_python ${PROJECT_SOURCE_DIR}/.venv/bin/python)
endif()
script_test(agreement "tools;only_release" 900)
script_test(launch "tools;only_release" 600 ${launch_python})
# What others do to a job: signals, readers that stall, files and disks that are not what they should be.
script_test(asked_to_end "tools;only_release" 300)
script_test(rendezvous_folder "tools;only_release" 300)
script_test(launch_output "tools;only_release" 300)
script_test(hostile_files "tools;only_release" 600)
script_test(hosts "tools;only_release" 300)
set_tests_properties(tools.hosts PROPERTIES SKIP_REGULAR_EXPRESSION "SKIP: ")
