#include "backends/cpu/communicator.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "backends/cpu/reduce.h"

namespace epl::cpu {
namespace {

constexpr int spins_before_sleep = 400;   // about ten microseconds: what waking a sleeper costs
constexpr int64_t reduce_grain = 16 << 10;   // elements, for a rank's own threads
constexpr int64_t copy_grain = 1 << 20;      // bytes

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

enum class Verb : uint8_t { all_reduce, all_gather, broadcast, barrier };
const char* verb_name(Verb verb) {
  switch (verb) {
    case Verb::all_reduce: return "all_reduce";
    case Verb::all_gather: return "all_gather";
    case Verb::broadcast: return "broadcast";
    case Verb::barrier: return "barrier";
  }
  return "";
}
const char* reduction_name(Reduction reduction) {
  return reduction == Reduction::sum ? "sum" : reduction == Reduction::max ? "max" : "min";
}

// What a rank asks for. All ranks of a call must ask for the same, operands apart.
struct Request {
  Verb verb = Verb::barrier;
  DType dtype = DType::u8;
  Reduction reduction = Reduction::sum;
  int root = 0;
  int64_t count = 0;
  const void* source = nullptr;
  void* target = nullptr;

  bool agrees(const Request& other) const {
    return verb == other.verb && dtype == other.dtype && reduction == other.reduction && root == other.root && count == other.count;
  }
  std::string text() const {
    std::string text = cat(verb_name(verb), "(", count, " x ", dtype_name(dtype));
    if (verb == Verb::all_reduce) text += cat(", ", reduction_name(reduction));
    if (verb == Verb::broadcast) text += cat(", root ", root);
    return text + ")";
  }
};

// A count of arrivals that only grows: meeting number n is complete when all ranks have arrived n times. Once closed,
// it stays as it is, so that all ranks agree on which meetings took place.
class Meeting {
 public:
  bool arrive() {
    uint64_t seen = word_.load(std::memory_order_relaxed);
    do {
      if (seen & closed) return false;
    } while (!word_.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel, std::memory_order_relaxed));
    return true;
  }
  // Waits until `arrivals` have come; false if the meeting was closed before. The caller has arrived.
  bool wait(uint64_t arrivals, int spins) {
    if (complete(arrivals)) {
      wake();
      return true;
    }
    for (int i = 0; i < spins; ++i) {
      if (complete(arrivals)) return true;
      relax();
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return complete(arrivals) || (word_.load(std::memory_order_acquire) & closed); });
    return complete(arrivals);
  }
  void close() {
    word_.fetch_or(closed, std::memory_order_acq_rel);
    wake();
  }
  bool is_closed() const { return word_.load(std::memory_order_acquire) & closed; }

 private:
  static constexpr uint64_t closed = uint64_t{1} << 63;
  bool complete(uint64_t arrivals) const { return (word_.load(std::memory_order_acquire) & ~closed) >= arrivals; }
  void wake() {
    // Whoever checks under the mutex either sees the change or is woken.
    { std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }

  alignas(64) std::atomic<uint64_t> word_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

struct alignas(64) Slot {
  Request request;
};

struct Group {
  Group(int ranks, int spins) : size(ranks), spins(spins), slots(ranks) {}

  void abort(const Status& why) {
    {
      std::lock_guard lock(mutex);
      if (!status.ok()) return;
      status = why.ok() ? error(Code::cancelled, "the group was aborted") : why;
    }
    asked.close();
  }
  Status why() {
    std::lock_guard lock(mutex);
    return status;
  }

  const int size;
  const int spins;
  std::vector<Slot> slots;
  Meeting asked, done;
  std::mutex mutex;
  Status status;  // why it was aborted
};

// Thread safety: calls of one rank come from one thread at a time; `abort` may come from any.
class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank), sources_(group_->size), targets_(group_->size) {}
  ~ThreadCommunicator() override {
    // A call that is complete is not disturbed; one that waits for this rank would wait for ever.
    group_->abort(error(Code::peer_failed, "rank ", rank_, " of ", group_->size, " left the group"));
  }

  int rank() const override { return rank_; }
  int size() const override { return group_->size; }

  Status all_reduce(Stream& stream, const void* source, void* target, int64_t count, DType dtype, Reduction op) override {
    EPL_TRY(check(count >= 0, "a negative count"));
    EPL_TRY(check(can_reduce(dtype), "an element type that cannot be reduced"));
    EPL_TRY(begin({Verb::all_reduce, dtype, op, 0, count, source, target}));
    for (int r = 0; r < size(); ++r) {
      sources_[r] = request(r).source;
      targets_[r] = request(r).target;
    }
    // Rank r reduces segment r for all; segments end on cache lines, so that ranks do not write to the same one.
    const int64_t line = 64 / static_cast<int64_t>(dtype_bytes(dtype));
    const int64_t lines = (count + line - 1) / line;
    const int64_t first = std::min(count, lines * rank_ / size() * line);
    const int64_t last = std::min(count, lines * (rank_ + 1) / size() * line);
    run(stream, last - first, reduce_grain, [&](int64_t begin, int64_t end) {
      reduce_ranks(sources_.data(), targets_.data(), size(), first + begin, first + end, dtype, op);
    });
    end();
    return {};
  }

  Status all_gather(Stream& stream, const void* source, void* target, int64_t bytes_per_rank) override {
    EPL_TRY(check(bytes_per_rank >= 0, "a negative count"));
    char* own = static_cast<char*>(target) + rank_ * bytes_per_rank;
    const char* from = static_cast<const char*>(source);
    const char* all = static_cast<const char*>(target);
    const bool overlap = from < all + size() * bytes_per_rank && all < from + bytes_per_rank;
    EPL_TRY(check(from == own || !overlap || size() == 1, "a source within the target that is not the rank's own place"));
    EPL_TRY(begin({Verb::all_gather, DType::u8, Reduction::sum, 0, bytes_per_rank, source, target}));
    for (int step = 0; step < size(); ++step) {
      // Each starts with itself, so that not all read from one at a time.
      const int r = (rank_ + step) % size();
      copy(stream, static_cast<char*>(target) + r * bytes_per_rank, request(r).source, bytes_per_rank);
    }
    end();
    return {};
  }

  Status broadcast(Stream& stream, void* data, int64_t bytes, int root) override {
    EPL_TRY(check(bytes >= 0, "a negative count"));
    EPL_TRY(check(root >= 0 && root < size(), "a root that is no rank of the group"));
    EPL_TRY(begin({Verb::broadcast, DType::u8, Reduction::sum, root, bytes, data, data}));
    if (rank_ != root) copy(stream, data, request(root).source, bytes);
    end();
    return {};
  }

  Status barrier(Stream&) override {
    EPL_TRY(begin({}));
    end();
    return {};
  }

  void abort(const Status& status) override { group_->abort(status); }

 private:
  const Request& request(int rank) const { return group_->slots[rank].request; }

  // An argument that no peer can make up for ends the group, or the peers would wait for this rank.
  Status check(bool condition, std::string_view what) {
    if (condition) return {};
    Status status = invalid("rank ", rank_, " of ", size(), " called with ", what);
    group_->abort(status);
    return status;
  }

  // The first meeting. Afterwards the requests of all ranks may be read, until `end`.
  Status begin(const Request& request) {
    if (group_->asked.is_closed()) return group_->why();
    ++calls_;
    group_->slots[rank_].request = request;
    if (!group_->asked.arrive() || !group_->asked.wait(calls_ * size(), group_->spins)) return group_->why();
    for (int r = 1; r < size(); ++r) {
      if (this->request(r).agrees(this->request(0))) continue;
      // All ranks see the same requests and end here together.
      Status status = error(Code::misuse, "ranks disagree: rank 0 calls ", this->request(0).text(), ", rank ", r, " calls ",
                            this->request(r).text());
      group_->abort(status);
      end();
      return status;
    }
    return {};
  }

  // The second meeting, which every rank that came to the first will come to.
  void end() {
    group_->done.arrive();
    group_->done.wait(calls_ * size(), group_->spins);
  }

  void run(Stream& stream, int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t)> task) {
    if (count <= 0) return;
    ThreadPool* threads = stream.threads();
    if (threads == nullptr || count <= grain) {
      task(0, count);
    } else {
      threads->run_ranges(count, grain, task);
    }
  }
  void copy(Stream& stream, void* target, const void* source, int64_t bytes) {
    if (target == source) return;
    run(stream, bytes, copy_grain, [&](int64_t begin, int64_t end) {
      std::memcpy(static_cast<char*>(target) + begin, static_cast<const char*>(source) + begin, static_cast<size_t>(end - begin));
    });
  }

  std::shared_ptr<Group> group_;
  const int rank_;
  uint64_t calls_ = 0;
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
};

}  // namespace

Result<std::vector<std::unique_ptr<Communicator>>> create_thread_communicators(int ranks, bool spin) {
  if (ranks < 1 || ranks > most_thread_ranks) {
    return invalid("a group of ", ranks, " ranks; threads of a process form groups of 1 to ", most_thread_ranks);
  }
  auto group = std::make_shared<Group>(ranks, spin ? spins_before_sleep : 0);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int r = 0; r < ranks; ++r) communicators.push_back(std::make_unique<ThreadCommunicator>(group, r));
  return communicators;
}

}  // namespace epl::cpu
