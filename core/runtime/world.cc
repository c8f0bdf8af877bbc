#include "core/runtime/world.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/base/exception.h"
#include "core/base/shown.h"

namespace epl {

size_t Processes::of(int rank) const {
  return static_cast<size_t>(std::ranges::upper_bound(firsts_, rank) - firsts_.begin()) - 1;
}

bool Processes::each_has_all(FunctionRef<bool(int, int)> has, int shards) const {
  for (size_t p = 0; p < count(); ++p) {
    for (int shard = 0; shard < shards; ++shard) {
      bool there = false;
      for (int r = first(p); r < end(p) && !there; ++r) there = has(r, shard);
      if (!there) return false;
    }
  }
  return true;
}

World::World(std::shared_ptr<const CompiledPlan> plan, const SessionOptions& options, LocalRanks ranks,
             const HostState& host_state)
    : plan_(std::move(plan)), options_(options), host_state_(host_state), ranks_(std::move(ranks)) {
  options_.stop = Stop();
}

Status World::lost_process(const Status& why) {
  if (why.ok()) return why;
  return error(Code::peer_failed, "this session has lost a process of its job and cannot go on: ", why.message())
      .of_rank(why.rank());
}

// The others must not wait for this process, and all of them come together again at the next call.
Status World::abort(const Status& why) {
  connected_ = false;
  if (!over_processes()) return why;
  ++collective_calls_;
  for (const auto& rank : ranks_) {
    if (!rank->world) continue;
    rank->world->abort(Status(Code::peer_failed, cat("rank ", ranks_.first(), ": ", why.message()), why.where())
                           .of_rank(why.rank())
                           .of_rank(ranks_.first()));
    if (lost_.ok()) lost_ = lost_process(rank->world->lost());
  }
  return why;
}

// Who has given up before comes together with the others first: they wait for that at their next call.
Status World::give_up(const Status& why) {
  if (why.ok() || !over_processes()) return why;
  static_cast<void>(come_together(call_.stop()));
  return abort(why);
}

Status World::enter_call(const Stop& stop) {
  EPL_TRY(come_together(stop));
  if (!over_processes() || call_.is_told()) return {};
  const JobCall& told = call_.tell(host_state_);
  for (const auto& rank : ranks_) rank->world->enter(told);
  return {};
}

Status World::run(const Stop& stop, FunctionRef<void(LocalRank&)> body) {
  EPL_TRY(enter_call(stop));
  ++collective_calls_;
  ranks_.each(body);
  return {};
}

Status World::make_call(FunctionRef<Status()> call) {
  const uint64_t before = collective_calls_;
  Status status;
  try {
    status = call();
  } catch (...) {
    if (collective_calls_ == before) static_cast<void>(give_up(current_exception_status()));
    throw;
  }
  return status.ok() || collective_calls_ != before ? status : give_up(status);
}

Status World::leave_call(const Status& why) { return why.ok() || !over_processes() || !connected_ ? why : abort(why); }

Status World::among_processes(const Collective& call) {
  ++collective_calls_;
  const Status status = among_->run_on_host(*ranks_.front().stream, call);
  return status.ok() ? status : abort(status);
}

Status World::agree(const Status& own) {
  if (!over_processes()) return own;
  EPL_TRY(enter_call(call_.stop()));
  float failed = own.ok() ? 0.0f : 1.0f;
  const Status status = among_processes({.kind = Collective::Kind::all_reduce,
                                         .dtype = DType::f32,
                                         .count = 1,
                                         .source = &failed,
                                         .target = &failed,
                                         .reduction = Reduction::max});
  // That a process is gone is why this one fails as well, or matters more: a rank that has heard of it first may, for
  // example, have removed what this one was writing to.
  if (!own.ok() && status.code() == Code::peer_failed)
    return error(Code::peer_failed, status.message(), "; this process itself: ", own.message()).of_rank(status.rank());
  if (!status.ok() || failed == 0) return own.ok() ? status : own;
  // All know that one has failed, and it says why, so that whoever looks at another one's error is told as well.
  const auto said =
      tell(own.ok() ? std::string() : cat(own.where().empty() ? "" : cat(own.where(), ": "), own.message()));
  EPL_TRY(own);
  EPL_TRY(said.status());
  for (size_t p = 0; p < said->size(); ++p) {
    if (!(*said)[p].empty())
      return error(Code::peer_failed, "another process of the job has failed: rank ", processes_.first(p), ": ",
                   (*said)[p])
          .of_rank(processes_.first(p));
  }
  return error(Code::peer_failed, "another process of the job has failed");
}

// Two gatherings: of the lengths, and of the texts in room for the longest.
Result<std::vector<std::string>> World::tell(const std::string& own) {
  if (!over_processes()) return std::vector<std::string>{own};
  EPL_TRY(enter_call(call_.stop()));
  const auto gather = [&](const void* source, void* target, size_t bytes) {
    return among_processes({.kind = Collective::Kind::all_gather,
                            .count = static_cast<int64_t>(bytes),
                            .source = source,
                            .target = target});
  };
  const uint64_t length = own.size();
  std::vector<uint64_t> lengths(processes_.count());
  EPL_TRY(gather(&length, lengths.data(), sizeof length));
  const uint64_t longest = std::ranges::max(lengths);
  std::string room = own, all(longest * lengths.size(), '\0');
  room.resize(longest);
  EPL_TRY(gather(room.data(), all.data(), longest));
  std::vector<std::string> said;
  for (size_t p = 0; p < lengths.size(); ++p) said.push_back(all.substr(p * longest, lengths[p]));
  return said;
}

Result<std::vector<int64_t>> World::tell(int64_t own, const Stop& stop) {
  if (!over_processes()) return std::vector<int64_t>{own};
  EPL_TRY(enter_call(stop));
  std::vector<int64_t> said(processes_.count());
  Communicator& world = *ranks_.front().world;
  world.watch([&stop] { return stop.check(); });
  const Status status = among_processes({.kind = Collective::Kind::all_gather,
                                         .count = static_cast<int64_t>(sizeof own),
                                         .source = &own,
                                         .target = said.data()});
  world.watch(nullptr);
  EPL_TRY(status);
  return said;
}

Status World::compare(const std::string& lines) {
  if (!over_processes()) return call_.stop().check();
  EPL_TRY(enter_call(call_.stop()));
  if (const Status stopped = call_.stop().check(); !stopped.ok()) return abort(stopped);
  EPL_ASSIGN(const std::vector<std::string> said, tell(lines));
  for (size_t p = 1; p < said.size(); ++p) {
    const std::string why = rank_difference(processes_.first(0), said[0], processes_.first(p), said[p]);
    if (!why.empty()) return invalid(why).of_rank(processes_.first(p));
  }
  return {};
}

Status World::await_leave(int rank, const Stop& stop) {
  constexpr std::chrono::milliseconds slice(10);
  Communicator* const own = ranks_.front().world.get();
  Communicator* const world = own == nullptr && !before_.empty() ? before_.front().get() : own;
  if (world == nullptr) return {};
  world->hasten([] { return true; });
  while (world->has(rank)) {
    EPL_TRY(stop.check());
    std::this_thread::sleep_for(slice);
  }
  return {};
}

void World::leave() {
  disconnect();
  before_.clear();
}

}  // namespace epl
