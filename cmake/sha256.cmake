# SHA-256 of OpenSSL, which uses the instructions that processors have for it: EPL_SHA256, one object cut out of
# libcrypto.a. The rest of libcrypto stays outside: what is cut out has no settings and no providers. Nobody else sees
# OpenSSL's names in it, so a host has any copy of OpenSSL beside libepl.so or libepl.a. OpenSSL asks the processor what
# it can when a library is loaded, and looks into the environment then. Here core/base/sha256.cc has it ask at the first
# use, and no environment is there, because that is the host's.
find_path(CRYPTO_INCLUDE openssl/sha.h REQUIRED)
find_library(CRYPTO_ARCHIVE NAMES libcrypto.a REQUIRED)
find_program(PARTIAL_LINKER NAMES ld.bfd ld REQUIRED)  # one that gives common symbols their memory
mark_as_advanced(CRYPTO_INCLUDE CRYPTO_ARCHIVE PARTIAL_LINKER)
set(EPL_SHA256 ${GENERATED}/sha256_of_openssl.o)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CRYPTO_ARCHIVE})

if("${CRYPTO_ARCHIVE}" IS_NEWER_THAN "${EPL_SHA256}" OR "${CMAKE_CURRENT_LIST_FILE}" IS_NEWER_THAN "${EPL_SHA256}")
  set(wanted "")
  set(kept "")
  set(changed --remove-section=.init --remove-section=.rela.init --redefine-sym=getenv=epl_no_environment)
  foreach(name SHA256_Init SHA256_Update SHA256_Final CRYPTO_memcmp OPENSSL_cpuid_setup)
    list(APPEND wanted -u ${name})
    list(APPEND kept --keep-global-symbol=${name})
    list(APPEND changed --redefine-sym=${name}=epl_${name})
  endforeach()
  file(MAKE_DIRECTORY ${GENERATED})
  execute_process(COMMAND ${PARTIAL_LINKER} -r -d ${wanted} -o ${EPL_SHA256}.linked ${CRYPTO_ARCHIVE}
    COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${CMAKE_OBJCOPY} ${kept} ${EPL_SHA256}.linked ${EPL_SHA256}.kept COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${CMAKE_OBJCOPY} ${changed} ${EPL_SHA256}.kept ${EPL_SHA256} COMMAND_ERROR_IS_FATAL ANY)
endif()
