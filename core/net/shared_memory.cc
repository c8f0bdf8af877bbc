#include "core/net/shared_memory.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>

#include "core/base/file.h"

namespace epl::net {
namespace {

Status failed(std::string_view doing) { return system_error(doing, "memory for the ranks of this host", errno); }

std::string read_line(const char* path) {
  const Descriptor file(::open(path, O_RDONLY | O_CLOEXEC));
  char text[64];
  const ssize_t got = file.open() ? ::read(file.number(), text, sizeof text) : -1;
  std::string line(text, static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return line.substr(0, line.find('\n'));
}

Descriptor open_file(const SharedAddress& address) {
  if (address.file < 0) return Descriptor();
  const std::string path = cat("/proc/", address.process, "/fd/", address.file);
  return Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
}

// What stands in front is the number that the maker has told.
bool is_the_file(const Descriptor& file, uint64_t token) {
  uint64_t found = 0;
  return file.open() && ::pread(file.number(), &found, sizeof found, 0) == static_cast<ssize_t>(sizeof found) &&
         found == token;
}

}  // namespace

Result<std::unique_ptr<SharedMemory>> SharedMemory::create(int64_t bytes) {
  std::unique_ptr<SharedMemory> made(new SharedMemory);
  made->bytes_ = bytes + header_bytes;
  made->file_ = Descriptor(static_cast<int>(::syscall(SYS_memfd_create, "epl", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (!made->file_.open()) return failed("cannot make");
  if (::getrandom(&made->token_, sizeof made->token_, 0) != static_cast<ssize_t>(sizeof made->token_))
    return failed("cannot find a number for");
  // Sealed: no peer can take pages away under the others' feet.
  if (::ftruncate(made->file_.number(), made->bytes_) != 0 ||
      ::fcntl(made->file_.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
      ::pwrite(made->file_.number(), &made->token_, sizeof made->token_, 0) !=
          static_cast<ssize_t>(sizeof made->token_)) {
    return failed("cannot size");
  }
  EPL_TRY(made->map());
  return made;
}

Result<std::unique_ptr<SharedMemory>> SharedMemory::open(const SharedAddress& address) {
  std::unique_ptr<SharedMemory> made(new SharedMemory);
  made->file_ = open_file(address);
  made->bytes_ = static_cast<int64_t>(address.bytes);
  made->token_ = address.token;
  struct stat facts{};
  const bool well = is_the_file(made->file_, address.token) && ::fstat(made->file_.number(), &facts) == 0 &&
                    facts.st_size == made->bytes_ && made->bytes_ > header_bytes;
  if (!well) {
    return error(Code::peer_failed, "process ", address.process, " has no memory to share any more; it may have ended");
  }
  EPL_TRY(made->map());
  made->close_file();
  return made;
}

Status SharedMemory::map() {
  void* const mapped =
      ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED, file_.number(), 0);
  if (mapped == MAP_FAILED) return failed("cannot map");
  data_ = static_cast<std::byte*>(mapped);
  return {};
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(bytes_));
}

SharedAddress SharedMemory::address() const {
  return {::getpid(), file_.number(), token_, static_cast<uint64_t>(bytes_)};
}

std::string host_identity() {
  char processes[64] = {};
  const ssize_t got = ::readlink("/proc/self/ns/pid", processes, sizeof processes - 1);
  const std::string boot = read_line("/proc/sys/kernel/random/boot_id");
  return got <= 0 || boot.empty() ? std::string() : cat(boot, " ", processes);
}

bool can_open(const SharedAddress& address) { return is_the_file(open_file(address), address.token); }

void SharedWord::wake() {
  if (sleepers.load(std::memory_order_seq_cst) == 0) return;
  ::syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SharedWord::sleep(uint64_t seen, int milliseconds, FunctionRef<bool()> come) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the lower half of a word stands first");
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  // Who changes the value afterwards finds a sleeper; who has changed it before is seen here.
  if (value.load(std::memory_order_seq_cst) == seen && !come()) {
    const timespec limit{.tv_sec = 0, .tv_nsec = milliseconds * 1000000L};
    ::syscall(SYS_futex, &value, FUTEX_WAIT, static_cast<uint32_t>(seen), &limit, nullptr, 0);
  }
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace epl::net
