#include "backends/cpu/communicator.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>

#include "backends/cpu/reduce.h"
#include "backends/cpu/stream_work.h"
#include "core/base/spin.h"

namespace epl::cpu {
namespace {

// About ten microseconds: what waking a sleeper costs. And where nobody else wants the processor, a millisecond: one
// that has nothing to do goes to sleep itself, and is slow to come back.
constexpr int spins_before_sleep = 400, patient_spins = 40000;

// A count of arrivals that only grows: barrier number n is complete when all ranks have arrived n times. Once closed,
// it stays as it is, so that all ranks agree on which barriers took place.
class ThreadBarrier {
 public:
  bool arrive() {
    uint64_t seen = word_.load(std::memory_order_relaxed);
    do {
      if (seen & closed) return false;
    } while (!word_.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel, std::memory_order_relaxed));
    return true;
  }
  // Waits until `arrivals` have come; false if the barrier was closed before. The caller has arrived.
  bool wait(uint64_t arrivals, Spin& spin) {
    if (complete(arrivals)) {
      wake();
      return true;
    }
    if (spin.until([&] { return complete(arrivals); })) return true;
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
    {
      std::lock_guard lock(mutex_);
    }
    changed_.notify_all();
  }

  alignas(64) std::atomic<uint64_t> word_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

// A rank of the group, where its peers find what it asks for.
struct alignas(64) Member {
  std::span<const Collective> calls;  // together
  // What it has sent and no receiver has taken yet, in order.
  struct Sent {
    Collective call;
    std::shared_ptr<Posts> posts;
    uint64_t post;
  };
  std::vector<Sent> sent;
  std::mutex mutex;  // of what is sent
  std::condition_variable changed;
};

struct Group {
  Group(std::string group_name, int ranks, int spins)
      : name(std::move(group_name)), size(ranks), spins(spins), members(static_cast<size_t>(ranks)) {
    for (Member& member : members) member.sent.reserve(Posts::reserved);
  }

  void abort(const Status& why) {
    {
      std::lock_guard lock(mutex);
      if (!status.ok()) return;
      status = why.ok() ? error(Code::cancelled, "the group ", name, " was aborted") : why;
    }
    asked.close();
    for (Member& member : members) {
      // A receiver that has begun to copy finishes, whatever happens to the group.
      std::vector<Member::Sent> lost;
      {
        std::lock_guard lock(member.mutex);
        lost.swap(member.sent);
      }
      member.changed.notify_all();
      for (const Member::Sent& sent : lost) sent.posts->end(sent.post, this->why());
    }
    for (auto& [child_name, child] : children) child.group->abort(why);  // there are no more from now on
  }
  Status why() {
    std::lock_guard lock(mutex);
    return status;
  }

  const std::string name;
  const int size;
  const int spins;
  std::vector<Member> members;
  ThreadBarrier asked, done;
  std::mutex mutex;
  Status status;  // why it was aborted
  struct Subgroup {
    std::vector<int> members;
    std::shared_ptr<Group> group;
  };
  std::map<std::string, Subgroup> children;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)),
        rank_(rank),
        sources_(static_cast<size_t>(group_->size)),
        targets_(static_cast<size_t>(group_->size)) {}
  ~ThreadCommunicator() override {
    // A call that is complete is not disturbed; one that waits for this rank would wait for ever.
    group_->abort(error(Code::peer_failed, "rank ", rank_, " of ", group_->size, " left the group ", group_->name));
  }

  const std::string& group() const override { return group_->name; }
  int rank() const override { return rank_; }
  int size() const override { return group_->size; }

  Status run(Stream& stream, const Collective& call) override {
    if (!call.between_two()) return run_together(stream, {&call, 1});
    EPL_TRY(check(fits(call)));
    if (call.kind == Kind::send) return send(stream, call);
    wait_for_posts(stream);
    return receive(stream, call);
  }

  // The ranks wait for each other before all of the calls and behind them.
  Status run_together(Stream& stream, std::span<const Collective> calls) override {
    for (const Collective& call : calls) EPL_TRY(check(fits(call)));
    wait_for_posts(stream);
    EPL_TRY(begin(calls));
    for (at_ = 0; at_ < calls.size(); ++at_) carry_out(stream, calls[at_]);
    end();
    return {};
  }

  Result<std::unique_ptr<Communicator>> split(const std::string& name, std::span<const int> members) override {
    EPL_TRY(check_members(*this, name, members));
    std::lock_guard lock(group_->mutex);
    if (!group_->status.ok()) return group_->status;
    Group::Subgroup& child = group_->children[name];
    if (!child.group) {
      child = {{members.begin(), members.end()},
               std::make_shared<Group>(name, static_cast<int>(members.size()), group_->spins)};
    }
    if (!std::ranges::equal(child.members, members))
      return error(Code::misuse, "group ", group_->name, " has a group ", name, " of other members");
    return std::unique_ptr<Communicator>(
        new ThreadCommunicator(child.group, static_cast<int>(std::ranges::find(members, rank_) - members.begin())));
  }

  void abort(const Status& status) override { group_->abort(status); }

 private:
  using Kind = Collective::Kind;

  // The current call.
  const Collective& asked_by(int rank) const { return group_->members[static_cast<size_t>(rank)].calls[at_]; }

  Status fits(const Collective& call) const {
    EPL_TRY(check_collective(call, rank_, size()));
    if (call.reduces() && !can_reduce(call.dtype))
      return invalid("rank ", rank_, " called ", call.text(), ", a type that cannot be reduced");
    return {};
  }

  void carry_out(Stream& stream, const Collective& call) {
    switch (call.kind) {
      case Kind::all_reduce:
        all_reduce(stream, call);
        break;
      case Kind::reduce_scatter:
        reduce_scatter(stream, call);
        break;
      case Kind::all_gather:
        all_gather(stream, call);
        break;
      case Kind::all_to_all:
        all_to_all(stream, call);
        break;
      case Kind::dispatch:
      case Kind::combine:
        exchange_rows(stream, call);
        break;
      case Kind::broadcast:
        copy(stream, call.target, asked_by(call.peer).source, call.bytes(), copy_grain);
        break;
      case Kind::barrier:
      case Kind::send:
      case Kind::receive:
        break;
    }
  }

  // A wrong argument ends the group, or the peers would wait for this rank.
  Status check(Status status) {
    if (!status.ok()) group_->abort(status);
    return status;
  }

  template <class A, class B> Status disagree(int a, const A& first, int b, const B& second) const {
    return error(Code::misuse, "ranks of group ", group_->name, " disagree at call ", calls_, ": rank ", a, " calls ",
                 first.text(), ", rank ", b, " calls ", second.text());
  }

  // The first barrier. Afterwards the calls of all ranks may be read, until `end`.
  Status begin(std::span<const Collective> calls) {
    if (group_->asked.is_closed()) return group_->why();
    ++calls_;
    group_->members[static_cast<size_t>(rank_)].calls = calls;
    const uint64_t arrivals = calls_ * static_cast<uint64_t>(size());
    if (!group_->asked.arrive() || !group_->asked.wait(arrivals, spin_)) return group_->why();
    for (int r = 1; r < size(); ++r) {
      Status status = agreement(0, r);
      if (status.ok()) continue;
      // All ranks see the same calls and end here together.
      group_->abort(status);
      end();
      return status;
    }
    return {};
  }

  Status agreement(int a, int b) const {
    const auto of = [&](int rank) { return group_->members[static_cast<size_t>(rank)].calls; };
    if (of(a).size() != of(b).size()) return disagree(a, Count{of(a).size()}, b, Count{of(b).size()});
    for (size_t i = 0; i < of(a).size(); ++i) {
      if (!agree(of(a)[i], of(b)[i])) return disagree(a, of(a)[i], b, of(b)[i]);
    }
    return {};
  }
  struct Count {
    size_t calls;
    std::string text() const { return cat(calls, " collectives together"); }
  };

  // The second barrier, which every rank that came to the first will come to.
  void end() {
    group_->done.arrive();
    group_->done.wait(calls_ * static_cast<uint64_t>(size()), spin_);
  }

  // Rank r reduces segment r for all; segments end on cache lines, so that ranks do not write to the same one.
  void all_reduce(Stream& stream, const Collective& call) {
    for (int r = 0; r < size(); ++r) {
      sources_[static_cast<size_t>(r)] = asked_by(r).source;
      targets_[static_cast<size_t>(r)] = asked_by(r).target;
    }
    const int64_t line = 64 / static_cast<int64_t>(dtype_bytes(call.dtype));
    const int64_t lines = (call.count + line - 1) / line;
    const int64_t first = std::min(call.count, lines * rank_ / size() * line);
    const int64_t last = std::min(call.count, lines * (rank_ + 1) / size() * line);
    share(stream, last - first, reduce_grain, [&](int64_t begin, int64_t end) {
      reduce_ranks(sources_, targets_, first + begin, first + end, call.dtype, call.reduction);
    });
  }

  void reduce_scatter(Stream& stream, const Collective& call) {
    for (int r = 0; r < size(); ++r)
      sources_[static_cast<size_t>(r)] = static_cast<const char*>(asked_by(r).source) + rank_ * call.bytes();
    void* const target[] = {call.target};
    share(stream, call.count, reduce_grain,
          [&](int64_t begin, int64_t end) { reduce_ranks(sources_, target, begin, end, call.dtype, call.reduction); });
  }

  // Calls to(rank, its target) for each rank. A rank writes what it has into the memory of the others, and nobody reads
  // another's: a rank that next writes what a peer has read waits for each line of it. Each starts with itself, so that
  // not all write to one at a time.
  template <class To> void to_each(const To& to) {
    for (int step = 0; step < size(); ++step) {
      const int r = (rank_ + step) % size();
      to(r, static_cast<char*>(asked_by(r).target));
    }
  }
  void put(Stream& stream, int rank, void* target, const void* source, int64_t bytes) {
    if (rank == rank_) return copy(stream, target, source, bytes, copy_grain);
    give(stream, target, source, bytes);
  }

  void all_gather(Stream& stream, const Collective& call) {
    to_each([&](int r, char* target) { put(stream, r, target + rank_ * call.bytes(), call.source, call.bytes()); });
  }

  void all_to_all(Stream& stream, const Collective& call) {
    const auto* source = static_cast<const char*>(call.source);
    to_each([&](int r, char* target) {
      put(stream, r, target + rank_ * call.bytes(), source + r * call.bytes(), call.bytes());
    });
  }

  void exchange_rows(Stream& stream, const Collective& call) {
    const auto* source = static_cast<const char*>(call.source);
    to_each([&](int r, char* target) {
      call.rows_between(rank_, r, size(), [&](int64_t from, int64_t to, int64_t bytes) {
        put(stream, r, target + to, source + from, bytes);
      });
    });
  }

  // Posted: the stream waits for the receiver. One that has no posts waits here.
  Status send(Stream& stream, const Collective& call) {
    std::shared_ptr<Posts> posts = posts_of(stream);
    const bool waits = posts == nullptr;
    if (waits) posts = std::make_shared<Posts>();
    Member& own = group_->members[static_cast<size_t>(rank_)];
    {
      std::lock_guard lock(own.mutex);
      if (group_->asked.is_closed()) return group_->why();
      own.sent.push_back({call, posts, posts->add()});
    }
    own.changed.notify_all();
    if (!waits) return {};
    posts->wait();
    return posts->take_failure();
  }

  Status receive(Stream& stream, const Collective& call) {
    Member& from = group_->members[static_cast<size_t>(call.peer)];
    std::unique_lock lock(from.mutex);
    auto found = from.sent.end();
    from.changed.wait(lock, [&] {
      found = std::ranges::find(from.sent, rank_, [](const Member::Sent& sent) { return sent.call.peer; });
      return found != from.sent.end() || group_->asked.is_closed();
    });
    if (group_->asked.is_closed()) return group_->why();
    if (!agree(call, found->call)) {
      Status status = disagree(call.peer, found->call, rank_, call);
      lock.unlock();
      group_->abort(status);
      return status;
    }
    const Member::Sent sent = std::move(*found);
    from.sent.erase(found);
    lock.unlock();
    copy(stream, call.target, sent.call.source, call.bytes(), copy_grain);
    sent.posts->end(sent.post);
    return {};
  }

  std::shared_ptr<Group> group_;
  const int rank_;
  Spin spin_{group_->spins};
  uint64_t calls_ = 0;
  size_t at_ = 0;  // of the calls that go together
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
};

}  // namespace

Result<std::vector<std::unique_ptr<Communicator>>> create_thread_group(const std::string& name, int ranks,
                                                                       ThreadWait wait) {
  if (ranks < 1 || ranks > max_thread_ranks) {
    return invalid("a group of ", ranks, " ranks; threads of a process form groups of 1 to ", max_thread_ranks);
  }
  const int spins = wait == ThreadWait::sleeps ? 0 : wait == ThreadWait::brief ? spins_before_sleep : patient_spins;
  auto group = std::make_shared<Group>(name, ranks, spins);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int r = 0; r < ranks; ++r) communicators.push_back(std::make_unique<ThreadCommunicator>(group, r));
  return communicators;
}

}  // namespace epl::cpu
