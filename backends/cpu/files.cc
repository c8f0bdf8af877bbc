// Files as memory: room that is taken at once, addresses that fault, and two threads for each file.
#include "backends/cpu/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/file.h"
#include "core/base/shown.h"

namespace epl::cpu {
namespace {

constexpr int64_t file_page = 4096;
constexpr int64_t file_part = 1 << 20;

// A file that no folder names.
int open_nameless(const std::string& folder) {
  const int opened = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (opened >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return opened;
  // Where the file system has no such files, one loses its name at once.
  std::string path = cat(folder, "/epl-offload-", std::string(6, 'X'));
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(path.c_str());
  return named;
}

// An error number; 0: there is room.
int take_room(int descriptor, int64_t bytes) {
  int failed = 0;
  do {
    failed = bytes > 0 ? ::posix_fallocate(descriptor, 0, bytes) : 0;
  } while (failed == EINTR);  // by a signal of the host
  return failed;
}

}  // namespace

Result<std::unique_ptr<File>> File::create(const std::string& folder, int64_t bytes) {
  static constexpr std::string_view opening = "offload.folder: making a file in";
  if (folder.find('\0') != std::string::npos) return invalid("offload.folder has a zero byte");
  const int descriptor = open_nameless(folder);
  if (descriptor < 0) return system_error(opening, folder, errno);
  std::unique_ptr<File> file(new File(folder, descriptor, bytes));
  if (const int full = take_room(descriptor, bytes); full != 0)
    return system_error(cat("offload.folder: taking ", grouped(bytes), " bytes for values in"), folder, full);
  EPL_TRY(file->start());
  return file;
}

File::~File() {
  reads_.end();
  writes_.end();
  ::close(descriptor_);
}

Status File::read(int64_t offset, void* target, int64_t bytes) const {
  auto* to = static_cast<char*>(target);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, to, static_cast<size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("offload.folder: reading values in", folder_, errno);
    if (got == 0)
      return error(Code::io, "offload.folder: a file with values in ", shown_path(folder_), " ends at byte ", offset,
                   " of ", bytes_, "; another program has shortened it");
    to += got;
    offset += got;
    bytes -= got;
  }
  return {};
}

Status File::write(int64_t offset, const void* source, int64_t bytes) const {
  const auto* from = static_cast<const char*>(source);
  while (bytes > 0) {
    const ssize_t put = ::pwrite(descriptor_, from, static_cast<size_t>(bytes), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return system_error("offload.folder: writing values in", folder_, put < 0 ? errno : EIO);
    from += put;
    offset += put;
    bytes -= put;
  }
  return {};
}

Status File::start() {
  EPL_TRY(reads_.start());
  return writes_.start();
}

void File::post_read(int64_t offset, void* target, int64_t bytes, Awaited awaited, std::shared_ptr<Posts> posts) {
  reads_.post(
      {.offset = offset, .bytes = bytes, .memory = target, .awaited = std::move(awaited), .posts = std::move(posts)});
}

void File::post_write(int64_t offset, const void* source, int64_t bytes, Awaited awaited,
                      std::shared_ptr<Posts> posts) {
  writes_.post({.offset = offset,
                .bytes = bytes,
                .memory = const_cast<void*>(source),
                .awaited = std::move(awaited),
                .posts = std::move(posts)});
}

bool Awaited::add(const std::shared_ptr<Posts>& posts, uint64_t last) {
  const auto end = parts_.begin() + static_cast<std::ptrdiff_t>(count_);
  const auto known = std::find_if(parts_.begin(), end, [&](const Part& part) { return part.posts == posts; });
  if (known != end) {
    known->last = std::max(known->last, last);
    return true;
  }
  if (count_ == parts_.size()) return false;
  parts_[count_++] = {posts, last};
  return true;
}

Status Awaited::wait() const {
  Status first;
  for (size_t i = 0; i < count_; ++i) {
    parts_[i].posts->wait(parts_[i].last);
    if (first.ok()) first = parts_[i].posts->failure();
  }
  return first;
}

Status FileQueue::start() {
  EPL_ASSIGN(thread_, Thread::start("epl-file", [this] { serve(); }));
  return {};
}

void FileQueue::end() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void FileQueue::post(Command command) {
  const uint64_t last = command.posts->last(), most_open = command.posts->room() - 1;
  if (last >= most_open) command.posts->wait(last - most_open + 1);
  command.post = command.posts->add();
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return count_ < most_waiting; });
    waiting_[(first_ + count_) % most_waiting] = std::move(command);
    ++count_;
  }
  changed_.notify_all();
}

void FileQueue::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return count_ > 0 || ends_; });
    if (count_ == 0) return;
    const Command command = std::exchange(waiting_[first_], {});
    first_ = (first_ + 1) % most_waiting;
    --count_;
    lock.unlock();
    changed_.notify_all();
    Status status = command.awaited.wait();
    if (status.ok())
      status = writes_ ? file_.write(command.offset, command.memory, command.bytes)
                       : file_.read(command.offset, command.memory, command.bytes);
    command.posts->end(command.post, status);
    lock.lock();
  }
}

// The addresses of a file.
class FileBuffer final : public Buffer {
 public:
  FileBuffer(std::shared_ptr<Files> files, std::unique_ptr<File> file, void* address, int64_t reserved)
      : files_(std::move(files)), file_(std::move(file)), address_(address), reserved_(reserved) {
    std::lock_guard lock(files_->mutex_);
    files_->regions_[reinterpret_cast<uintptr_t>(address_)] = {file_.get(), reserved_};
  }
  ~FileBuffer() override {
    {
      std::lock_guard lock(files_->mutex_);
      files_->regions_.erase(reinterpret_cast<uintptr_t>(address_));
    }
    ::munmap(address_, static_cast<size_t>(reserved_));
  }
  void* data() override { return address_; }
  int64_t bytes() const override { return file_->bytes(); }

 private:
  std::shared_ptr<Files> files_;
  std::unique_ptr<File> file_;
  void* address_;
  int64_t reserved_;
};

Result<std::unique_ptr<Buffer>> Files::allocate(int64_t bytes) {
  if (bytes < 0) return invalid("a buffer of ", bytes, " bytes");
  EPL_ASSIGN(std::unique_ptr<File> file, File::create(folder_, bytes));
  {
    std::lock_guard lock(part_mutex_);
    part_.resize(static_cast<size_t>(file_part));
  }
  const int64_t reserved = (bytes / file_page + 1) * file_page;
  void* address =
      ::mmap(nullptr, static_cast<size_t>(reserved), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    return error(Code::out_of_memory, "the operating system gave no addresses for ", grouped(bytes),
                 " bytes in a file of offload.folder");
  return std::unique_ptr<Buffer>(new FileBuffer(shared_from_this(), std::move(file), address, reserved));
}

Files::Place Files::find(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  std::lock_guard lock(mutex_);
  auto region = regions_.upper_bound(at);
  if (region == regions_.begin()) return {};
  --region;
  const auto offset = static_cast<int64_t>(at - region->first);
  return offset < region->second.reserved ? Place{region->second.file, offset} : Place{};
}

Status Files::copy(void* target, const void* source, int64_t bytes) {
  const Place to = find(target), from = find(source);
  if (!from) return to.file->write(to.offset, source, bytes);
  if (!to) return from.file->read(from.offset, target, bytes);
  std::lock_guard lock(part_mutex_);
  for (int64_t at = 0; at < bytes; at += file_part) {
    const int64_t part = std::min(file_part, bytes - at);
    EPL_TRY(from.file->read(from.offset + at, part_.data(), part));
    EPL_TRY(to.file->write(to.offset + at, part_.data(), part));
  }
  return {};
}

Status Files::fill(const Place& target, int64_t bytes, uint8_t value) {
  std::lock_guard lock(part_mutex_);
  std::memset(part_.data(), value, part_.size());
  for (int64_t at = 0; at < bytes; at += file_part)
    EPL_TRY(target.file->write(target.offset + at, part_.data(), std::min(file_part, bytes - at)));
  return {};
}

}  // namespace epl::cpu
