# Packs that do not fit, each in a folder of its own, and where the real ones are.
set(bad_packs "")
foreach(fault no_entry gives_nothing other_version old_version short_table short_row short_device
    older_device other_name)
  add_library(bad_pack_${fault} MODULE ${CMAKE_CURRENT_SOURCE_DIR}/packs/bad_pack.c)
  string(TOUPPER ${fault} macro)
  target_compile_definitions(bad_pack_${fault} PRIVATE ${macro})
  target_include_directories(bad_pack_${fault} PRIVATE ${PROJECT_SOURCE_DIR})
  set_target_properties(bad_pack_${fault} PROPERTIES OUTPUT_NAME epl_onednn PREFIX lib
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bad_packs/${fault})
  list(APPEND bad_packs bad_pack_${fault})
endforeach()
add_dependencies(test_packs ${bad_packs})
target_compile_definitions(test_packs PRIVATE EPL_BAD_PACKS="${PROJECT_BINARY_DIR}/bad_packs"
  EPL_ONEDNN_MISSING="${EPL_ONEDNN_MISSING}")

# Packs lie beside libepl.so.
get_property(packs GLOBAL PROPERTY EPL_PACK_TARGETS)
set(users test_packs test_data test_backend test_cuda test_net test_program test_runtime rank_process epl_collectives)
foreach(target fuzz_reader fuzz_image)
  if(TARGET ${target})
    list(APPEND users ${target})
  endif()
endforeach()
foreach(target ${users})
  target_compile_definitions(${target} PRIVATE EPL_PACK_FOLDER="$<TARGET_FILE_DIR:epl>")
  if(packs)
    add_dependencies(${target} ${packs})
  endif()
endforeach()
target_compile_definitions(test_data PRIVATE EPL_PARQUET_MISSING="${EPL_PARQUET_MISSING}"
  EPL_IMAGES_MISSING="${EPL_IMAGES_MISSING}")
foreach(pack ${packs})
  string(REPLACE epl_ "" name ${pack})
  add_test(NAME packs.${name}_shows_its_entry_alone
    COMMAND ${CMAKE_COMMAND} -DPACK=$<TARGET_FILE:${pack}> -DNM=${CMAKE_NM}
    -P ${CMAKE_CURRENT_SOURCE_DIR}/packs/check_pack.cmake)
  set_tests_properties(packs.${name}_shows_its_entry_alone PROPERTIES LABELS "packs;only_release")
endforeach()
