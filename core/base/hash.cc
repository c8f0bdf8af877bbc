#include "core/base/hash.h"

#define XXH_INLINE_ALL  // no symbol and no library: libepl.so needs libc and libm alone
#include <xxhash.h>

namespace epl {

static_assert(sizeof(XXH64_state_t) == 88 && alignof(XXH64_state_t) <= 8, "Hash64 holds the library's state");

Hash64::Hash64() { XXH64_reset(reinterpret_cast<XXH64_state_t*>(state_), 0); }

void Hash64::add(const void* data, size_t bytes) {
  if (bytes > 0) XXH64_update(reinterpret_cast<XXH64_state_t*>(state_), data, bytes);
}

uint64_t Hash64::value() const { return XXH64_digest(reinterpret_cast<const XXH64_state_t*>(state_)); }

}  // namespace epl
