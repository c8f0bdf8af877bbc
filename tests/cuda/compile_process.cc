// A process that compiles texts as the pack does, for tests of several: compile_process LIBRARIES CACHE CAPABILITY
// TEXT... It prints a hash of each PTX, or why there is none, and at the end what the cache says.
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "backends/cuda/compiler.h"
#include "backends/cuda/kernel_cache.h"
#include "core/base/hash.h"

int main(int count, char** words) {
  using namespace epl;
  if (count < 4) return 2;
  const std::shared_ptr<cuda::KernelCache> cache = cuda::KernelCache::of(words[2]);
  for (int i = 4; i < count; ++i) {
    const auto ptx = cuda::compile(words[1], cache.get(), std::atoi(words[3]), words[i]);
    if (ptx.ok()) {
      const uint64_t hash = hash64(std::as_bytes(std::span(**ptx)));
      std::printf("%s %016llx\n", words[i], static_cast<unsigned long long>(hash));
    } else {
      std::printf("%s: %s\n", words[i], ptx.status().message().c_str());
    }
  }
  if (cache) std::printf("note: %s\n", cache->note().c_str());
  return 0;
}
