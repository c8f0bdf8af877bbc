// Checks for our own mistakes. They stay on in release. A failed check throws `InternalError`. It is caught only in
// core/capi and at the top of threads, poisons the session, and becomes EPL_ERROR_INTERNAL. The host process must not
// die of our bug, and must not go on with wrong weights either.
#pragma once

#include <stdexcept>
#include <string>

#include "core/base/text.h"

namespace epl {

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void check_failed(const char* expression, const char* file, int line, const std::string& message);

// EPL_CHECK(condition, "what", value, ...): the message is built only on failure.
#define EPL_CHECK(condition, ...)                    \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? static_cast<void>(0)                        \
       : ::epl::check_failed(#condition, __FILE__, __LINE__, ::epl::cat(__VA_ARGS__)))

}  // namespace epl
