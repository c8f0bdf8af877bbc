// The processes of a job, and the ranks of this one among them: how they find each other, tell each other something,
// agree and compare, and how one that cannot go on is noticed by the others. Of a plan whose ranks all live in this
// process it is the groups of these ranks alone, and there is nobody to agree with.
//
// Over processes all make the same calls at the same time. A process that cannot make its call says so by `give_up`:
// the call of the others fails, and all come together again at the next one. A process that is gone is `lost`, for
// good. Thread safety: one caller at a time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/function_ref.h"
#include "core/compile/compiled_plan.h"
#include "core/runtime/current_call.h"
#include "core/runtime/host_state.h"
#include "core/runtime/local_ranks.h"
#include "core/runtime/pending_join.h"
#include "core/runtime/session_options.h"

namespace epl {

// How the ranks are shared out over the processes, each of which has a run of them.
class Processes {
 public:
  Processes() = default;
  Processes(std::vector<int> first_ranks, int ranks) : firsts_(std::move(first_ranks)), ranks_(ranks) {}
  size_t count() const { return firsts_.size(); }                  // 0: they have not met yet, or there is one
  const std::vector<int>& first_ranks() const { return firsts_; }  // ascending
  int first(size_t process) const { return firsts_[process]; }
  int end(size_t process) const { return process + 1 < firsts_.size() ? firsts_[process + 1] : ranks_; }
  size_t of(int rank) const;
  // Whether each process has a rank with each shard. `has`: this rank, this shard.
  bool each_has_all(FunctionRef<bool(int, int)> has, int shards) const;

 private:
  std::vector<int> firsts_;
  int ranks_ = 0;
};

// The ranks that a group of a program has, for one that stands in it: those along an axis, or the rank and the one that
// it sends to or receives from. None where there is no such one.
std::vector<int> members_of(const CompiledPlan& plan, const ProgramGroup& group, const LocalRank& rank);

class World {
 public:
  // `host_state` is told to the others with each call.
  World(std::shared_ptr<const CompiledPlan> plan, const SessionOptions& options, LocalRanks ranks,
        const HostState& host_state);
  World(const World&) = delete;

  const SessionOptions& options() const { return options_; }
  int size() const { return static_cast<int>(plan_->options().ranks); }  // ranks
  bool over_processes() const { return options_.represented.empty() && ranks_.count() < size(); }
  const LocalRanks& ranks() const { return ranks_; }  // of this process
  bool is_local(int rank) const { return ranks_.has(rank); }
  const Processes& processes() const { return processes_; }
  CurrentCall& call() { return call_; }

  // The first time. `checks` are made while all wait for each other.
  Status connect(const Stop& stop, FunctionRef<Status()> checks);
  // All have come together, again if something has failed.
  Status come_together(const Stop& stop);
  // The same, and this process says which call it is in. What fails in it afterwards is told by `leave_call`.
  Status enter_call(const Stop& stop);
  // Enters the call, and then each local rank does its part of it, at once. No error says that all have, whatever
  // became of it.
  Status run(const Stop& stop, FunctionRef<void(LocalRank&)> body);
  // How often all have come together after the first time.
  int rejoins() const { return std::max(0, joins_ - 1); }

  // Over processes: the caller's own failure, or else that of another process; all of them ask at the same time.
  Status agree(const Status& own);
  // What each process has to say to all, in the order of their ranks. The same.
  Result<std::vector<std::string>> tell(const std::string& own);
  // A number of each. Who waits for the others looks at `stop`.
  Result<std::vector<int64_t>> tell(int64_t own, const Stop& stop);
  // The same of lines "key: value", which are to be the same in all processes: an error names the first that differs,
  // by its key and rank, in all of them.
  Status compare(const std::string& lines);
  // A call of the group that has the first rank of each process.
  Status among_processes(const Collective& call);

  // The call that the others are in, or their next one, ends with Code::peer_failed and this reason, because this
  // process will not make it. All can go on afterwards. Returns the reason; no error is none.
  Status give_up(const Status& why);
  // The same of a process that is in the call with the others: its groups end here and now.
  Status abort(const Status& why);
  // `abort`, unless it is done already. No error is none.
  Status leave_call(const Status& why);
  // Runs a call that all processes make. An error of it before it came to the others is told to them (give_up).
  Status make_call(FunctionRef<Status()> call);

  const Status& lost() const { return lost_; }  // why it cannot go on over its processes; ok: it can
  // The job is to end: a process that does not even answer is lost within some seconds.
  void hasten() { hastened_ = true; }
  // Of a world that has lost a process. Waits until that process has done what is left to do, which it says by `leave`,
  // or is gone.
  Status await_leave(int rank, const Stop& stop);
  void leave();

 private:
  Status make_all_groups(const Stop& stop, FunctionRef<Status()> checks);
  Status group_processes();
  Status make_groups(LocalRank& rank);
  Status await_processes();
  std::string group_name(const ProgramGroup& group, const std::vector<int>& members) const;
  void disconnect();
  Status make_world();
  Status join_world(const Stop& stop);
  Status join_first(const Stop& stop);
  Status begin_join();
  Status lost_before() const;
  Joining joining_world() const;
  std::string job() const;
  static Status lost_process(const Status& why);

  const std::shared_ptr<const CompiledPlan> plan_;
  SessionOptions options_;
  const HostState& host_state_;
  CurrentCall call_;  // outlives the groups, which keep what they were told
  const LocalRanks ranks_;
  std::vector<std::unique_ptr<Communicator>> absent_;  // of ranks that others represent
  int joins_ = 0;                                      // of the world, over processes
  std::vector<std::unique_ptr<Communicator>> before_;  // the ranks' old world, until the new one stands
  std::vector<std::unique_ptr<PendingJoin>> pending_;  // by local rank; none where nobody is on the way
  bool connected_ = false;
  bool hastened_ = false;
  uint64_t collective_calls_ = 0;  // how often this process has come to the others
  Processes processes_;
  std::unique_ptr<Communicator> among_;  // of the first ranks, over processes
  Status lost_;                          // why the world never comes together again
};

}  // namespace epl
