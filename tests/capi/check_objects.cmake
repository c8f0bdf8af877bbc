# cmake -DOBJECTS=a.o;b.o;... -DREADELF=readelf -P check_objects.cmake: no object of the library has code that runs when
# it is loaded.
set(found "")
list(FILTER OBJECTS EXCLUDE REGEX "\\.(gch|pch)$")   # a precompiled header counts among the objects, and is none
if(NOT OBJECTS)
  message(FATAL_ERROR "no objects to look at")
endif()
foreach(object ${OBJECTS})
  execute_process(COMMAND ${READELF} -SW ${object} OUTPUT_VARIABLE sections COMMAND_ERROR_IS_FATAL ANY)
  if(sections MATCHES "\\.(init|init_array|preinit_array|ctors)[ .]")
    string(APPEND found " ${object}")
  endif()
endforeach()
if(found)
  message(FATAL_ERROR "static constructors, which would run when a program loads the library, in:${found}. Make the object a function's static.")
endif()
