# The newest Clang that is here. Before 16 it lacked parts of C++20 that the library uses.
find_program(EPL_CLANGXX NAMES clang++-21 clang++-20 clang++-19 clang++-18 clang++-17 clang++-16 clang++ REQUIRED)
string(REPLACE "clang++" "clang" EPL_CLANG "${EPL_CLANGXX}")
set(CMAKE_C_COMPILER "${EPL_CLANG}")
set(CMAKE_CXX_COMPILER "${EPL_CLANGXX}")
