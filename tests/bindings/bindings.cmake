# The bindings against the library as it was built. A language whose tools are not here is a skip that says so.
set(BINDINGS_OUT ${PROJECT_BINARY_DIR}/bindings)
foreach(language go rust rust_epl rust_asan java java_layer)
  add_test(NAME bindings.${language}
    COMMAND sh ${PROJECT_SOURCE_DIR}/tests/bindings/${language}.sh ${PROJECT_SOURCE_DIR} $<TARGET_FILE_DIR:epl>
    ${BINDINGS_OUT}/${language} ${PROJECT_BINARY_DIR}/static)
  # A sanitized library cannot be loaded by a program that is not sanitized itself.
  set_tests_properties(bindings.${language} PROPERTIES LABELS "bindings;only_release" SKIP_REGULAR_EXPRESSION "SKIP: "
    TIMEOUT 600)
endforeach()
set_tests_properties(bindings.rust_asan PROPERTIES TIMEOUT 1500)  # it builds axum once more
add_test(NAME bindings.python_raw COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/bindings/raw_test.py
  $<TARGET_FILE:epl> ${BINDINGS_OUT}/python)
set_tests_properties(bindings.python_raw PROPERTIES LABELS "bindings;only_release")

add_test(NAME bindings.python
  COMMAND sh ${PROJECT_SOURCE_DIR}/tests/bindings/python.sh ${PROJECT_SOURCE_DIR} $<TARGET_FILE:epl>
  ${BINDINGS_OUT}/python_package)
set_tests_properties(bindings.python PROPERTIES LABELS "bindings;only_release" SKIP_REGULAR_EXPRESSION "SKIP: "
  TIMEOUT 300)

# C++: the wrapper with exceptions and without them in one program, and the page's sample.
add_executable(bindings_cpp bindings/cpp_throwing.cc bindings/cpp_returning.cc)
add_executable(sample_cpp ${PROJECT_SOURCE_DIR}/samples/cpp/first.cc)
add_executable(second_day_cpp ${PROJECT_SOURCE_DIR}/samples/cpp/second_day.cc)
foreach(target bindings_cpp sample_cpp second_day_cpp)
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  target_compile_options(${target} PRIVATE -Wall -Wextra -pedantic-errors -Werror)
  target_link_libraries(${target} PRIVATE epl)
endforeach()
set_source_files_properties(bindings/cpp_returning.cc PROPERTIES COMPILE_OPTIONS -fno-exceptions)
file(MAKE_DIRECTORY ${BINDINGS_OUT}/cpp)
add_test(NAME bindings.cpp COMMAND bindings_cpp ${BINDINGS_OUT}/cpp)
add_test(NAME bindings.cpp_sample COMMAND sample_cpp WORKING_DIRECTORY ${BINDINGS_OUT}/cpp)
add_test(NAME bindings.cpp_second_day COMMAND second_day_cpp WORKING_DIRECTORY ${BINDINGS_OUT}/cpp)
set_tests_properties(bindings.cpp bindings.cpp_sample bindings.cpp_second_day PROPERTIES LABELS bindings)
