// How the ranks of a group get connected. Each says at the rendezvous where it listens and what it is, and compares
// that with what the others say. Then it connects to the ranks before it, and those behind it connect to it.
#pragma once

#include <vector>

#include "core/backend/device.h"
#include "core/net/connections.h"
#include "core/net/shared_memory.h"

namespace epl::net {

// What a rank says of itself.
struct Card {
  int size = 0;
  std::string address;  // where it listens
  int port = 0;
  std::string drawn;    // by chance: who connects must have read it
  SharedAddress offer;  // without a file: it shares nothing
  std::string host;     // that the offer is of
  std::string job;
};
// As it lies at the rendezvous, where each rank has its own key.
std::string card_key(const std::string& group, int rank);
std::string card_text(const Joining& joining, int rank, const Card& card);
// What both ends of a connection to the rank with this card mean.
std::string card_subject(const Joining& joining, int rank, const Card& card);

struct FoundPeers {
  std::vector<Link> links;            // connected, by rank, none for this one; their sockets do not block
  std::vector<SharedAddress> offers;  // memory that shows who can share; without a file from other hosts
};
// `offer` is this rank's.
Result<FoundPeers> find_peers(const Joining& joining, const SharedAddress& offer, Rendezvous& rendezvous,
                              const std::function<double()>& clock);

}  // namespace epl::net
