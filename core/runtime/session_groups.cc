// How the ranks of a session find each other: the world of all ranks, and the groups that programs name.
#include <algorithm>

#include "core/base/hash.h"
#include "core/runtime/checkpoint.h"
#include "core/runtime/facts.h"
#include "core/runtime/session_rank.h"

namespace epl {

// The world, and of each axis that a program names the part of it that a rank is in.
Status Session::connect() {
  if (world() == 1) {
    ranks_[0]->groups_of_entry.resize(plan_->entries().size());
    connected_ = true;
    return {};
  }
  EPL_TRY(over_processes() ? join_world() : make_world());
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

// Each time under another name, because a rendezvous keeps what it has. The ranks stay in their old world until all are
// in the new one: who ends meanwhile, or has given up the job, is noticed there.
Status Session::join_world() {
  std::vector<std::unique_ptr<Communicator>> before;
  for (auto& rank : ranks_) before.push_back(std::move(rank->world));
  disconnect();
  const auto lost = [&]() -> Status {
    for (const auto& world : before) {
      if (world) EPL_TRY(lost_process(world->lost()));
    }
    return {};
  };
  Joining joining{.group = joins_ == 0 ? "world" : cat("world ", joins_ + 1),
                  .size = world(),
                  .job = job(),
                  .secret = options_.secret,
                  .address = options_.address,
                  .transport = options_.transport,
                  .join_seconds = options_.join_seconds,
                  .silence_seconds = options_.silence_seconds,
                  .signs_frames = options_.signs_frames};
  ++joins_;
  on_ranks([&](int r) {
    Joining own = joining;
    own.rank = options_.first_rank + r;
    own.watch = lost;
    auto joined = device_->join(own, *options_.rendezvous);
    ranks_[static_cast<size_t>(r)]->status = joined.status();
    if (joined.ok()) ranks_[static_cast<size_t>(r)]->world = std::move(*joined);
  });
  for (const auto& rank : ranks_) EPL_TRY(rank->status);
  for (const auto& world : before) {
    if (world) world->retire();
  }
  return {};
}

// What must be the same in all processes, a line each: what runs, how it is trained, what random numbers follow from.
std::string Session::job() const {
  std::string out;
  const auto say = [&](std::string_view key, const auto& value) { out += cat(key, ": ", value, "\n"); };
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
