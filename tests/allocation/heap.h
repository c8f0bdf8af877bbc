// What the heap of this program has given, every byte of every thread. tests/allocation/allocation_test.cc counts.
#pragma once

#include <cstdint>

#include "core/base/function_ref.h"

namespace epl {

// False where a sanitizer has a heap of its own.
bool heap_is_counted();
// The most bytes that were in use at once while this ran, beside those that were in use before.
int64_t most_heap_of(FunctionRef<void()> work);

}  // namespace epl
