// Groups of ranks of one process whose calls do not block: a rank leaves a call with its stream and goes on, and the
// call takes place once all have come to it. How it takes place is a device's; who makes which call with whom, what
// does not fit, subgroups and aborts are the same for all such devices.
//
// A device gives the types and functions below; all of its groups share one lock, under which the functions are called.
//
//   struct Way {
//     struct Shared { std::mutex& lock(); };          // what the groups of a device share
//     struct CollectiveCall;                                 // one call of all ranks, or of a sender and its receiver
//     static Status fits(int rank, const Collective&);   // what this device cannot do besides
//     // `ranks`: that come to it, by their numbers in the job.
//     static std::shared_ptr<CollectiveCall> begin(PostedGroup<Way>&, const Collective&, std::span<const int> ranks);
//     static void join(std::shared_ptr<PostedGroup<Way>>, std::shared_ptr<CollectiveCall>, int seat, Stream&,
//                      const Collective&);
//     static void abort(PostedGroup<Way>&, const std::vector<std::shared_ptr<CollectiveCall>>& incomplete);
//     static void settle(Stream&, std::span<const Collective>);  // before calls, without the lock; or absent
//   };
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/communicator.h"

namespace epl {

template <class Way> class PostedGroup : public std::enable_shared_from_this<PostedGroup<Way>> {
 public:
  using Shared = typename Way::Shared;
  using CollectiveCall = typename Way::CollectiveCall;

  // `all`: its ranks, by their numbers in the job.
  PostedGroup(std::shared_ptr<Shared> shared_with, std::string group_name, std::vector<int> all)
      : shared(std::move(shared_with)),
        name(std::move(group_name)),
        ranks(std::move(all)),
        size(static_cast<int>(ranks.size())) {}

  // Calls that all ranks have made take place all the same, where the device goes on.
  void abort(const Status& why) {
    if (!status.ok()) return;
    status = why.ok() ? error(Code::cancelled, "the group ", name, " was aborted") : why;
    std::vector<std::shared_ptr<CollectiveCall>> incomplete;
    const auto drop = [&](Line& line) {
      for (Call& call : line.open) incomplete.push_back(std::move(call.collective));
      line.open.clear();
    };
    drop(together_);
    for (auto& [ranks_of_pair, line] : pairs_) drop(line);
    Way::abort(*this, incomplete);
    for (auto& [child_name, subgroup] : subgroups_) subgroup.group->abort(why);
  }

  Status run(int rank, Stream& stream, const Collective& call) {
    if (!status.ok()) return status;
    Status fits = check_collective(call, rank, size);
    if (fits.ok()) fits = Way::fits(rank, call);
    if (!fits.ok()) {
      abort(fits);
      return fits;
    }
    const bool two = call.between_two(), sends = call.kind == Collective::Kind::send;
    const std::pair<int, int> pair = sends ? std::pair(rank, call.peer) : std::pair(call.peer, rank);
    const int seats = two ? 2 : size, seat = !two ? rank : sends ? 0 : 1;
    Line& line = two ? pairs_[pair] : together_;
    line.made.resize(static_cast<size_t>(seats));
    const int64_t number = line.made[static_cast<size_t>(seat)]++;
    const auto at = static_cast<size_t>(number - line.first);
    if (at == line.open.size()) {
      const auto of_job = [&](int member) { return ranks[static_cast<size_t>(member)]; };
      const std::vector<int> both = two ? std::vector{of_job(pair.first), of_job(pair.second)} : std::vector<int>();
      line.open.push_back({.collective = Way::begin(*this, call, two ? both : ranks)});
    }
    Call& open = line.open[at];
    // Those that have made it agree with each other, so that one of them speaks for all.
    if (open.made && !agree(*open.made, call)) {
      const int who = !two ? open.seat : open.seat == 0 ? pair.first : pair.second;
      abort(error(Code::misuse, "ranks of group ", name, " disagree at call ", number + 1, ": rank ", rank, " calls ",
                  call.text(), ", rank ", who, " calls ", open.made->text()));
      return status;
    }
    if (!open.made || seat < open.seat) {
      open.made = call;
      open.seat = seat;
    }
    const std::shared_ptr<CollectiveCall> collective = open.collective;
    if (++open.count == seats) {  // so it is the oldest
      line.open.pop_front();
      ++line.first;
    }
    Way::join(this->shared_from_this(), collective, seat, stream, call);
    return {};
  }

  Result<std::shared_ptr<PostedGroup>> subgroup(const std::string& child_name, std::span<const int> members) {
    if (!status.ok()) return status;
    Subgroup& made = subgroups_[child_name];
    if (!made.group) {
      std::vector<int> of_job;
      for (int member : members) of_job.push_back(ranks[static_cast<size_t>(member)]);
      made = {{members.begin(), members.end()}, std::make_shared<PostedGroup>(shared, child_name, std::move(of_job))};
    }
    if (!std::ranges::equal(made.members, members))
      return error(Code::misuse, "group ", name, " has a group ", child_name, " of other members");
    return made.group;
  }

  const std::shared_ptr<Shared> shared;
  const std::string name;
  const std::vector<int> ranks;
  const int size;  // how many they are
  Status status;   // why it was aborted

 private:
  struct Call {
    std::shared_ptr<CollectiveCall> collective;
    int count = 0, seat = 0;              // how many have made it, and the first seat of these
    std::optional<Collective> made = {};  // by that one
  };
  struct Line {
    std::deque<Call> open;      // calls that not all have made
    int64_t first = 0;          // the number of the first of them
    std::vector<int64_t> made;  // by seat
  };
  struct Subgroup {
    std::vector<int> members;
    std::shared_ptr<PostedGroup> group;
  };
  Line together_;
  std::map<std::pair<int, int>, Line> pairs_;  // from a rank to another
  std::map<std::string, Subgroup> subgroups_;
};

template <class Way> class PostedCommunicator final : public Communicator {
 public:
  PostedCommunicator(std::shared_ptr<PostedGroup<Way>> group, int rank) : group_(std::move(group)), rank_(rank) {}
  ~PostedCommunicator() override {
    std::lock_guard lock(group_->shared->lock());
    group_->abort(error(Code::peer_failed, "rank ", rank_, " of ", group_->size, " left the group ", group_->name));
  }
  const std::string& group() const override { return group_->name; }
  int rank() const override { return rank_; }
  int size() const override { return group_->size; }

  Status run(Stream& stream, const Collective& call) override { return run_together(stream, {&call, 1}); }
  // None of the calls waits for another one.
  Status run_together(Stream& stream, std::span<const Collective> calls) override {
    if constexpr (requires { Way::settle(stream, calls); }) Way::settle(stream, calls);
    std::lock_guard lock(group_->shared->lock());
    for (const Collective& call : calls) EPL_TRY(group_->run(rank_, stream, call));
    return {};
  }
  Result<std::unique_ptr<Communicator>> split(const std::string& name, std::span<const int> members) override {
    EPL_TRY(check_members(*this, name, members));
    std::lock_guard lock(group_->shared->lock());
    EPL_ASSIGN(std::shared_ptr<PostedGroup<Way>> subgroup, group_->subgroup(name, members));
    return std::unique_ptr<Communicator>(new PostedCommunicator(
        std::move(subgroup), static_cast<int>(std::ranges::find(members, rank_) - members.begin())));
  }
  void abort(const Status& status) override {
    std::lock_guard lock(group_->shared->lock());
    group_->abort(status);
  }

 private:
  const std::shared_ptr<PostedGroup<Way>> group_;
  const int rank_;
};

// A group with a communicator for each rank.
template <class Way>
Result<std::vector<std::unique_ptr<Communicator>>> create_posted_group(std::shared_ptr<typename Way::Shared> shared,
                                                                       const std::string& name, int ranks) {
  if (ranks < 1) return invalid("a group of ", ranks, " ranks; it needs at least one");
  std::vector<int> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  auto group = std::make_shared<PostedGroup<Way>>(std::move(shared), name, std::move(all));
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int r = 0; r < ranks; ++r) communicators.push_back(std::make_unique<PostedCommunicator<Way>>(group, r));
  return communicators;
}

}  // namespace epl
