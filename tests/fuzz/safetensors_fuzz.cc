// safetensors files: whatever the bytes, an error or tensors that lie inside the file and say what they are.
#include <cstdlib>
#include <memory>
#include <string>

#include "core/formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A copy of exactly this size, so that a read past its end is seen.
  auto bytes = std::make_shared<std::vector<std::byte>>(size);
  if (size > 0) std::memcpy(bytes->data(), data, size);
  auto read = epl::Safetensors::parse({bytes->data(), size}, bytes, "fuzz");
  if (!read.ok()) return 0;
  volatile uint8_t sum = 0;
  for (const epl::SafetensorsEntry& entry : (*read)->entries()) {
    const epl::Tensor tensor = (*read)->tensor(entry);
    if (tensor.bytes() > static_cast<int64_t>(size)) std::abort();
    for (int64_t i = 0; i < tensor.bytes(); ++i)
      sum = static_cast<uint8_t>(sum + static_cast<const uint8_t*>(tensor.data())[i]);
  }
  return 0;
}
