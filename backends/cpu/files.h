// Memory of the CPU that lies in files: for values that nobody uses at the moment. Buffers have addresses that no
// program may touch, so that only a stream's fetch, evict, fill, upload and download reach them.
//
// A file takes its room when it is made, so a full disk is an error before the first step. A file has no name: nobody
// removes or shortens it, and its room is free again when the process ends, however it ends. Nothing is mapped, for the
// reason that core/base/file.h gives. Each file has a thread that reads and one that writes, beside the work of
// streams: a disk does both at the same time. They also wait for other streams, so that the thread that gives commands
// goes on.
#pragma once

#include <array>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/backend/device.h"
#include "core/base/thread.h"

namespace epl::cpu {

// What a command waits for: of each of these posts, that so many have ended.
class Awaited {
 public:
  // False: there is no room for more.
  bool add(const std::shared_ptr<Posts>& posts, uint64_t last);
  bool empty() const { return count_ == 0; }
  // Gives the first failure of those posts.
  Status wait() const;

 private:
  struct Part {
    std::shared_ptr<Posts> posts;
    uint64_t last = 0;
  };
  std::array<Part, 4> parts_;
  size_t count_ = 0;
};

class File;

// What is left to do in one direction, and the thread that does it. Thread safety: all calls may run together.
class FileQueue {
 public:
  struct Command {
    int64_t offset = 0, bytes = 0;
    void* memory = nullptr;
    Awaited awaited;
    std::shared_ptr<Posts> posts;
    uint64_t post = 0;
  };
  // So many that a step may fetch all that it needs ahead, while the thread that gives commands goes on.
  static constexpr size_t most_waiting = 512;

  FileQueue(const File& file, bool writes) : file_(file), writes_(writes), waiting_(most_waiting) {}
  FileQueue(const FileQueue&) = delete;
  ~FileQueue() { end(); }
  Status start();
  // Behind what came before it. It waits where many wait already.
  void post(Command command);
  // Does what is left.
  void end();

 private:
  void serve();

  const File& file_;
  const bool writes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Command> waiting_;  // a ring, so that a step allocates nothing
  size_t first_ = 0, count_ = 0;
  bool ends_ = false;
  Thread thread_;
};

// Thread safety: all calls may run together.
class File {
 public:
  // A file without a name in `folder`.
  static Result<std::unique_ptr<File>> create(const std::string& folder, int64_t bytes);
  ~File();
  File(const File&) = delete;

  // At once, on the calling thread.
  Status read(int64_t offset, void* target, int64_t bytes) const;
  Status write(int64_t offset, const void* source, int64_t bytes) const;
  // On a thread of the file, behind what they wait for; `posts` is told of the end. Reads come in the order in which
  // they are given, and so do writes. What waits for something that has failed is not carried out, and has failed too.
  void post_read(int64_t offset, void* target, int64_t bytes, Awaited awaited, std::shared_ptr<Posts> posts);
  void post_write(int64_t offset, const void* source, int64_t bytes, Awaited awaited, std::shared_ptr<Posts> posts);
  int64_t bytes() const { return bytes_; }

 private:
  File(std::string folder, int descriptor, int64_t bytes)
      : folder_(std::move(folder)), descriptor_(descriptor), bytes_(bytes) {}
  Status start();

  const std::string folder_;
  const int descriptor_;
  const int64_t bytes_;
  FileQueue reads_{*this, false}, writes_{*this, true};
};

// The files of one device, by address. It outlives the device where a buffer or a stream does.
class Files : public std::enable_shared_from_this<Files> {
 public:
  explicit Files(std::string folder) : folder_(std::move(folder)) {}
  Result<std::unique_ptr<Buffer>> allocate(int64_t bytes);

  // Where an address lies.
  struct Place {
    File* file = nullptr;  // null: in no file
    int64_t offset = 0;
    explicit operator bool() const { return file != nullptr; }
  };
  Place find(const void* address) const;
  // Of which one side at least is in a file.
  Status copy(void* target, const void* source, int64_t bytes);
  Status fill(const Place& target, int64_t bytes, uint8_t value);

 private:
  friend class FileBuffer;
  struct Region {
    File* file = nullptr;
    int64_t reserved = 0;
  };
  const std::string folder_;
  mutable std::mutex mutex_;
  std::map<uintptr_t, Region> regions_;
  std::mutex part_mutex_;
  std::vector<std::byte> part_;  // what goes from file to file comes by here
};

}  // namespace epl::cpu
