// The safetensors format (https://huggingface.co/docs/safetensors): a JSON header and the bytes of the tensors.
// A file is taken only if its header is right to the last byte: every range inside the file, of the size of its type,
// and together covering the data without holes or overlaps.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/file.h"
#include "core/base/tensor.h"

namespace epl {

struct SafetensorsEntry {
  std::string name;
  TensorType type;
  size_t offset = 0;  // in the file
};

// Thread safety: immutable once read.
class Safetensors {
 public:
  // Reads the header; tensors are left in the file.
  static Result<std::shared_ptr<const Safetensors>> open(const std::string& path);
  static Result<std::shared_ptr<const Safetensors>> open(std::shared_ptr<const FileReader> file);
  // `owner` keeps `bytes` alive; `name` is for messages.
  static Result<std::shared_ptr<const Safetensors>> parse(std::span<const std::byte> bytes,
                                                          std::shared_ptr<const void> owner, const std::string& name);
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // in the order of their bytes
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const SafetensorsEntry* find(std::string_view name) const;
  // Of a file that was opened, a tensor that is not in memory and keeps the file open; else borrowed from the bytes.
  Tensor tensor(const SafetensorsEntry& entry) const;

 private:
  Status read_header(std::string_view header, uint64_t file_bytes, const std::string& name);
  std::vector<SafetensorsEntry> entries_;
  std::unordered_map<std::string_view, size_t> by_name_;
  std::map<std::string, std::string> metadata_;
  std::shared_ptr<const FileReader> file_;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
};

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
// In the order given. Tensors that are not in memory are written in chunks; the header is padded so that data starts at
// a multiple of 64 bytes.
Status write_safetensors(ByteWriter& writer, const NamedTensors& tensors,
                         const std::map<std::string, std::string>& metadata = {});
// Beside and renamed.
Status save_safetensors(const std::string& path, const NamedTensors& tensors,
                        const std::map<std::string, std::string>& metadata = {}, const FileHook& hook = nullptr);

}  // namespace epl
