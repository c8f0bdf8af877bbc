# What a page shows is run as it stands there.
add_test(NAME docs.strategies COMMAND sh ${CMAKE_CURRENT_LIST_DIR}/strategies.sh
  ${PROJECT_SOURCE_DIR}/docs/migrating-from-epl.md $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/docs.strategies)
set_tests_properties(docs.strategies PROPERTIES LABELS docs)
add_test(NAME docs.how_many_devices COMMAND sh ${CMAKE_CURRENT_LIST_DIR}/how_many_devices.sh
  ${PROJECT_SOURCE_DIR}/docs/how-many-devices.md $<TARGET_FILE:epl_tool> ${PROJECT_BINARY_DIR}/docs.how_many_devices)
set_tests_properties(docs.how_many_devices PROPERTIES LABELS docs)
