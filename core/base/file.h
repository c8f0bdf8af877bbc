// Files: read by mapping, written so that a reader sees the old content or the new one whole, whatever happens between.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace epl {

// Read-only bytes of a file, mapped. The file must not shrink while it is mapped.
class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

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
  FileWriter(std::string path, int descriptor, FileHook hook) : path_(std::move(path)), descriptor_(descriptor), hook_(std::move(hook)) {}
  std::string path_;
  int descriptor_;
  FileHook hook_;
};

// Renames and makes the renaming last: syncs the folder of `target`.
Status rename_durably(const std::string& source, const std::string& target, const FileHook& hook = nullptr);
// Writes beside `path` and renames. On an error `path` is as it was and nothing is left beside it.
Status write_file_atomically(const std::string& path, const std::function<Status(FileWriter&)>& write, const FileHook& hook = nullptr);
// Makes a folder and those above it; one that exists is fine.
Status make_folder(const std::string& path, const FileHook& hook = nullptr);
Status remove_file(const std::string& path, const FileHook& hook = nullptr);
// A folder in which something lies stays, without an error.
Status remove_empty_folder(const std::string& path, const FileHook& hook = nullptr);

// Holds a folder against others who lock it, in any process, while it lives. Where the file system has no locks it holds nothing.
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
