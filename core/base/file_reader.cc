// The rows of FileReader: a file, memory, a function, a part of another.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/file.h"
#include "core/base/shown.h"

namespace epl {
namespace {

class OpenFile final : public FileReader {
 public:
  OpenFile(const std::string& path, int descriptor) : FileReader(path), descriptor_(descriptor) {}
  ~OpenFile() override { ::close(descriptor_); }

  Status look() {
    struct stat info{};
    if (::fstat(descriptor_, &info) != 0) return system_error("cannot look at", path_, errno);
    if (!S_ISREG(info.st_mode))
      return Status(Code::invalid_argument, cat(shown_path(path_), " is not a regular file"), path_);
    size_ = static_cast<uint64_t>(info.st_size);
    modified_seconds_ = info.st_mtim.tv_sec;
    modified_nanoseconds_ = info.st_mtim.tv_nsec;
    return {};
  }

 private:
  Status too_short(uint64_t end) const {
    return Status(Code::io,
                  cat(path_, " ends at byte ", end, "; it had ", size_,
                      " bytes when it was opened. Replace a file in use by renaming a new one over it"),
                  path_);
  }
  Status read_range(uint64_t offset, void* target, size_t bytes) const override {
    auto* to = static_cast<char*>(target);
    uint64_t at = offset;
    for (size_t left = bytes; left > 0;) {
      const ssize_t got = ::pread(descriptor_, to, std::min<size_t>(left, size_t{1} << 30), static_cast<off_t>(at));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return system_error(cat("cannot read at byte ", at, " of"), path_, errno);
      if (got == 0) return too_short(at);
      to += got, at += static_cast<uint64_t>(got), left -= static_cast<size_t>(got);
    }
    struct stat info{};
    if (::fstat(descriptor_, &info) != 0) return system_error("cannot look at", path_, errno);
    // What was read may be from before it became shorter.
    if (static_cast<uint64_t>(info.st_size) < size_) return too_short(static_cast<uint64_t>(info.st_size));
    if (static_cast<uint64_t>(info.st_size) != size_ || info.st_mtim.tv_sec != modified_seconds_ ||
        info.st_mtim.tv_nsec != modified_nanoseconds_) {
      return Status(Code::io,
                    cat(path_, " has been changed since it was opened (seen reading at byte ", offset,
                        "). Replace a file in use by renaming a new one over it"),
                    path_);
    }
    return {};
  }

  int descriptor_;
  int64_t modified_seconds_ = 0, modified_nanoseconds_ = 0;
};

class BytesInMemory final : public FileReader {
 public:
  BytesInMemory(std::string name, std::span<const std::byte> bytes, std::shared_ptr<const void> owner)
      : FileReader(std::move(name), bytes.size()), bytes_(bytes), owner_(std::move(owner)) {}

 private:
  Status read_range(uint64_t offset, void* target, size_t bytes) const override {
    std::memcpy(target, bytes_.data() + offset, bytes);
    return {};
  }
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
};

class FunctionReader final : public FileReader {
 public:
  FunctionReader(std::string name, uint64_t bytes, Read read)
      : FileReader(std::move(name), bytes), read_(std::move(read)) {}

 private:
  Status read_range(uint64_t offset, void* target, size_t bytes) const override { return read_(offset, target, bytes); }
  Read read_;
};

class FilePart final : public FileReader {
 public:
  FilePart(std::shared_ptr<const FileReader> file, std::string name, uint64_t offset, uint64_t bytes)
      : FileReader(std::move(name), bytes), file_(std::move(file)), offset_(offset) {}

 private:
  Status read_range(uint64_t offset, void* target, size_t bytes) const override {
    return file_->read(offset_ + offset, target, bytes);
  }
  std::shared_ptr<const FileReader> file_;
  uint64_t offset_;
};

class FileRange final : public TensorSource {
 public:
  FileRange(std::shared_ptr<const FileReader> file, uint64_t offset) : file_(std::move(file)), offset_(offset) {}
  Status read(int64_t begin, int64_t bytes, void* target) const override {
    return file_->read(offset_ + static_cast<uint64_t>(begin), target, static_cast<size_t>(bytes));
  }

 private:
  std::shared_ptr<const FileReader> file_;
  uint64_t offset_;
};

}  // namespace

Result<std::shared_ptr<const FileReader>> FileReader::open(const std::string& path) {
  if (path.find('\0') != std::string::npos) return invalid("a path with a zero byte");
  // Opening a FIFO would wait for a writer; O_NONBLOCK means nothing to a regular file.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return system_error("cannot open", path, errno);
  std::shared_ptr<OpenFile> file;
  try {
    file = std::make_shared<OpenFile>(path, descriptor);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  EPL_TRY(file->look());
  return std::shared_ptr<const FileReader>(std::move(file));
}

std::shared_ptr<const FileReader> FileReader::of_bytes(std::string name, std::span<const std::byte> bytes,
                                                       std::shared_ptr<const void> owner) {
  return std::make_shared<BytesInMemory>(std::move(name), bytes, std::move(owner));
}

std::shared_ptr<const FileReader> FileReader::of_function(std::string name, uint64_t bytes, Read read) {
  return std::make_shared<FunctionReader>(std::move(name), bytes, std::move(read));
}

std::shared_ptr<const FileReader> FileReader::part_of(std::shared_ptr<const FileReader> file, std::string name,
                                                      uint64_t offset, uint64_t bytes) {
  return std::make_shared<FilePart>(std::move(file), std::move(name), offset, bytes);
}

Status FileReader::read(uint64_t offset, void* target, size_t bytes) const {
  if (offset > size_ || bytes > size_ - offset)
    return Status(Code::io, cat(path_, " has ", size_, " bytes; ", bytes, " from byte ", offset, " on are not there"),
                  path_);
  return bytes == 0 ? Status() : read_range(offset, target, bytes);
}

Result<std::vector<std::byte>> FileReader::read_all() const {
  std::vector<std::byte> out(size_);
  EPL_TRY(read(0, out.data(), out.size()));
  return out;
}

Tensor file_tensor(std::shared_ptr<const FileReader> file, TensorType type, uint64_t offset) {
  return Tensor(std::move(type), std::make_shared<FileRange>(std::move(file), offset));
}

}  // namespace epl
