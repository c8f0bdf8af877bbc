// Writers of bytes for tests.
#pragma once

#include <algorithm>
#include <string>

#include "core/base/file.h"

namespace epl {

// Keeps what it is given.
class BytesWritten final : public ByteWriter {
 public:
  Status write(const void* data, size_t bytes) override {
    text.append(static_cast<const char*>(data), bytes);
    largest = std::max(largest, bytes);
    return {};
  }
  std::string text;
  size_t largest = 0;
};

// Fails at the byte `room`.
class FullWriter final : public ByteWriter {
 public:
  explicit FullWriter(size_t room) : room_(room) {}
  Status write(const void*, size_t bytes) override {
    if (bytes > room_) return Status(Code::not_found, "the bucket is gone");
    room_ -= bytes;
    return {};
  }

 private:
  size_t room_;
};

inline std::shared_ptr<const FileReader> reader_of(const std::string& name, std::string text) {
  auto kept = std::make_shared<const std::string>(std::move(text));
  return FileReader::of_bytes(name, std::as_bytes(std::span(*kept)), kept);
}

}  // namespace epl
