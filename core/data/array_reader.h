// Arrays whose first dimension counts samples, each a field: what npy, npz and safetensors have in common.
#pragma once

#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/data/reader.h"

namespace epl {

// Where the rows of an array lie: in a file, or in memory. Rows follow one another; a row is put together from spans.
struct SampleArray {
  struct Span {
    uint64_t offset = 0, bytes = 0;  // in a row
  };
  std::string name;
  TensorType type;  // with the samples as its first dimension
  std::shared_ptr<const FileReader> file;
  uint64_t offset = 0;                                   // of the first row in the file
  std::shared_ptr<const std::vector<std::byte>> memory;  // instead of a file
  uint64_t row_bytes = 0;                                // 0: those of a sample
  std::vector<Span> spans;                               // none: all of the row
  bool swapped = false;                                  // the bytes of each element are the other way round
};

// `fields`, JSON as text, says which arrays to take and under which names, {"x": "images", "target": "labels"}; empty:
// all, as they are called. An error names `path`.
Result<std::unique_ptr<Reader>> read_arrays(const std::string& path, std::vector<SampleArray> arrays,
                                            const std::string& fields);
// The option for it.
Option fields_option();

}  // namespace epl
