#include "core/net/rendezvous.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "core/base/file.h"
#include "core/base/shown.h"

namespace epl {
namespace {

constexpr int longest_name = 200;  // bytes of a file's name
constexpr auto look_again = std::chrono::milliseconds(5);
constexpr auto slice = std::chrono::milliseconds(20);  // before it is asked whether to stop
constexpr double max_timeout_seconds = 1e8;            // three years, which no clock's type overflows with

std::chrono::duration<double> at_most(double seconds) {
  return std::chrono::duration<double>(seconds > 0 ? std::min(seconds, max_timeout_seconds) : 0);  // NaN is 0
}

class MemoryRendezvous final : public Rendezvous {
 public:
  Status put(const std::string& key, std::span<const std::byte> value, const Stop&) override {
    std::lock_guard lock(mutex_);
    if (!values_.try_emplace(key, value.begin(), value.end()).second) return put_twice(key);
    changed_.notify_all();
    return {};
  }
  Result<std::vector<std::byte>> get(const std::string& key, double timeout_seconds, const Stop& stop) override {
    std::unique_lock lock(mutex_);
    const auto there = [&] { return values_.contains(key); };
    std::chrono::duration<double> waited(0);
    while (!there()) {
      EPL_TRY(stop.check());
      const auto left = at_most(timeout_seconds) - waited;
      if (left.count() <= 0) return nobody_came(key, timeout_seconds);
      const auto now = std::min<std::chrono::duration<double>>(left, slice);
      if (!changed_.wait_for(lock, now, there)) waited += now;
    }
    return values_.at(key);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<std::byte>> values_;
};

// Letters, digits and a few marks stand for themselves. Everything else is written as %XX, so that no key leaves the
// folder.
std::string file_name(const std::string& key) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string name = "key.";
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
                       byte == '_' || byte == '-';
    if (plain) {
      name += c;
    } else {
      name += {'%', digits[byte >> 4], digits[byte & 15]};
    }
  }
  return name;
}

// A value is written to a draft and then linked to its name, which fails if a file is there already. So it appears
// complete, and only once.
class FolderRendezvous final : public Rendezvous {
 public:
  explicit FolderRendezvous(std::string folder) : folder_(std::move(folder)) {}

  Status put(const std::string& key, std::span<const std::byte> value, const Stop&) override {
    EPL_ASSIGN(const std::string path, path_of(key));
    // Unlike that of any other object of any process of this host.
    const std::string draft = cat(path, ".", ::getpid(), ".", reinterpret_cast<uintptr_t>(this), ".part");
    std::lock_guard lock(mutex_);
    auto write = [&]() -> Status {
      EPL_ASSIGN(std::unique_ptr<FileWriter> writer, FileWriter::create(draft));
      if (::chmod(draft.c_str(), S_IRUSR | S_IWUSR) != 0) return system_error("cannot set up", draft, errno);
      EPL_TRY(writer->write(value.data(), value.size()));
      EPL_TRY(writer->finish());
      if (::link(draft.c_str(), path.c_str()) == 0) return {};
      return errno == EEXIST ? put_twice(key) : system_error("cannot make", path, errno);
    };
    Status status = write();
    static_cast<void>(remove_file(draft));
    return status.ok() ? status : status.with_context(cat("rendezvous ", folder_));
  }

  Result<std::vector<std::byte>> get(const std::string& key, double timeout_seconds, const Stop& stop) override {
    EPL_ASSIGN(const std::string path, path_of(key));
    std::chrono::duration<double> waited(0);
    for (;;) {
      const auto file = FileReader::open(path);
      if (file.ok()) return (*file)->read_all();
      if (file.status().code() != Code::not_found) return file.status().with_context(cat("rendezvous ", folder_));
      if (waited >= at_most(timeout_seconds))
        return nobody_came(key, timeout_seconds).with_context(cat("rendezvous ", folder_));
      EPL_TRY(stop.check());
      std::this_thread::sleep_for(look_again);
      waited += look_again;
    }
  }

 private:
  Result<std::string> path_of(const std::string& key) const {
    const std::string name = file_name(key);
    if (key.empty() || name.size() > longest_name)
      return invalid("a rendezvous takes keys of 1 to some ", longest_name, " bytes, got ", key.size());
    return cat(folder_, "/", name);
  }

  const std::string folder_;
  std::mutex mutex_;  // of the draft
};

// Other users see neither who is there nor where they listen; one that is there already is as its owner has made it.
Status make_private_folder(const std::string& path) {
  const size_t end = path.find_last_not_of('/') + 1;
  const size_t slash = path.substr(0, end).rfind('/');
  if (slash != std::string::npos && slash > 0) EPL_TRY(make_folder(path.substr(0, slash)));
  static_cast<void>(::mkdir(path.c_str(), S_IRWXU));
  return make_folder(path);
}

}  // namespace

Status Rendezvous::put_twice(const std::string& key) {
  return error(Code::misuse, shown(key, 200),
               " has been put already: two processes take themselves for the same rank, or this rendezvous is of an "
               "earlier run");
}

Status Rendezvous::nobody_came(const std::string& key, double timeout_seconds) {
  return error(Code::deadline_exceeded, "nobody has put ", shown(key, 200), " within ", timeout_seconds, " s");
}

Status Rendezvous::put_text(const std::string& key, std::string_view value, const Stop& stop) {
  return put(key, std::as_bytes(std::span(value)), stop);
}

Result<std::string> Rendezvous::get_text(const std::string& key, double timeout_seconds, const Stop& stop) {
  EPL_ASSIGN(const std::vector<std::byte> value, get(key, timeout_seconds, stop));
  return std::string(reinterpret_cast<const char*>(value.data()), value.size());
}

std::shared_ptr<Rendezvous> memory_rendezvous() { return std::make_shared<MemoryRendezvous>(); }

Result<std::shared_ptr<Rendezvous>> folder_rendezvous(const std::string& folder) {
  if (folder.empty()) return invalid("a rendezvous needs a folder");
  EPL_TRY(make_private_folder(folder));
  return std::shared_ptr<Rendezvous>(std::make_shared<FolderRendezvous>(folder));
}

}  // namespace epl
