# Scripts of calls that print the same in every language (tests/conformance/README.md).
foreach(language c cpp go rust java python)
  add_test(NAME conformance.${language}
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/conformance/run.py ${language} $<TARGET_FILE:epl>
    ${PROJECT_BINARY_DIR}/conformance --random 20)
  # A sanitized library cannot be loaded by a program that is not sanitized itself.
  set_tests_properties(conformance.${language} PROPERTIES LABELS "conformance;only_release"
    SKIP_REGULAR_EXPRESSION "SKIP: " TIMEOUT 300)
endforeach()
