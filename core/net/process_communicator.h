// Ranks that are threads of several processes. They are connected by sockets; those of one host share memory as well,
// and a group whose members all do exchanges its operands there. Other groups use their sockets, or a carrier.
#pragma once

#include <memory>
#include <vector>

#include "core/backend/device.h"
#include "core/net/carrier.h"
#include "core/net/connections.h"

namespace epl::net {

inline constexpr int max_process_ranks = 256;  // each has a connection to each

// Which ranks of a job share memory with each other, the same on all of them.
class Neighbours {
 public:
  explicit Neighbours(std::vector<std::vector<char>> rows) : rows_(std::move(rows)) {}
  // Each of them with each.
  bool share(const std::vector<int>& members) const;

 private:
  std::vector<std::vector<char>> rows_;  // by rank: the ranks whose memory it can open
};

struct Ties;
// The communicators of a device: how its ranks reduce and move operands that came from other processes. `rank` is the
// number in the group.
struct GroupMakers {
  using Make = Result<std::unique_ptr<Communicator>> (*)(const Ties& ties, Connections::Group& group, int rank);
  Make shared = nullptr, sockets = nullptr;
};

// What the communicators of one rank have in common.
struct Ties {
  GroupMakers makers;
  std::shared_ptr<Connections> links;
  std::shared_ptr<const Neighbours> neighbours;
  std::shared_ptr<Carrier> carrier;  // null: sockets carry
  bool signs = false;                // frames, and so what is carried
};

// "rank 1 of 2 is missing (rank 5 of world)": a member by its rank in the group and in the one that was joined.
std::string missing_text(const Ties& ties, const Connections::Group& group, int member);

// What the other members hear of a call that has failed for this one: what only it can know says whose failure it is.
Status told_to_others(const Connections::Group& group, int member, const Status& status);

// A communicator of the group: over shared memory where all members share, else over sockets.
Result<std::unique_ptr<Communicator>> create_process_communicator(const Ties& ties, Connections::Group& group,
                                                                  int rank);
// A subgroup of the group, in which this rank has the number `own`.
Result<std::unique_ptr<Communicator>> split_process_group(const Ties& ties, const Communicator& communicator,
                                                          Connections::Group& group, const std::string& name,
                                                          std::span<const int> members);

// See Device::join. The rendezvous carries, for each rank, where it listens, a number that only its peers know, and
// what it says of itself, signed with the group's secret. Ranks of one host share memory where `joining.transport` and
// the system allow it. A carrier is a pack of the host's folder.
Result<std::unique_ptr<Communicator>> join_processes(const GroupMakers& makers, const Joining& joining,
                                                     Rendezvous& rendezvous, const std::function<double()>& clock,
                                                     const std::string& packs);

}  // namespace epl::net
