#include "tests/backend/far_group.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/reduce.h"
#include "core/backend/posted_group.h"

namespace epl::far {
namespace {

using Kind = Collective::Kind;

// One call that ranks make together: it takes place once all have come to it in their streams.
struct CollectiveCall {
  std::vector<Collective> calls;               // by rank of the group, or of sender and receiver
  std::vector<std::shared_ptr<Queue>> queues;  // null: it has not been called
  bool done = false;

  bool complete() const {
    return std::ranges::all_of(queues, [&](const std::shared_ptr<Queue>& queue) {
      return queue != nullptr && !queue->commands.empty() && queue->commands.front().collective == this;
    });
  }
};

struct Shared {
  std::mutex& lock() { return engine->mutex; }
  std::shared_ptr<Engine> engine;
  std::shared_ptr<Memory> memory;
};

void carry_out(Memory& memory, const CollectiveCall& collective) {
  const Collective& first = collective.calls[0];
  const int size = static_cast<int>(collective.calls.size());
  const int64_t bytes = first.bytes();
  std::vector<const void*> sources;
  std::vector<void*> targets;
  for (const Collective& call : collective.calls) {
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
    case Kind::dispatch:
    case Kind::combine:
      for (int r = 0; r < size; ++r) {
        Collective call = collective.calls[static_cast<size_t>(r)];
        call.owners = reinterpret_cast<const int64_t*>(memory.real(call.owners));
        for (int p = 0; p < size; ++p) {
          call.rows_between(p, r, size, [&](int64_t from, int64_t to, int64_t run) {
            std::memcpy(static_cast<char*>(targets[static_cast<size_t>(r)]) + to,
                        static_cast<const char*>(sources[static_cast<size_t>(p)]) + from, static_cast<size_t>(run));
          });
        }
      }
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

// How calls take place as commands of the streams.
struct FarWay {
  using Shared = far::Shared;
  using CollectiveCall = far::CollectiveCall;
  using Group = PostedGroup<FarWay>;

  static Status fits(int rank, const Collective& call) {
    if (!call.reduces() || cpu::can_reduce(call.dtype)) return {};
    return invalid("rank ", rank, " called ", call.text(), ", a type that cannot be reduced");
  }
  static std::shared_ptr<CollectiveCall> begin(Group&, const Collective&, std::span<const int> ranks) {
    auto collective = std::make_shared<CollectiveCall>();
    collective->calls.resize(ranks.size());
    collective->queues.resize(ranks.size());
    return collective;
  }
  static void join(const std::shared_ptr<Group>& group, const std::shared_ptr<CollectiveCall>& collective, int seat,
                   Stream& stream, const Collective& call) {
    const std::shared_ptr<Queue> queue = dynamic_cast<QueueOwner&>(stream).queue();
    collective->calls[static_cast<size_t>(seat)] = call;
    collective->queues[static_cast<size_t>(seat)] = queue;
    group->shared->engine->issue_locked(
        *queue,
        {.ready = [group, collective] { return collective->done || !group->status.ok() || collective->complete(); },
         .run =
             [group, collective] {
               if (collective->done) return Status();
               if (!group->status.ok()) return group->status;
               carry_out(*group->shared->memory, *collective);
               collective->done = true;
               return Status();
             },
         .collective = collective.get()});
  }
  // What has not taken place will not.
  static void abort(Group& group, const std::vector<std::shared_ptr<CollectiveCall>>&) {
    group.shared->engine->changed.notify_all();
  }
};

}  // namespace

Result<std::vector<std::unique_ptr<Communicator>>> create_group(std::shared_ptr<Engine> engine,
                                                                std::shared_ptr<Memory> memory, const std::string& name,
                                                                int ranks) {
  auto shared = std::make_shared<Shared>();
  shared->engine = std::move(engine);
  shared->memory = std::move(memory);
  return create_posted_group<FarWay>(std::move(shared), name, ranks);
}

}  // namespace epl::far
