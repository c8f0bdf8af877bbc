# cmake -DHEADER=include/epl.h -DMAP=<epl.map> -DABI=<epl.abi> -P cmake/abi.cmake
#
# The header is the source: from it come the linker's version script, with exactly the functions it declares, and a
# listing of the whole interface, which must equal the committed core/capi/epl.abi (a test compares them). The listing
# changes only by additions.
file(READ ${HEADER} text)
# CMake's lists would fall over these.
string(REPLACE ";" "@" text "${text}")
string(REPLACE "[" "<" text "${text}")
string(REPLACE "]" ">" text "${text}")
# Comments out: a `*` that does not end the comment, or anything else.
string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" "" text "${text}")

set(listing "")
set(symbols "")

string(REGEX MATCHALL "\n#define EPL_[A-Z0-9_]+ -?[0-9]+" constants "${text}")
foreach(constant ${constants})
  string(REGEX REPLACE "\n#define ([A-Z0-9_]+) +(-?[0-9]+)" "constant \\1 = \\2\n" line "${constant}")
  if(NOT line MATCHES "constant EPL_VERSION_")  # Releases differ in it, interfaces do not.
    string(APPEND listing "${line}")
  endif()
endforeach()

string(REGEX REPLACE "[ \t\n]+" " " flat "${text}")
string(REGEX MATCHALL "typedef struct [a-z_]+ {[^}]*}" structs "${flat}")
foreach(struct ${structs})
  string(REPLACE "typedef " "" struct "${struct}")
  string(REPLACE "@ " "\n  " struct "${struct}")
  string(REPLACE "{ " "{\n  " struct "${struct}")
  string(REPLACE "\n  }" "\n}" struct "${struct}")
  string(APPEND listing "${struct}\n")
endforeach()
string(REGEX MATCHALL "typedef [a-z_]+[ *]+\\(\\*[^@]*@" callbacks "${flat}")
foreach(callback ${callbacks})
  string(REPLACE "typedef " "callback " callback "${callback}")
  string(REPLACE "@" "\n" callback "${callback}")
  string(APPEND listing "${callback}")
endforeach()

string(REGEX MATCHALL "EPL_API EPL_SINCE\\([0-9]+, [0-9]+\\) [^@]*@" functions "${flat}")
foreach(function ${functions})
  string(REGEX REPLACE "EPL_API EPL_SINCE\\(([0-9]+), ([0-9]+)\\) ([^@]*)@" "\\1.\\2 \\3" line "${function}")
  string(REGEX REPLACE ".*[ *](epl_[a-z0-9_]+)\\(.*" "\\1" symbol "${line}")
  string(APPEND listing "${line}\n")
  list(APPEND symbols ${symbol})
endforeach()

string(REPLACE "<" "[" listing "${listing}")
string(REPLACE ">" "]" listing "${listing}")
list(SORT symbols)
set(map "EPL_1 {\n  global:\n")
foreach(symbol ${symbols})
  string(APPEND map "    ${symbol}@\n")
endforeach()
string(APPEND map "  local:\n    *@\n}@\n")
string(REPLACE "@" ";" map "${map}")
file(WRITE ${ABI} "${listing}")
file(WRITE ${MAP} "${map}")
