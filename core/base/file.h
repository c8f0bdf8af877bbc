// Files. Every read is checked. A write leaves the complete old content or the complete new one, whatever happens in
// between.
//
// Nothing is mapped. If another program truncates a mapped file, or a disk fails, SIGBUS ends the process, and the
// process is our host's. A FileReader keeps its file open and reads each range when it is needed, so that large data is
// not held twice:
//   - a few bytes or all of them: `FileReader::open(path)`, then `read(offset, target, bytes)` or `read_all()`;
//   - a tensor that may never be needed, or only in part: `file_tensor(file, type, offset)`, a Tensor that is not in
//     memory (core/base/tensor.h); `load()` gives all of it, `read(begin, bytes, target)` a part. Writers of files and
//     the store of a session read such tensors chunk by chunk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/base/tensor.h"

namespace epl {

// A regular file, open for reading. A read fails where the file has become too short, where the system refuses it, or
// where the file's size or time of modification has changed since it was opened. The error names file and offset. A
// file that was replaced by renaming, or removed, is still read as it was. Thread safety: immutable; any threads may
// read at once.
class FileReader {
 public:
  static Result<std::shared_ptr<const FileReader>> open(const std::string& path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  Status read(uint64_t offset, void* target, size_t bytes) const;
  Result<std::vector<std::byte>> read_all() const;

 private:
  FileReader(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  std::string path_;
  int descriptor_;
  uint64_t size_ = 0;
  int64_t modified_seconds_ = 0, modified_nanoseconds_ = 0;
};

// The elements of a tensor that lie in a file from `offset` on, read when they are asked for. The range must lie in the
// file.
Tensor file_tensor(std::shared_ptr<const FileReader> file, TensorType type, uint64_t offset);

// Called before each operation on the file system ("create", "write", "sync", "rename", "remove", "folder") with its
// path; an error takes the place of the operation. Tests inject failures and kill the process here.
using FileHook = std::function<Status(std::string_view operation, const std::string& path)>;

// A file being written. Nothing is complete before `finish`.
class FileWriter {
 public:
  static Result<std::unique_ptr<FileWriter>> create(const std::string& path, const FileHook& hook = nullptr);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  Status write(const void* data, size_t bytes);
  // Everything is on the disk when this returns.
  Status finish();

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
