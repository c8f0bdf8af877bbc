// A rank that comes together with the ranks of other processes, on a thread of its own. A call that stops meanwhile
// does not end that, since the others count on it: it is told to them once they have come, and the next call finds it
// done.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "core/backend/device.h"
#include "core/base/function_ref.h"
#include "core/base/thread.h"

namespace epl {

class PendingJoin {
 public:
  static Result<std::unique_ptr<PendingJoin>> begin(std::shared_ptr<Device> device,
                                                    std::shared_ptr<Rendezvous> rendezvous, Joining joining);
  PendingJoin(const PendingJoin&) = delete;
  // Gives up what is not done.
  ~PendingJoin();
  // Waits until it is done, or until `stop` or `look` says so, which the error then is. That of `stop` names a rank
  // that has not come.
  Status wait(const Stop& stop, FunctionRef<Status()> look);
  // The call that has waited for it has stopped: the others hear `why` as soon as they have come.
  void give_up(const Status& why);
  bool given_up() const;
  // What has become of it, once it is done.
  Result<std::unique_ptr<Communicator>> take();

 private:
  PendingJoin(std::shared_ptr<Device> device, std::shared_ptr<Rendezvous> rendezvous, Joining joining);
  void run();
  Status barrier(Communicator& joined);

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<Rendezvous> rendezvous_;
  Joining joining_;
  StopToken ended_;  // by the session's end
  std::atomic<int> awaited_{-1};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  Status why_;  // it was given up; ok: it was not
  Result<std::unique_ptr<Communicator>> joined_ = std::unique_ptr<Communicator>();
  std::exception_ptr thrown_;
  Thread thread_;
};

inline PendingJoin::PendingJoin(std::shared_ptr<Device> device, std::shared_ptr<Rendezvous> rendezvous, Joining joining)
    : device_(std::move(device)), rendezvous_(std::move(rendezvous)), joining_(std::move(joining)) {
  joining_.stop = Stop(&ended_, nullptr, 0);
  joining_.awaited = &awaited_;
}

inline Result<std::unique_ptr<PendingJoin>> PendingJoin::begin(std::shared_ptr<Device> device,
                                                               std::shared_ptr<Rendezvous> rendezvous,
                                                               Joining joining) {
  std::unique_ptr<PendingJoin> made(new PendingJoin(std::move(device), std::move(rendezvous), std::move(joining)));
  EPL_ASSIGN(made->thread_, Thread::start("epl-join", [own = made.get()] { own->run(); }));
  return made;
}

inline PendingJoin::~PendingJoin() {
  ended_.cancel();
  thread_.join();
}

inline void PendingJoin::run() {
  Result<std::unique_ptr<Communicator>> joined = std::unique_ptr<Communicator>();
  std::exception_ptr thrown;
  try {
    joined = device_->join(joining_, *rendezvous_);
    const Status all = joined.ok() ? barrier(**joined) : Status();
    if (!all.ok()) joined = all;
  } catch (const std::bad_alloc&) {
    joined = Status::no_memory();
  } catch (...) {
    thrown = std::current_exception();
  }
  std::lock_guard lock(mutex_);
  joined_ = std::move(joined);
  thrown_ = thrown;
  done_ = true;
  if (!why_.ok() && joined_.ok()) (*joined_)->abort(why_);
  changed_.notify_all();
}

// A call that completes on one rank does so on all: from here on a reason to give up finds nobody in the join any more.
inline Status PendingJoin::barrier(Communicator& joined) {
  EPL_ASSIGN(const std::unique_ptr<Stream> stream, device_->create_stream(1));
  joined.watch([this] { return joining_.stop.check(); });
  Status status = joined.run(*stream, {.kind = Collective::Kind::barrier});
  if (status.ok()) status = stream->synchronize();
  joined.watch(nullptr);
  return status;
}

inline void PendingJoin::give_up(const Status& why) {
  std::lock_guard lock(mutex_);
  if (!why_.ok()) return;
  why_ = why;
  if (done_ && joined_.ok()) (*joined_)->abort(why);
}

inline bool PendingJoin::given_up() const {
  std::lock_guard lock(mutex_);
  return !why_.ok();
}

inline Status PendingJoin::wait(const Stop& stop, FunctionRef<Status()> look) {
  constexpr auto slice = std::chrono::milliseconds(10);  // before it is asked whether to stop
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, slice, [&] { return done_; })) {
    EPL_TRY(look());
    const Status stopped = stop.check();
    if (stopped.ok()) continue;
    const int rank = awaited_.load(std::memory_order_relaxed);
    const std::string who = rank < 0 ? "" : cat(": rank ", rank, " has not come yet");
    return Status(stopped.code(), cat(stopped.message(), " while the processes of the job came together again", who))
        .of_rank(rank);
  }
  return {};
}

inline Result<std::unique_ptr<Communicator>> PendingJoin::take() {
  std::lock_guard lock(mutex_);
  if (thrown_) std::rethrow_exception(thrown_);
  return std::move(joined_);
}

}  // namespace epl
