# The programs of samples/, built against the header and libepl.so alone, and run. A language whose tools are not here
# is a skip that says so.
set(SAMPLES ${PROJECT_SOURCE_DIR}/samples)
set(SAMPLES_OUT ${PROJECT_BINARY_DIR}/samples)
file(MAKE_DIRECTORY ${SAMPLES_OUT})

foreach(name 01_hello 02_train_mlp 04_from_onnxruntime)
  add_executable(sample_${name} ${SAMPLES}/${name}.c)
  set_target_properties(sample_${name} PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  target_compile_options(sample_${name} PRIVATE -Wall -Wextra -pedantic -Werror)
  target_link_libraries(sample_${name} PRIVATE epl)
  file(MAKE_DIRECTORY ${SAMPLES_OUT}/${name})
  add_test(NAME samples.${name} COMMAND sample_${name} ${SAMPLES_OUT}/${name})
  set_tests_properties(samples.${name} PROPERTIES LABELS samples)
endforeach()

# epl_language_sample(<language> <tool variable>): a test that runs tests/samples/<language>.sh, which builds and runs.
function(epl_language_sample language tool)
  find_program(EPL_SAMPLE_${language} ${tool})
  add_test(NAME samples.${language}
    COMMAND sh ${PROJECT_SOURCE_DIR}/tests/samples/${language}.sh ${PROJECT_SOURCE_DIR}
    $<TARGET_FILE_DIR:epl> ${SAMPLES_OUT}/${language})
  # A sanitized library cannot be loaded by a program that is not sanitized itself.
  set_tests_properties(samples.${language} PROPERTIES LABELS "samples;only_release" SKIP_REGULAR_EXPRESSION "SKIP: "
    TIMEOUT 600)
endfunction()
epl_language_sample(go go)
epl_language_sample(go_service go)
epl_language_sample(rust rustc)
epl_language_sample(rust_service cargo)
epl_language_sample(java javac)
# Each compiles its service with what it is made of, and kills it some times.
set_tests_properties(samples.go_service samples.rust_service samples.java PROPERTIES TIMEOUT 1500)
# A cluster, and three trainings on it: minutes, for ./test --all.
epl_language_sample(spark javac)
set_tests_properties(samples.spark PROPERTIES TIMEOUT 2400 RUN_SERIAL ON)

# One training in two processes, of a program in each language: the same bits in all of them.
add_test(NAME samples.processes COMMAND sh ${PROJECT_SOURCE_DIR}/tests/samples/processes.sh ${PROJECT_SOURCE_DIR}
  ${PROJECT_BINARY_DIR} ${SAMPLES_OUT}/processes)
set_tests_properties(samples.processes PROPERTIES LABELS "samples;only_release" TIMEOUT 600)

# A sample in shell and Python that installs a model of 90 MB is run where that is there already.
add_test(NAME samples.03_finetune
  COMMAND sh ${PROJECT_SOURCE_DIR}/tests/samples/finetune.sh ${PROJECT_SOURCE_DIR}
  $<TARGET_FILE:epl_tool> ${SAMPLES_OUT}/finetune)
set_tests_properties(samples.03_finetune PROPERTIES LABELS "samples;only_release" SKIP_REGULAR_EXPRESSION "SKIP: "
  TIMEOUT 600)
