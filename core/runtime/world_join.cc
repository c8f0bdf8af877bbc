// How the ranks of a world find each other: the group of all ranks, and the groups that programs name.
#include <algorithm>
#include <cstring>

#include "core/backend/two_level.h"
#include "core/base/hash.h"
#include "core/base/shown.h"
#include "core/runtime/facts.h"
#include "core/runtime/world.h"

namespace epl {

std::vector<int> members_of(const CompiledPlan& plan, const ProgramGroup& group, const LocalRank& rank) {
  const Mesh& mesh = plan.mesh(rank.virtual_device);
  if (group.virtual_device < 0) return mesh.ranks_along(group.axis, rank.number);
  const Mesh& other = plan.mesh(group.virtual_device);
  std::vector<int> members = {rank.number};
  if (group.peer < 0) {
    members.push_back(crossing_source(other, mesh.coordinates(rank.number)));
  } else {
    const std::vector<int> targets = crossing_targets(mesh, mesh.coordinates(rank.number), other);
    if (group.peer >= static_cast<int>(targets.size())) return {};
    members.push_back(targets[static_cast<size_t>(group.peer)]);
  }
  std::ranges::sort(members);
  return members;
}

Status World::connect(const Stop& stop, FunctionRef<Status()> checks) {
  if (size() == 1) {
    ranks_.front().groups_of_entry.resize(plan_->entries().size());
    connected_ = true;
    return {};
  }
  EPL_TRY(over_processes() ? join_world(stop) : make_world());
  return make_all_groups(stop, checks);
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

Status World::make_all_groups(const Stop& stop, FunctionRef<Status()> checks) {
  std::vector<Communicator*> worlds;
  for (const auto& rank : ranks_) worlds.push_back(rank->world.get());
  const Watched watched(over_processes() ? worlds : std::vector<Communicator*>(), stop);
  call_.restart();
  if (over_processes()) EPL_TRY(group_processes());
  for (const auto& rank : ranks_) EPL_TRY(make_groups(*rank));
  if (over_processes()) EPL_TRY(await_processes());
  connected_ = true;
  return over_processes() ? checks() : Status();
}

// Of each axis that a program names the subgroup of the world that the rank is in.
Status World::make_groups(LocalRank& rank) {
  const bool levels = plan_->options().strategy.flag("communication.hierarchical");
  for (const Entry& entry : plan_->entries()) {
    Groups& groups = rank.groups_of_entry.emplace_back();
    groups.world = rank.world.get();
    for (const ProgramGroup& wanted : entry.programs[static_cast<size_t>(rank.virtual_device)].groups) {
      const std::vector<int> members = members_of(*plan_, wanted, rank);
      if (members.empty()) {  // nobody to send to
        groups.of_program.push_back(nullptr);
        continue;
      }
      const std::string name = group_name(wanted, members);
      auto& group = rank.groups[name];
      if (!group) {
        EPL_ASSIGN(group, rank.world->split(name, members));
        if (levels && wanted.virtual_device < 0) {
          EPL_ASSIGN(group, in_two_levels(std::move(group), members, CostModel(plan_->device()->machine())));
        }
      }
      groups.of_program.push_back(group.get());
    }
  }
  return {};
}

// Each rank says which is the first of its process, and what its device can do with others. The first ranks are a group
// of their own.
Status World::group_processes() {
  struct Said {
    int64_t first;
    char card[Communicator::card_bytes];  // ended by a zero
  };
  const int first = ranks_.first();
  EPL_TRY(ranks_.try_each([&](LocalRank& rank) -> Status {
    Said own = {.first = first, .card = {}};
    const std::string card = rank.world->card();
    std::memcpy(own.card, card.data(), std::min(card.size(), sizeof own.card - 1));
    std::vector<Said> said(static_cast<size_t>(size()));
    EPL_TRY(rank.world->run_on_host(*rank.stream, {.kind = Collective::Kind::all_gather,
                                                   .dtype = DType::u8,
                                                   .count = static_cast<int64_t>(sizeof own),
                                                   .source = &own,
                                                   .target = said.data()}));
    std::vector<std::string> cards;
    for (const Said& one : said) cards.emplace_back(one.card, ::strnlen(one.card, sizeof one.card));
    rank.world->introduce(std::move(cards));
    if (rank.number != first) return {};
    std::vector<int> firsts;
    for (const Said& one : said) firsts.push_back(static_cast<int>(one.first));
    const auto repeated = std::ranges::unique(firsts);
    firsts.erase(repeated.begin(), repeated.end());
    processes_ = Processes(std::move(firsts), size());
    return {};
  }));
  EPL_ASSIGN(among_, ranks_.front().world->split("processes", processes_.first_ranks()));
  return {};
}

// Nobody goes on before all have all of their groups: a process may give up its first call, which must not look to a
// slow one as if it had never come.
Status World::await_processes() {
  return ranks_.try_each([&](LocalRank& rank) -> Status {
    EPL_TRY(rank.world->run(*rank.stream, {.kind = Collective::Kind::barrier}));
    return rank.stream->synchronize();
  });
}

std::string World::group_name(const ProgramGroup& group, const std::vector<int>& members) const {
  if (group.virtual_device >= 0) {
    const std::string between = cat("ranks ", members.front(), " and ", members.back());
    return group.channel == 0 ? between : cat(between, ", channel ", group.channel);
  }
  return static_cast<int>(members.size()) == size() ? group.axis : cat(group.axis, " of rank ", members.front());
}

void World::disconnect() {
  among_.reset();
  for (const auto& rank : ranks_) {
    rank->groups_of_entry.clear();
    rank->groups.clear();
    rank->world.reset();
  }
  absent_.clear();
}

Status World::make_world() {
  disconnect();
  EPL_ASSIGN(auto group, ranks_.device()->create_group("world", size()));
  for (const auto& rank : ranks_) rank->world = std::move(group[static_cast<size_t>(rank->number)]);
  // A rank that leaves ends the group of all.
  std::erase(group, nullptr);
  absent_ = std::move(group);
  return {};
}

// Each time under another name, because a rendezvous keeps what it has.
Joining World::joining_world() const {
  return {.group = joins_ == 0 ? "world" : cat("world ", joins_ + 1),
          .size = size(),
          .job = job(),
          .secret = options_.secret,
          .address = options_.address,
          .transport = options_.transport,
          .join_seconds = options_.join_seconds,
          .silence_seconds = options_.silence_seconds,
          .signs_frames = options_.signs_frames};
}

// The first time the caller's thread joins, which a transport may want, and a call that stops makes no session.
Status World::join_first(const Stop& stop) {
  Joining joining = joining_world();
  joining.stop = stop;
  ++joins_;
  return ranks_.try_each([&](LocalRank& rank) -> Status {
    Joining own = joining;
    own.rank = rank.number;
    EPL_ASSIGN(rank.world, ranks_.device()->join(own, *options_.rendezvous));
    return {};
  });
}

// The ranks stay in their old world until all are in the new one: who ends meanwhile, or has given up the job, is
// noticed there.
Status World::begin_join() {
  for (const auto& rank : ranks_) {
    if (rank->world) before_.push_back(std::move(rank->world));
  }
  disconnect();
  Joining joining = joining_world();
  ++joins_;
  std::vector<std::unique_ptr<PendingJoin>> begun;
  for (const auto& rank : ranks_) {
    joining.rank = rank->number;
    EPL_ASSIGN(auto one, PendingJoin::begin(ranks_.device(), options_.rendezvous, joining));
    begun.push_back(std::move(one));
  }
  pending_ = std::move(begun);
  return {};
}

Status World::lost_before() const {
  for (const auto& world : before_) {
    if (hastened_) world->hasten([] { return true; });
    EPL_TRY(lost_process(world->lost()));
  }
  return {};
}

// Later the others count on this process to come, whatever becomes of its call: one that stops is told to them in the
// world that it has waited for, and all try the next name then.
Status World::join_world(const Stop& stop) {
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
      const Status why =
          Status(Code::peer_failed, cat("rank ", ranks_.first(), ": ", stopped.message())).of_rank(ranks_.first());
      for (const auto& other : pending_) other->give_up(why);
      ++collective_calls_;  // this call is told to the others
      return stopped;
    }
    Status failure;
    for (const auto& rank : ranks_) {
      auto joined = pending_[static_cast<size_t>(rank->number - ranks_.first())]->take();
      if (joined.ok()) {
        rank->world = std::move(*joined);
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
Status World::come_together(const Stop& stop) {
  constexpr auto no_checks = [] { return Status(); };
  if (connected_) return {};
  if (!over_processes()) return connect(stop, no_checks);
  EPL_TRY(lost_);
  const Status joined = join_world(stop);
  if (!joined.ok()) return pending_.empty() ? lost_ = joined : joined;
  const Status made = make_all_groups(stop, no_checks);
  return made.ok() ? made : abort(made);
}

// What must be the same in all processes, a line each: what runs, how it is trained, what random numbers follow from.
std::string World::job() const {
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
  // Ranks of a group come to its calls in one order. Devices with streams for groups have another one.
  const bool ahead = std::ranges::any_of(plan_->entries(), [](const Entry& entry) {
    return std::ranges::any_of(entry.programs, &Program::gathers_ahead);
  });
  say("gathers of weights", ahead ? "come a layer ahead" : "come where the weights are used");
  say("constants", constants.value());
  say("seed", host_state_.seed());
  say("step", host_state_.steps_done());
  say("slices", options_.slices);
  say("take_weights", options_.take_weights);
  say("compare_every", options_.compare_every);
  say("signed frames", options_.signs_frames);
  return out;
}

}  // namespace epl
