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
  call_.number = 0;  // the others have been told nothing there
  told_call_ = false;
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
  if (!over_processes() || options_.predicts_only) return {};
  compare_due_ = joins_ > 1;  // something had failed
  return joins_ == 1 ? compare_weights() : Status();
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
          .silence_seconds = options_.silence_seconds,
          .signs_frames = options_.signs_frames};
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

// The ranks stay in their old world until all are in the new one: who ends meanwhile, or has given up the job, is
// noticed there.
Status Session::begin_join() {
  for (auto& rank : ranks_) {
    if (rank->world) before_.push_back(std::move(rank->world));
  }
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

Status Session::lost_before() const {
  for (const auto& world : before_) {
    if (hastened_) world->hasten([] { return true; });
    EPL_TRY(lost_process(world->lost()));
  }
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
      Status lost;
      const Status stopped = one->wait(stop, [&] { return lost = lost_before(); });
      if (stopped.ok()) continue;
      if (!lost.ok()) {
        pending_.clear();
        if (!hastened_) before_.clear();
        return lost;
      }
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
    for (const auto& world : before_) {
      if (failure.ok()) world->retire();
    }
    before_.clear();
    if (!failure.ok() || !given_up) return failure;
  }
}

// Over processes there is one try: who did not come now would look for the others under another name. Where one has
// stopped meanwhile, all hear of it and try the next name.
Status Session::come_together(const Stop& stop) {
  if (connected_) return {};
  if (!over_processes()) return connect(stop);
  EPL_TRY(lost_);
  const Status joined = join_world(stop);
  if (!joined.ok()) return pending_.empty() ? lost_ = joined : joined;
  const Status met = meet(stop);
  return met.ok() ? met : give_up_world(met);
}

// The same, and this process says which call it is in.
Status Session::reconnect(const Stop& stop) {
  EPL_TRY(come_together(stop));
  if (over_processes() && !told_call_) tell_call();
  return {};
}

// What must be the same in all processes, a line each: what runs, how it is trained, what random numbers follow from.
std::string Session::job() const {
  std::string out;
  const auto say = [&](std::string_view key, const auto& value) { out += told_line(key, cat(value)); };
  say("numerics", numerics_version);
  for (const auto& [key, value] : describe_run(*plan_)) say(key, quoted(value));
  Hash64 plan, constants;
  for (const Entry& entry : plan_->entries()) {
    const std::string text = plan_->text(entry.kind, "local", entry.shape).value();
    plan.add(text.c_str(), text.size() + 1);
    const Graph& graph = *entry.plan.graph;
    for (const Value constant : graph.leaves(ValueKind::constant)) add_to_hash(constants, graph.value(constant).data);
  }
  say("plan", plan.value());
  say("constants", constants.value());
  say("seed", seed_);
  say("step", steps_done_);
  say("slices", options_.slices);
  say("take_weights", options_.take_weights);
  say("compare_every", options_.compare_every);
  say("signed frames", options_.signs_frames);
  return out;
}

}  // namespace epl
