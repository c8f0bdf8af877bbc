#include "core/net/process_communicator.h"

#include <algorithm>
#include <cstring>

#include "core/backend/job_call.h"
#include "core/net/socket_join.h"
#include "core/net/transport.h"

namespace epl::net {

bool Neighbours::share(const std::vector<int>& members) const {
  return members.size() > 1 && std::ranges::all_of(members, [&](int a) {
           return std::ranges::all_of(members, [&](int b) {
             const std::vector<char>& row = rows_[static_cast<size_t>(a)];
             return a == b || (static_cast<size_t>(b) < row.size() && row[static_cast<size_t>(b)] != 0);
           });
         });
}

std::string missing_text(const Ties& ties, const Connections::Group& group, int member) {
  const std::string text = cat("rank ", member, " of ", group.members.size(), " is missing");
  const Connections::Group& root = ties.links->root();
  return &group == &root ? text
                         : cat(text, " (rank ", group.members[static_cast<size_t>(member)], " of ", root.name, ")");
}

Result<std::unique_ptr<Communicator>> create_process_communicator(const Ties& ties, Connections::Group& group,
                                                                  int rank) {
  if (ties.neighbours->share(group.members)) return ties.makers.shared(ties, group, rank);
  return ties.makers.sockets(ties, group, rank);
}

Status told_to_others(const Connections::Group& group, int member, const Status& status) {
  Code code = status.code();
  if (code == Code::cancelled || code == Code::deadline_exceeded) code = Code::peer_failed;
  const bool own = code != status.code() || code == Code::out_of_memory || code == Code::exhausted || code == Code::io;
  if (!own || status.rank() >= 0) return status;
  try {
    return Status(code, cat("rank ", member, " of group ", group.name, ": ", status.message()), status.where())
        .of_rank(group.members[static_cast<size_t>(member)]);
  } catch (const std::bad_alloc&) {  // then there is less to say
    return status;
  }
}

Result<std::unique_ptr<Communicator>> split_process_group(const Ties& ties, const Communicator& communicator,
                                                          Connections::Group& group, const std::string& name,
                                                          std::span<const int> members) {
  EPL_TRY(check_members(communicator, name, members));
  std::vector<int> joined;
  for (const int member : members) joined.push_back(group.members[static_cast<size_t>(member)]);
  EPL_ASSIGN(Connections::Group * child, ties.links->split(group, name, std::move(joined)));
  const auto own = static_cast<int>(std::ranges::find(members, communicator.rank()) - members.begin());
  return create_process_communicator(ties, *child, own);
}

namespace {

// Each rank that has memory to share tells the others that have which of theirs it can open.
Result<std::shared_ptr<const Neighbours>> find_neighbours(const Joining& joining, Connections& links,
                                                          const std::vector<SharedAddress>& offers) {
  const auto size = static_cast<size_t>(joining.size), own = static_cast<size_t>(joining.rank);
  std::vector<std::vector<char>> rows(size);
  if (offers[own].file < 0) return std::make_shared<const Neighbours>(std::move(rows));
  rows[own].resize(size);
  for (size_t r = 0; r < size; ++r) rows[own][r] = r != own && can_open(offers[r]) ? 1 : 0;
  const auto each_peer = [&](const auto& f) -> Status {
    for (size_t r = 0; r < size; ++r) {
      if (r != own && offers[r].file >= 0) EPL_TRY(f(r));
    }
    return {};
  };
  EPL_TRY(each_peer([&](size_t r) -> Status {
    links.send(static_cast<int>(r), {.type = FrameHead::Type::row, .group = links.root().id, .call = 0, .bytes = size},
               rows[own].data());
    return {};
  }));
  EPL_TRY(each_peer([&](size_t r) -> Status {
    EPL_ASSIGN(const Message message, links.receive(links.root(), static_cast<int>(r), FrameHead::Type::row, 0));
    const auto* said = reinterpret_cast<const char*>(message.data());
    rows[r].assign(said, said + message.head.bytes);
    return {};
  }));
  return std::make_shared<const Neighbours>(std::move(rows));
}

}  // namespace

Result<std::unique_ptr<Communicator>> join_processes(const GroupMakers& makers, const Joining& given,
                                                     Rendezvous& rendezvous, const std::function<double()>& clock,
                                                     const std::string& packs) {
  EPL_ASSIGN(const Transport transport, parse_transport(given.transport));
  Joining joining = given;
  joining.job = told_line("transport", transport.text()) + given.job;
  // A try: where it fails, or peers cannot open it, ranks use their sockets.
  std::unique_ptr<SharedMemory> offer;
  if (transport.shares && joining.size > 1) {
    auto made = SharedMemory::create(0);
    if (made.ok()) offer = std::move(*made);
  }
  EPL_ASSIGN(FoundPeers found, find_peers(joining, offer ? offer->address() : SharedAddress(), rendezvous, clock));
  Ties ties;
  ties.makers = makers;
  ties.signs = joining.signs_frames;
  EPL_ASSIGN(ties.links, Connections::create(joining.group, joining.rank, std::move(found.links), joining.signs_frames,
                                             joining.silence_seconds, clock));
  ties.links->watch([stop = joining.stop] { return stop.check(); });
  EPL_ASSIGN(ties.neighbours, find_neighbours(joining, *ties.links, found.offers));
  ties.links->watch(nullptr);
  if (!transport.carrier.empty() && joining.size > 1) {
    EPL_ASSIGN(ties.carrier, Carrier::join(transport.carrier, packs, joining, rendezvous));
  }
  return create_process_communicator(ties, ties.links->root(), joining.rank);
}

}  // namespace epl::net
