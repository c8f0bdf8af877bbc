// The bytes of a model, and of the files beside it that hold data of its tensors.
//
// A model file is read into memory at its own offsets, but the raw data of large tensors stays in the file. Its place
// in memory holds zeros, in pages that are never touched and so take no memory. It is read when a tensor's elements are
// asked for. Thread safety: any threads at once.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/frontend/model_source.h"

namespace epl::onnx {

class ModelBytes {
 public:
  static Result<std::shared_ptr<const ModelBytes>> open(const ModelSource& source);
  static std::shared_ptr<const ModelBytes> copy(std::span<const std::byte> bytes, const ModelSource& source = {});
  ~ModelBytes();
  ModelBytes(const ModelBytes&) = delete;

  // As many as the file has; zeros where raw data was left out.
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // The tensor whose elements are `part` of bytes(), in memory or not. Without `bytes`, of memory that outlives the
  // tensor.
  static Result<epl::Tensor> tensor(const std::shared_ptr<const ModelBytes>& bytes, TensorType type,
                                    std::string_view part);
  // Appends `part` of bytes() as the file has it.
  Status append(std::string& out, std::string_view part) const;
  // A file beside the model, opened once, by the path that a tensor names.
  Result<std::shared_ptr<const FileReader>> beside(const std::string& location) const;

 private:
  struct Range {
    size_t begin = 0, end = 0;
  };
  ModelBytes() = default;
  Status read(const Stop& stop);
  // The ranges that were left in the file and touch [begin, end).
  std::span<const Range> left_out(size_t begin, size_t end) const;

  friend class Scanner;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  ModelSource source_;           // its file while something was left in it
  std::vector<Range> left_out_;  // in order
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<const FileReader>> beside_;
};

}  // namespace epl::onnx
