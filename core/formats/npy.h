// NumPy's file of one array (numpy.lib.format, versions 1.0 to 3.0): a line of Python in front of the elements.
#pragma once

#include <functional>
#include <string>

#include "core/base/status.h"
#include "core/base/tensor_type.h"

namespace epl {

struct NpyHeader {
  TensorType type;
  bool column_major = false;  // the first dimension runs fastest
  bool swapped = false;       // big-endian
  uint64_t data = 0;          // the byte at which the elements begin
};

// Bytes [offset, offset + size) of the file to `target`.
using ReadBytes = std::function<Status(uint64_t offset, void* target, size_t size)>;

// Reads the header of an array that takes `size` bytes in all; the elements fill what is behind it to the last byte.
// `name` is for messages.
Result<NpyHeader> read_npy_header(const std::string& name, uint64_t size, const ReadBytes& read);

}  // namespace epl
