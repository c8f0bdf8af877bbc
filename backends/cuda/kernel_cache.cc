// A file is a head, the key and the text. The name follows from the key alone, so that processes which compile one text
// at a time write one file. The whole key stands in the file, because two keys may have one name.
#include "backends/cuda/kernel_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/descriptor.h"
#include "core/base/hash.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".kernel";
constexpr size_t digits_of_name = 32;
constexpr uint64_t most_file_bytes = 64 << 20;  // what is larger is none of ours

// As it lies in the file. A machine of another byte order finds another `magic`.
struct Head {
  uint64_t magic = 0;
  uint64_t key_bytes = 0, text_bytes = 0;
  uint64_t hash = 0;  // of the two sizes, the key and the text
};
constexpr uint64_t magic_of_head = 0x314c4e52454b4c45;  // "ELKERNL1"

uint64_t hash_of(const Head& head, std::string_view key, std::string_view text) {
  Hash64 hash;
  hash.add(&head.key_bytes, sizeof head.key_bytes);
  hash.add(&head.text_bytes, sizeof head.text_bytes);
  hash.add(key.data(), key.size());
  hash.add(text.data(), text.size());
  return hash.value();
}

std::string packed(std::string_view key, std::string_view text) {
  Head head{.magic = magic_of_head, .key_bytes = key.size(), .text_bytes = text.size()};
  head.hash = hash_of(head, key, text);
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes += key;
  return bytes += text;
}

std::optional<std::string> unpacked(std::string_view bytes, std::string_view key) {
  Head head;
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  bytes.remove_prefix(sizeof head);
  if (head.magic != magic_of_head || head.key_bytes != key.size() || bytes.size() < key.size()) return std::nullopt;
  if (head.text_bytes != bytes.size() - key.size() || bytes.substr(0, key.size()) != key) return std::nullopt;
  const std::string_view text = bytes.substr(key.size());
  if (head.hash != hash_of(head, key, text)) return std::nullopt;
  return std::string(text);
}

// Ours, and what a process has left there that was killed while it wrote. Nothing else in the folder is touched.
bool is_ours(const std::string& name) {
  return name.size() >= digits_of_name + suffix.size() &&
         name.find_first_not_of("0123456789abcdef") == digits_of_name &&
         std::string_view(name).substr(digits_of_name).starts_with(suffix);
}

std::optional<std::string> whole_file(int file) {
  struct stat info{};
  if (::fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) > most_file_bytes)
    return std::nullopt;
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t got = ::read(file, bytes.data() + at, bytes.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    at += static_cast<size_t>(got);
  }
  return bytes;
}

// 0, or an errno.
int write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(file, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return 0;
}

// A new file beside `path`. Processes of two machines may have one number, so a name that is taken is no error.
Descriptor create_beside(const std::string& path, std::string& name) {
  static std::atomic<uint64_t> made{0};
  for (int tries = 0; tries < 1000; ++tries) {
    name = cat(path, ".", int64_t{::getpid()}, ".", made.fetch_add(1));
    Descriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.open() || errno != EEXIST) return file;
  }
  return Descriptor();
}

struct KeptFile {
  fs::file_time_type used;
  uint64_t bytes;
  fs::path path;
};
std::vector<KeptFile> entries_of(const std::string& folder) {
  std::vector<KeptFile> found;
  std::error_code none;
  for (fs::directory_iterator it(folder, none), end; !none && it != end; it.increment(none)) {
    if (!is_ours(it->path().filename().string())) continue;
    std::error_code gone;  // another process may remove what stands here
    const uint64_t bytes = it->file_size(gone);
    if (gone) continue;
    const fs::file_time_type used = it->last_write_time(gone);
    if (!gone) found.push_back({used, bytes, it->path()});
  }
  return found;
}

}  // namespace

std::shared_ptr<KernelCache> KernelCache::of(const std::string& folder) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<KernelCache>> known;
  if (folder.empty()) return nullptr;
  const std::lock_guard lock(mutex);
  std::shared_ptr<KernelCache>& cache = known[folder];
  if (!cache) cache = std::make_shared<KernelCache>(folder);
  return cache;
}

// One byte is written to find a disk that is full or may not be written before kernels are compiled.
KernelCache::KernelCache(std::string path, uint64_t most_bytes) : folder(std::move(path)), most_bytes_(most_bytes) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  const std::string probe = cat(folder, "/", std::string(digits_of_name, '0'), suffix);
  const int error = failed ? failed.value() : write_file(probe, "\n");
  ::unlink(probe.c_str());
  if (error != 0) {
    fail(error);
  } else {
    measure();
  }
}

std::string KernelCache::path_of(const std::string& key) const {
  std::string name;
  for (const char salt : {'1', '2'}) {
    Hash64 hash;
    hash.add(&salt, 1);
    hash.add(key.data(), key.size());
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash.value()));
    name += digits;
  }
  return cat(folder, "/", name, suffix);
}

std::optional<std::string> KernelCache::find(const std::string& key) const {
  const Descriptor file(::open(path_of(key).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.open()) return std::nullopt;
  const std::optional<std::string> bytes = whole_file(file.number());
  std::optional<std::string> text = bytes ? unpacked(*bytes, key) : std::nullopt;
  if (text) ::futimens(file.number(), nullptr);  // used now; a folder of somebody else's keeps its times
  return text;
}

// Nothing is synced: what a machine loses when it stops is found by the hash, and compiled again.
int KernelCache::write_file(const std::string& path, const std::string& bytes) const {
  std::string beside;
  const Descriptor file = create_beside(path, beside);
  if (!file.open()) return errno;
  int failed = write_all(file.number(), bytes);
  if (failed == 0 && ::rename(beside.c_str(), path.c_str()) != 0 && errno != ENOENT) failed = errno;
  if (failed != 0) ::unlink(beside.c_str());
  return failed;
}

void KernelCache::keep(const std::string& key, const std::string& text) {
  const std::string bytes = packed(key, text);
  if (!writes() || bytes.size() > std::min(most_file_bytes, most_bytes_)) return;
  if (const int error = write_file(path_of(key), bytes); error != 0) return fail(error);
  const std::lock_guard lock(mutex_);
  bytes_ += bytes.size();
  if (bytes_ > most_bytes_) measure();
}

// Others write too, so the folder is asked. A quarter is freed, so that this is seldom done.
void KernelCache::measure() {
  std::vector<KeptFile> entries = entries_of(folder);
  bytes_ = 0;
  for (const KeptFile& entry : entries) bytes_ += entry.bytes;
  if (bytes_ <= most_bytes_) return;
  std::ranges::sort(entries, {}, &KeptFile::used);
  for (const KeptFile& entry : entries) {
    if (bytes_ <= most_bytes_ / 4 * 3) break;
    if (::unlink(entry.path.c_str()) == 0 || errno == ENOENT) bytes_ -= entry.bytes;
  }
}

void KernelCache::fail(int error_number) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = std::generic_category().message(error_number);
}

bool KernelCache::writes() const {
  const std::lock_guard lock(mutex_);
  return failure_.empty();
}

std::string KernelCache::note() const {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) return cat("compiled kernels are kept in ", quoted(excerpt(folder, 500)));
  return cat("kernels that are compiled now are not kept in ", quoted(excerpt(folder, 500)), ": ", failure_,
             "; every process compiles them again");
}

bool KernelCache::is_news() {
  const std::lock_guard lock(mutex_);
  return !failure_.empty() && !std::exchange(said_, true);
}

}  // namespace epl::cuda
