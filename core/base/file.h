// Files, and what is read and written as files are: bytes in memory, a part of another file, what a host's function
// gives. Every read is checked. A write leaves the complete old content or the complete new one, whatever happens in
// between.
//
// Nothing is mapped. If another program truncates a mapped file, or a disk fails, SIGBUS ends the process, and the
// process is our host's. A FileReader reads each range when it is needed, so that large data is not held twice:
//   - a few bytes or all of them: `FileReader::open(path)`, then `read(offset, target, bytes)` or `read_all()`;
//   - a tensor that may never be needed, or only in part: `file_tensor(file, type, offset)`, a Tensor that is not in
//     memory (core/base/tensor.h); `load()` gives all of it, `read(begin, bytes, target)` a part. Writers of files and
//     the store of a session read such tensors chunk by chunk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/base/tensor.h"

namespace epl {

// Bytes of a known number that can be read at any position. Thread safety: immutable; any threads may read at once.
class FileReader {
 public:
  // A regular file, which is kept open. A read fails where the file has become too short, where the system refuses it,
  // or where the file's size or time of modification has changed since it was opened. The error names file and offset.
  // A file that was replaced by renaming, or removed, is still read as it was.
  static Result<std::shared_ptr<const FileReader>> open(const std::string& path);
  // Bytes that `owner` keeps alive. `name` is for messages, here and below.
  static std::shared_ptr<const FileReader> of_bytes(std::string name, std::span<const std::byte> bytes,
                                                    std::shared_ptr<const void> owner);
  // What `read` gives, which any threads may call at once; its errors are passed on as they are.
  using Read = std::function<Status(uint64_t offset, void* target, size_t bytes)>;
  static std::shared_ptr<const FileReader> of_function(std::string name, uint64_t bytes, Read read);
  // `bytes` of another file from `offset` on; they must lie in it.
  static std::shared_ptr<const FileReader> part_of(std::shared_ptr<const FileReader> file, std::string name,
                                                   uint64_t offset, uint64_t bytes);
  virtual ~FileReader() = default;
  FileReader(const FileReader&) = delete;
  // A name for messages, where it is no file.
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  // An error where the range does not lie in the file.
  Status read(uint64_t offset, void* target, size_t bytes) const;
  Result<std::vector<std::byte>> read_all() const;

 protected:
  explicit FileReader(std::string path, uint64_t size = 0) : path_(std::move(path)), size_(size) {}
  virtual Status read_range(uint64_t offset, void* target, size_t bytes) const = 0;
  std::string path_;
  uint64_t size_;
};

// The elements of a tensor that lie in a file from `offset` on, read when they are asked for. The range must lie in the
// file.
Tensor file_tensor(std::shared_ptr<const FileReader> file, TensorType type, uint64_t offset);

// Called before each operation on the file system ("create", "write", "sync", "rename", "remove", "folder") with its
// path; an error takes the place of the operation. Tests inject failures and kill the process here.
using FileHook = std::function<Status(std::string_view operation, const std::string& path)>;

// Where bytes go, one chunk behind the other.
class ByteWriter {
 public:
  virtual ~ByteWriter() = default;
  virtual Status write(const void* data, size_t bytes) = 0;
  // Nothing follows: what a writer has gathered goes out.
  virtual Status finish() { return {}; }
};

// A file being written. Nothing is complete before `finish`.
class FileWriter final : public ByteWriter {
 public:
  static Result<std::unique_ptr<FileWriter>> create(const std::string& path, const FileHook& hook = nullptr);
  ~FileWriter() override;
  FileWriter(const FileWriter&) = delete;
  Status write(const void* data, size_t bytes) override;
  // Everything is on the disk when this returns.
  Status finish() override;

 private:
  FileWriter(std::string path, int descriptor, FileHook hook)
      : path_(std::move(path)), descriptor_(descriptor), hook_(std::move(hook)) {}
  std::string path_;
  int descriptor_;
  FileHook hook_;
};

// Renames, and syncs the folder of `target` so that the new name survives a crash.
Status rename_durably(const std::string& source, const std::string& target, const FileHook& hook = nullptr);
// Writes beside `path` and renames. On an error `path` is as it was and nothing is left beside it.
Status write_file_atomically(const std::string& path, const std::function<Status(FileWriter&)>& write,
                             const FileHook& hook = nullptr);
bool is_folder(const std::string& path);
// Makes a folder and those above it. It is no error if it exists.
Status make_folder(const std::string& path, const FileHook& hook = nullptr);
Status remove_file(const std::string& path, const FileHook& hook = nullptr);
// A folder that is not empty stays, without an error.
Status remove_empty_folder(const std::string& path, const FileHook& hook = nullptr);

// Holds a folder against others who lock it, in any process, while it lives. Where the file system has no locks it
// holds nothing.
class FolderLock {
 public:
  explicit FolderLock(const std::string& path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;

 private:
  int descriptor_;
};

// "path: No such file or directory", with the code that fits the errno.
Status system_error(std::string_view doing, const std::string& path, int error_number);

}  // namespace epl
