#include "core/base/tensor_file.h"

#include <algorithm>
#include <vector>

namespace epl {

Status write_tensor(ByteWriter& file, const Tensor& tensor) {
  constexpr int64_t chunk_bytes = 4 << 20;
  if (tensor.in_memory()) return file.write(tensor.data(), static_cast<size_t>(tensor.bytes()));
  std::vector<std::byte> chunk(static_cast<size_t>(std::min(chunk_bytes, tensor.bytes())));
  for (int64_t at = 0; at < tensor.bytes(); at += chunk_bytes) {
    const int64_t bytes = std::min(chunk_bytes, tensor.bytes() - at);
    EPL_TRY(tensor.read(at, bytes, chunk.data()));
    EPL_TRY(file.write(chunk.data(), static_cast<size_t>(bytes)));
  }
  return {};
}

}  // namespace epl
