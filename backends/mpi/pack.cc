// libepl_mpi.so: bytes go from rank to rank by MPI's point-to-point messages. MPI is begun once in a process and ended
// with it. Transfers own their memory, because MPI cannot always give one up. See docs/packs.md.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/pack_failure.h"

namespace epl::mpi_pack {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* library = "MPI";
constexpr size_t most_in_message = size_t{1} << 30;  // MPI counts with 32 bits
constexpr auto nap = std::chrono::microseconds(100);
constexpr int polls_before_yield = 200, polls_of_given_up = 1000;

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Failure(std::string(what) + ": " + text);
}

// The messages of one transfer and the memory that they are in.
struct Transfer {
  std::unique_ptr<char[]> bytes;
  std::vector<MPI_Request> messages;
  void* target = nullptr;  // of what is received
  size_t size = 0;
  const void* end = nullptr;

  bool over() {
    int done = 0;
    check(MPI_Testall(static_cast<int>(messages.size()), messages.data(), &done, MPI_STATUSES_IGNORE), "a transfer");
    return done != 0;
  }
};

// MPI in this process. What was sent is brought on its way by a thread, because MPI works only while it is called.
class World {
 public:
  static World& get() {
    static World world;
    return world;
  }
  ~World() {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    // Ending is done together: after a failure nobody would come.
    if (began_ && !broken_) MPI_Finalize();
  }

  void begin() {
    std::lock_guard lock(mutex_);
    if (ready_) return;
    int begun = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&begun);
    if (begun) {
      MPI_Query_thread(&level);
    } else {
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
      began_ = true;
    }
    if (level < MPI_THREAD_MULTIPLE)
      throw Failure(begun ? "the program has begun it without MPI_THREAD_MULTIPLE" : "it has no MPI_THREAD_MULTIPLE");
    check(MPI_Comm_dup(MPI_COMM_WORLD, &all_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(all_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(all_, &rank_);
    MPI_Comm_size(all_, &size_);
    int* most = nullptr;
    int known = 0;
    MPI_Comm_get_attr(all_, MPI_TAG_UB, static_cast<void*>(&most), &known);
    tags_ = known ? static_cast<uint64_t>(*most) : 32767;
    thread_ = std::thread([this] { serve(); });
    ready_ = true;
  }
  MPI_Comm all() const { return all_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  // Tags are of the process, several ranks of which may send to the same other one.
  uint64_t next_tag() {
    std::lock_guard lock(mutex_);
    return number_++ % tags_;
  }
  void keep(std::unique_ptr<Transfer> sent) {
    std::lock_guard lock(mutex_);
    sent_.push_back(std::move(sent));
    changed_.notify_all();
  }
  // Whether all that an end has sent is taken within so long. What is not stays where it is.
  void wait_for(const void* end, std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    const bool taken = changed_.wait_for(
        lock, time, [&] { return std::ranges::none_of(sent_, [&](const auto& one) { return one->end == end; }); });
    broken_ = broken_ || !taken;
  }
  // Nobody may free its memory any more.
  void abandon(std::unique_ptr<Transfer> transfer) {
    std::lock_guard lock(mutex_);
    broken_ = true;
    static_cast<void>(transfer.release());
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (!closing_) {
      if (sent_.empty()) {
        changed_.wait(lock, [&] { return closing_ || !sent_.empty(); });
        continue;
      }
      try {
        const size_t removed = std::erase_if(sent_, [](const auto& one) { return one->over(); });
        if (removed > 0) changed_.notify_all();
      } catch (const Failure&) {
        // Whoever waits for it hears of it over the engine's own connections.
        broken_ = true;
        for (auto& one : sent_) static_cast<void>(one.release());
        sent_.clear();
      }
      lock.unlock();
      std::this_thread::sleep_for(nap);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  MPI_Comm all_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  uint64_t tags_ = 0, number_ = 0;
  std::list<std::unique_ptr<Transfer>> sent_;
  bool ready_ = false, began_ = false, broken_ = false, closing_ = false;
  std::thread thread_;
};

// Which process of MPI a rank is.
struct Card {
  int32_t rank = 0, size = 0;
  int64_t process = 0;
  char host[MPI_MAX_PROCESSOR_NAME] = "";
};

class End {
 public:
  explicit End(const epl_pack_rendezvous& rendezvous) : processes_(static_cast<size_t>(rendezvous.size)) {
    World::get().begin();
    Card own{.rank = World::get().rank(), .size = World::get().size(), .process = ::getpid(), .host = ""};
    int length = 0;
    MPI_Get_processor_name(own.host, &length);
    char reason[256] = "";
    const epl_pack_reason failure{reason, sizeof reason};
    if (rendezvous.put(rendezvous.context, std::to_string(rendezvous.rank).c_str(), &own, sizeof own, &failure) != 0)
      throw Failure(reason);
    for (int peer = 0; peer < rendezvous.size; ++peer) {
      Card theirs = own;
      if (peer != rendezvous.rank && rendezvous.get(rendezvous.context, std::to_string(peer).c_str(), &theirs,
                                                    sizeof theirs, &failure) != sizeof theirs)
        throw Failure(reason);
      const bool here = theirs.process == own.process && std::memcmp(theirs.host, own.host, sizeof own.host) == 0;
      if (theirs.size != own.size || here != (theirs.rank == own.rank)) {
        throw Failure("rank " + std::to_string(peer) + " is process " + std::to_string(theirs.rank) + " of " +
                      std::to_string(theirs.size) + " and rank " + std::to_string(rendezvous.rank) + " is process " +
                      std::to_string(own.rank) + " of " + std::to_string(own.size) +
                      ": one mpirun must start all processes of the job");
      }
      processes_[static_cast<size_t>(peer)] = theirs.rank;
    }
  }

  uint64_t send(int peer, const void* bytes, size_t size) {
    auto transfer = room_for(size);
    std::memcpy(transfer->bytes.get(), bytes, size);
    const uint64_t tag = World::get().next_tag();
    each_message(*transfer, [&](char* at, int count, MPI_Request* request) {
      check(MPI_Isend(at, count, MPI_BYTE, process(peer), static_cast<int>(tag), World::get().all(), request),
            "MPI_Isend");
    });
    World::get().keep(std::move(transfer));
    return tag;
  }
  std::unique_ptr<Transfer> receive(int peer, uint64_t tag, void* target, size_t size) {
    auto transfer = room_for(size);
    transfer->target = target;
    each_message(*transfer, [&](char* at, int count, MPI_Request* request) {
      check(MPI_Irecv(at, count, MPI_BYTE, process(peer), static_cast<int>(tag), World::get().all(), request),
            "MPI_Irecv");
    });
    return transfer;
  }

 private:
  int process(int peer) const { return processes_[static_cast<size_t>(peer)]; }
  std::unique_ptr<Transfer> room_for(size_t size) const {
    auto transfer = std::make_unique<Transfer>();
    transfer->bytes = std::make_unique_for_overwrite<char[]>(size);
    transfer->size = size;
    transfer->end = this;
    return transfer;
  }
  // Messages of one tag arrive in their order.
  template <class F> static void each_message(Transfer& transfer, const F& f) {
    transfer.messages.assign(transfer.size / most_in_message + 1, MPI_REQUEST_NULL);
    for (size_t i = 0; i < transfer.messages.size(); ++i) {
      const size_t first = i * most_in_message, count = std::min(most_in_message, transfer.size - first);
      f(transfer.bytes.get() + first, static_cast<int>(count), &transfer.messages[i]);
    }
  }

  std::vector<int> processes_;  // of MPI, by rank
};

void* join(const epl_pack_rendezvous* rendezvous, const epl_pack_reason* failure) {
  return guarded(failure, library, static_cast<void*>(nullptr), [&]() -> void* { return new End(*rendezvous); });
}
void leave(void* end, int32_t milliseconds) {
  World::get().wait_for(end, std::chrono::milliseconds(milliseconds));
  delete static_cast<End*>(end);
}
int32_t send(void* end, int32_t peer, const void* bytes, uint64_t size, uint64_t* number,
             const epl_pack_reason* failure) {
  return send_from<End>(end, library, peer, bytes, size, number, failure);
}
void* receive(void* end, int32_t peer, uint64_t number, void* bytes, uint64_t size, const epl_pack_reason* failure) {
  return guarded(failure, library, static_cast<void*>(nullptr),
                 [&]() -> void* { return static_cast<End*>(end)->receive(peer, number, bytes, size).release(); });
}
int32_t wait(void*, void* receipt, int32_t milliseconds, const epl_pack_reason* failure) {
  return guarded(failure, library, -1, [&] {
    auto& transfer = *static_cast<Transfer*>(receipt);
    const auto end = Clock::now() + std::chrono::milliseconds(milliseconds);
    for (int polls = 0; !transfer.over(); ++polls) {
      if (polls < polls_before_yield) continue;
      if (Clock::now() >= end) return 0;
      ::sched_yield();
    }
    std::memcpy(transfer.target, transfer.bytes.get(), transfer.size);
    transfer.target = nullptr;
    return 1;
  });
}
void drop(void*, void* receipt) {
  std::unique_ptr<Transfer> transfer(static_cast<Transfer*>(receipt));
  if (transfer->target == nullptr) return;
  for (MPI_Request& message : transfer->messages) {
    if (message != MPI_REQUEST_NULL) MPI_Cancel(&message);
  }
  const bool over = guarded(nullptr, library, false, [&] {
    int polls = 0;
    while (!transfer->over() && ++polls < polls_of_given_up) ::sched_yield();
    return polls < polls_of_given_up;
  });
  if (!over) World::get().abandon(std::move(transfer));
}

}  // namespace
}  // namespace epl::mpi_pack

extern "C" __attribute__((visibility("default"))) const epl_pack* epl_pack_entry(void) {
  using namespace epl::mpi_pack;
  static const epl_pack_carrier carrier = {.struct_size = sizeof carrier,
                                           .join = join,
                                           .leave = leave,
                                           .send = send,
                                           .receive = receive,
                                           .wait = wait,
                                           .drop = drop};
#define EPL_MPI_TEXT(x) #x
#define EPL_MPI_VERSION(major, minor, release) EPL_MPI_TEXT(major) "." EPL_MPI_TEXT(minor) "." EPL_MPI_TEXT(release)
  static const epl_pack pack = {
      .struct_size = sizeof(epl_pack),
      .abi = EPL_PACK_ABI,
      .reserved = 0,
      .name = "mpi",
      .version = "Open MPI " EPL_MPI_VERSION(OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION),
      .device = nullptr,
      .kernels = nullptr,
      .kernel_count = 0,
      .codecs = nullptr,
      .codec_count = 0,
      .carrier = &carrier};
  return &pack;
}
