// How the ranks of a session find each other: the world of all ranks, and the groups that programs name.
#include <algorithm>

#include "core/base/hash.h"
#include "core/runtime/checkpoint.h"
#include "core/runtime/facts.h"
#include "core/runtime/session_rank.h"

namespace epl {

Status Session::connect(const Stop& stop) {
  if (world() == 1) {
    ranks_[0]->groups_of_entry.resize(plan_->entries().size());
    connected_ = true;
    return {};
  }
  EPL_TRY(over_processes() ? join_world(stop) : make_world());
  return meet(stop);
}

namespace {

// While it lives, waiting for other processes ends where `stop` says so.
class Watched {
 public:
  Watched(std::vector<Communicator*> worlds, const Stop& stop) : worlds_(std::move(worlds)) {
    for (Communicator* world : worlds_) world->watch([&stop] { return stop.check(); });
  }
  Watched(const Watched&) = delete;
  ~Watched() {
    for (Communicator* world : worlds_) world->watch(nullptr);
  }

 private:
  const std::vector<Communicator*> worlds_;
};

}  // namespace

// Of each axis that a program names the part of the world that a rank is in.
Status Session::meet(const Stop& stop) {
  std::vector<Communicator*> worlds;
  for (const auto& rank : ranks_) worlds.push_back(rank->world.get());
  const Watched watched(over_processes() ? worlds : std::vector<Communicator*>(), stop);
  if (over_processes()) EPL_TRY(meet_processes());
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = *ranks_[r];
    for (const Entry& entry : plan_->entries()) {
      Groups& groups = rank.groups_of_entry.emplace_back();
      groups.world = rank.world.get();
      for (const ProgramGroup& wanted : entry.programs[static_cast<size_t>(rank.rank_class)].groups) {
        const std::vector<int> members = members_of(wanted, rank.rank_class, options_.first_rank + static_cast<int>(r));
        if (members.empty()) {  // nobody to send to
          groups.of_program.push_back(nullptr);
          continue;
        }
        const std::string name = group_name(wanted, members);
        auto& group = rank.groups[name];
        if (!group) {
          EPL_ASSIGN(group, rank.world->split(name, members));
        }
        groups.of_program.push_back(group.get());
      }
    }
  }
  if (over_processes()) EPL_TRY(await_processes());
  connected_ = true;
  return {};
}

// Nobody goes on before all have all of their groups: a process may give up its first call, which must not look to a
// slow one as if it had never come.
Status Session::await_processes() {
  on_ranks([&](int r) {
    Rank& rank = *ranks_[static_cast<size_t>(r)];
    rank.status = rank.world->run(*rank.stream, {.kind = Collective::Kind::barrier});
    if (rank.status.ok()) rank.status = rank.stream->synchronize();
  });
  for (const auto& rank : ranks_) EPL_TRY(rank->status);
  return {};
}

// The ranks along an axis, or a rank and the one that it sends to or receives from; none where there is no such one.
std::vector<int> Session::members_of(const ProgramGroup& group, int rank_class, int rank) const {
  const Mesh& mesh = plan_->mesh(rank_class);
  if (group.rank_class < 0) return mesh.ranks_along(group.axis, rank);
  const Mesh& other = plan_->mesh(group.rank_class);
  std::vector<int> members = {rank};
  if (group.peer < 0) {
    members.push_back(crossing_source(other, mesh.place(rank)));
  } else {
    const std::vector<int> targets = crossing_targets(mesh, mesh.place(rank), other);
    if (group.peer >= static_cast<int>(targets.size())) return {};
    members.push_back(targets[static_cast<size_t>(group.peer)]);
  }
  std::ranges::sort(members);
  return members;
}

std::string Session::group_name(const ProgramGroup& group, const std::vector<int>& members) const {
  if (group.rank_class >= 0) {
    const std::string between = cat("ranks ", members.front(), " and ", members.back());
    return group.channel == 0 ? between : cat(between, ", channel ", group.channel);
  }
  return static_cast<int>(members.size()) == world() ? group.axis : cat(group.axis, " of rank ", members.front());
}

void Session::disconnect() {
  among_.reset();
  for (auto& rank : ranks_) {
    rank->groups_of_entry.clear();
    rank->groups.clear();
    rank->world.reset();
  }
}

Status Session::make_world() {
  disconnect();
  EPL_ASSIGN(auto world, device_->create_group("world", static_cast<int>(ranks_.size())));
  for (size_t r = 0; r < ranks_.size(); ++r) ranks_[r]->world = std::move(world[r]);
  return {};
}

// Each time under another name, because a rendezvous keeps what it has.
Joining Session::joining_world() const {
  return {.group = joins_ == 0 ? "world" : cat("world ", joins_ + 1),
          .size = world(),
          .job = job(),
          .secret = options_.secret,
          .address = options_.address,
          .transport = options_.transport,
          .join_seconds = options_.join_seconds,
          .silence_seconds = options_.silence_seconds};
}

// The first time the caller's thread joins, which a transport may want, and a call that stops makes no session.
Status Session::join_first(const Stop& stop) {
  Joining joining = joining_world();
  joining.stop = stop;
  ++joins_;
  on_ranks([&](int r) {
    Joining own = joining;
    own.rank = options_.first_rank + r;
    auto joined = device_->join(own, *options_.rendezvous);
    ranks_[static_cast<size_t>(r)]->status = joined.status();
    if (joined.ok()) ranks_[static_cast<size_t>(r)]->world = std::move(*joined);
  });
  for (const auto& rank : ranks_) EPL_TRY(rank->status);
  return {};
}

Status Session::begin_join() {
  disconnect();
  Joining joining = joining_world();
  ++joins_;
  std::vector<std::unique_ptr<PendingJoin>> begun;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    joining.rank = options_.first_rank + static_cast<int>(r);
    EPL_ASSIGN(auto one, PendingJoin::begin(device_, options_.rendezvous, joining));
    begun.push_back(std::move(one));
  }
  pending_ = std::move(begun);
  return {};
}

// Later the others count on this process to come, whatever becomes of its call: one that stops is told to them in the
// world that it has waited for, and all try the next name then.
Status Session::join_world(const Stop& stop) {
  if (joins_ == 0) return join_first(stop);
  for (;;) {
    if (pending_.empty()) EPL_TRY(begin_join());
    const bool given_up = pending_.front()->given_up();
    for (const auto& one : pending_) {
      const Status stopped = one->wait(stop);
      if (stopped.ok()) continue;
      const Status why = Status(Code::peer_failed, cat("rank ", options_.first_rank, ": ", stopped.message()))
                             .of_rank(options_.first_rank);
      for (const auto& other : pending_) other->give_up(why);
      ++meetings_;  // this call is told to the others
      return stopped;
    }
    Status failure;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      auto joined = pending_[r]->take();
      if (joined.ok()) {
        ranks_[r]->world = std::move(*joined);
      } else if (failure.ok()) {
        failure = joined.status();
      }
    }
    pending_.clear();
    if (!failure.ok() || !given_up) return failure;
  }
}

// What must be the same in all processes: what runs, how it is trained, what random numbers follow from.
std::string Session::job() const {
  Hash64 hash;
  const auto add = [&](const std::string& text) { hash.add(text.c_str(), text.size() + 1); };
  for (const auto& [key, value] : describe_run(*plan_)) add(key), add(value);
  for (const Entry& entry : plan_->entries()) add(plan_->text(entry.kind, "local", entry.shape).value());
  return cat("plan ", hash.value(), ", numerics ", numerics_version, ", seed ", seed_, ", step ", steps_done_);
}

}  // namespace epl
