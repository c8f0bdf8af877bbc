#include "tests/backend/far_group.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/reduce.h"

namespace epl::far {
namespace {

using Kind = Collective::Kind;

// One call that ranks make together: it takes place once all have come to it in their streams.
struct Meeting {
  std::vector<Collective> calls;               // by rank of the group, or of sender and receiver
  std::vector<std::shared_ptr<Queue>> queues;  // null: it has not been called
  bool done = false;

  bool complete() const {
    return std::ranges::all_of(queues, [&](const std::shared_ptr<Queue>& queue) {
      return queue != nullptr && !queue->commands.empty() && queue->commands.front().meeting == this;
    });
  }
};

struct Group {
  struct Calls {
    std::deque<std::shared_ptr<Meeting>> open;
    int64_t first = 0;  // the number of the first open one
  };
  struct Part {
    std::vector<int> members;
    std::shared_ptr<Group> group;
  };

  // Under the lock of the engine. What has not taken place will not.
  void abort(const Status& why) {
    if (!status.ok()) return;
    status = why.ok() ? error(Code::cancelled, "the group ", name, " was aborted") : why;
    for (auto& [part_name, part] : parts) part.group->abort(why);
    engine->changed.notify_all();
  }

  std::shared_ptr<Engine> engine;
  std::shared_ptr<Memory> memory;
  std::string name;
  int size = 0;
  Calls together;
  std::map<std::pair<int, int>, Calls> pairs;  // from a rank to another
  std::map<std::string, Part> parts;
  Status status;
};

void carry_out(Memory& memory, const Meeting& meeting) {
  const Collective& first = meeting.calls[0];
  const int size = static_cast<int>(meeting.calls.size());
  const int64_t bytes = first.bytes();
  std::vector<const void*> sources;
  std::vector<void*> targets;
  for (const Collective& call : meeting.calls) {
    sources.push_back(memory.real(call.source));
    targets.push_back(memory.real(call.target));
  }
  const auto source = [&](int rank, int64_t segment) {
    return static_cast<const char*>(sources[static_cast<size_t>(rank)]) + segment * bytes;
  };
  const auto move = [&](int to, int64_t segment, const void* from) {
    if (bytes > 0)
      std::memmove(static_cast<char*>(targets[static_cast<size_t>(to)]) + segment * bytes, from,
                   static_cast<size_t>(bytes));
  };
  switch (first.kind) {
    case Kind::all_reduce:
      cpu::reduce_ranks(sources, targets, 0, first.count, first.dtype, first.reduction);
      break;
    case Kind::reduce_scatter:
      for (int r = 0; r < size; ++r) {
        std::vector<const void*> segments;
        for (int p = 0; p < size; ++p) segments.push_back(source(p, r));
        void* const target[] = {targets[static_cast<size_t>(r)]};
        cpu::reduce_ranks(segments, target, 0, first.count, first.dtype, first.reduction);
      }
      break;
    case Kind::all_gather:
    case Kind::all_to_all:
      for (int r = 0; r < size; ++r)
        for (int p = 0; p < size; ++p) move(r, p, source(p, first.kind == Kind::all_to_all ? r : 0));
      break;
    case Kind::broadcast:
      for (int r = 0; r < size; ++r)
        if (r != first.peer) move(r, 0, source(first.peer, 0));
      break;
    case Kind::send:
    case Kind::receive:
      move(1, 0, source(0, 0));
      break;
    case Kind::barrier:
      break;
  }
}

class FarCommunicator final : public Communicator {
 public:
  FarCommunicator(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
  ~FarCommunicator() override {
    std::lock_guard lock(group_->engine->mutex);
    group_->abort(error(Code::peer_failed, "rank ", rank_, " of ", group_->size, " left the group ", group_->name));
  }
  const std::string& group() const override { return group_->name; }
  int rank() const override { return rank_; }
  int size() const override { return group_->size; }

  Status run(Stream& stream, const Collective& call) override {
    Group& group = *group_;
    std::lock_guard lock(group.engine->mutex);
    if (!group.status.ok()) return group.status;
    Status fits = check_collective(call, rank_, size());
    if (fits.ok() && call.reduces() && !cpu::can_reduce(call.dtype))
      fits = invalid("rank ", rank_, " called ", call.text(), ", a type that cannot be reduced");
    if (!fits.ok()) {
      group.abort(fits);
      return fits;
    }
    const bool sends = call.kind == Kind::send;
    const std::pair<int, int> pair = sends ? std::pair(rank_, call.peer) : std::pair(call.peer, rank_);
    Group::Calls& calls = call.between_two() ? group.pairs[pair] : group.together;
    int64_t& made = call.between_two() ? made_in_pairs_[pair] : made_;
    const size_t seats = call.between_two() ? 2 : static_cast<size_t>(group.size);
    const size_t seat = !call.between_two() ? static_cast<size_t>(rank_) : sends ? 0 : 1;
    const auto at = static_cast<size_t>(made++ - calls.first);
    if (at == calls.open.size()) {
      auto made_now = std::make_shared<Meeting>();
      made_now->calls.resize(seats);
      made_now->queues.resize(seats);
      calls.open.push_back(std::move(made_now));
    }
    std::shared_ptr<Meeting> meeting = calls.open[at];
    for (size_t other = 0; other < seats; ++other) {
      if (meeting->queues[other] == nullptr || agree(meeting->calls[other], call)) continue;
      const auto rank_of = [&](size_t of) {
        return !call.between_two() ? static_cast<int>(of) : of == 0 ? pair.first : pair.second;
      };
      group.abort(error(Code::misuse, "ranks of group ", group.name, " disagree at call ", made, ": rank ", rank_,
                        " calls ", call.text(), ", rank ", rank_of(other), " calls ", meeting->calls[other].text()));
      return group.status;
    }
    const std::shared_ptr<Queue> queue = dynamic_cast<QueueOwner&>(stream).queue();
    meeting->calls[seat] = call;
    meeting->queues[seat] = queue;
    if (std::ranges::count(meeting->queues, nullptr) == 0) {  // only the oldest call can be complete
      calls.open.pop_front();
      ++calls.first;
    }
    group.engine->issue_locked(
        *queue, {.ready = [g = group_, meeting] { return meeting->done || !g->status.ok() || meeting->complete(); },
                 .run =
                     [g = group_, meeting] {
                       if (meeting->done) return Status();
                       if (!g->status.ok()) return g->status;
                       carry_out(*g->memory, *meeting);
                       meeting->done = true;
                       return Status();
                     },
                 .meeting = meeting.get()});
    return {};
  }

  Result<std::unique_ptr<Communicator>> split(const std::string& name, std::span<const int> members) override {
    EPL_TRY(check_members(*this, name, members));
    std::lock_guard lock(group_->engine->mutex);
    if (!group_->status.ok()) return group_->status;
    Group::Part& part = group_->parts[name];
    if (!part.group) {
      part = {{members.begin(), members.end()}, std::make_shared<Group>()};
      part.group->engine = group_->engine;
      part.group->memory = group_->memory;
      part.group->name = name;
      part.group->size = static_cast<int>(members.size());
    }
    if (!std::ranges::equal(part.members, members))
      return error(Code::misuse, "group ", group_->name, " has a group ", name, " of other members");
    return std::unique_ptr<Communicator>(
        new FarCommunicator(part.group, static_cast<int>(std::ranges::find(members, rank_) - members.begin())));
  }

  void abort(const Status& status) override {
    std::lock_guard lock(group_->engine->mutex);
    group_->abort(status);
  }

 private:
  std::shared_ptr<Group> group_;
  const int rank_;
  int64_t made_ = 0;
  std::map<std::pair<int, int>, int64_t> made_in_pairs_;
};

}  // namespace

Result<std::vector<std::unique_ptr<Communicator>>> create_group(std::shared_ptr<Engine> engine,
                                                                std::shared_ptr<Memory> memory, const std::string& name,
                                                                int ranks) {
  if (ranks < 1) return invalid("a group of ", ranks, " ranks; it needs at least one");
  auto group = std::make_shared<Group>();
  group->engine = std::move(engine);
  group->memory = std::move(memory);
  group->name = name;
  group->size = ranks;
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int r = 0; r < ranks; ++r) communicators.push_back(std::make_unique<FarCommunicator>(group, r));
  return communicators;
}

}  // namespace epl::far
