// A message under construction: a list of parts of the model's bytes, texts of its own, and tensors.
// What is copied stays where it is until all is written, so that a model is written without lying in memory once more.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/file.h"
#include "frontends/onnx/model_bytes.h"

namespace epl::onnx {

class MessageParts {
 public:
  size_t size() const { return size_; }
  // Text of its own.
  void add(std::string_view text);
  // A part of the model's bytes, which must be there until `write`.
  void copy(std::string_view part);
  void add(epl::Tensor value);
  // A field that holds bytes.
  void add_message(uint32_t tag, MessageParts message);
  Status write(ByteWriter& file, const ModelBytes& bytes) const;

 private:
  std::vector<std::variant<std::string, std::string_view, epl::Tensor>> parts_;
  size_t size_ = 0;
};

}  // namespace epl::onnx
