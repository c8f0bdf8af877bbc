// Tensors into files and other streams of bytes.
#pragma once

#include "core/base/file.h"
#include "core/base/tensor.h"

namespace epl {

// The elements of a tensor: from memory, else chunk by chunk.
Status write_tensor(ByteWriter& file, const Tensor& tensor);

}  // namespace epl
