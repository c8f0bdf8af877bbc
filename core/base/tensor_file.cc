#include "core/base/tensor_file.h"

#include <algorithm>
#include <vector>

namespace epl {

Status write_tensor(FileWriter& file, const Tensor& tensor) {
  constexpr int64_t piece_bytes = 4 << 20;
  if (tensor.in_memory()) return file.write(tensor.data(), static_cast<size_t>(tensor.bytes()));
  std::vector<std::byte> piece(static_cast<size_t>(std::min(piece_bytes, tensor.bytes())));
  for (int64_t at = 0; at < tensor.bytes(); at += piece_bytes) {
    const int64_t bytes = std::min(piece_bytes, tensor.bytes() - at);
    EPL_TRY(tensor.read(at, bytes, piece.data()));
    EPL_TRY(file.write(piece.data(), static_cast<size_t>(bytes)));
  }
  return {};
}

}  // namespace epl
