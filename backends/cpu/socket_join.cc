#include "backends/cpu/socket_join.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <system_error>

#include "backends/cpu/process_communicator.h"

namespace epl::cpu {
namespace {

constexpr std::string_view protocol =
    "epl sockets 2";              // what is said at the rendezvous and in frames; raised when either changes
constexpr int hello_seconds = 5;  // for who connects to say who it is

// The first bytes of a connection.
struct Hello {
  uint64_t token = 0;  // of the rank that listens
  int64_t rank = 0;    // that connects
};

// What a rank says of itself, as lines; the job is the rest.
struct Card {
  int size = 0, port = 0;
  uint64_t token = 0;
  SharedAddress offer;  // without a file: it shares nothing
  std::string host;     // that the offer is of
  std::string job;
};

std::string card_text(const Card& card) {
  return cat(protocol, "\n", card.size, "\n", card.port, "\n", card.token, "\n", card.offer.process, "\n",
             card.offer.file, "\n", card.offer.token, "\n", card.offer.bytes, "\n", card.host, "\n", card.job);
}

std::string who(const Joining& joining, int rank) { return cat("rank ", rank, " of group ", joining.group); }
std::string own(const Joining& joining) {
  return cat("rank ", joining.rank, " of ", joining.size, " joins group ", joining.group);
}

template <class T> bool take_line(std::string_view& text, T& value) {
  const size_t end = std::min(text.find('\n'), text.size());
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + end, value);
  const bool well = failure == std::errc() && stop == text.data() + end && end < text.size();
  text.remove_prefix(std::min(end + 1, text.size()));
  return well;
}

Result<Card> read_card(const Joining& joining, int rank, std::string_view text) {
  const std::string_view theirs = text.substr(0, text.find('\n'));
  if (theirs != protocol) {
    return invalid(own(joining), "; ", who(joining, rank), " is of another version of this library: it speaks ",
                   quoted(excerpt(theirs, 40)), ", this one ", quoted(protocol));
  }
  text.remove_prefix(std::min(theirs.size() + 1, text.size()));
  Card card;
  if (!take_line(text, card.size) || !take_line(text, card.port) || !take_line(text, card.token) ||
      !take_line(text, card.offer.process) || !take_line(text, card.offer.file) || !take_line(text, card.offer.token) ||
      !take_line(text, card.offer.bytes) || text.find('\n') == std::string_view::npos) {
    return invalid(own(joining), "; what ", who(joining, rank), " says at the rendezvous cannot be read");
  }
  card.host = text.substr(0, text.find('\n'));
  card.job = text.substr(card.host.size() + 1);
  if (card.size != joining.size)
    return invalid(own(joining), "; ", who(joining, rank), " says that there are ", card.size, " ranks");
  if (card.job != joining.job) {
    return invalid(own(joining), "; ", who(joining, rank), " does not do the same job: here it is ",
                   quoted(excerpt(joining.job, 200)), ", there ", quoted(excerpt(card.job, 200)));
  }
  return card;
}

std::string key_of(const Joining& joining, int rank) { return cat(joining.group, "/rank ", rank); }

Status failed(const Joining& joining, std::string_view doing, int error_number) {
  return error(Code::io, own(joining), ": ", doing, ": ", std::generic_category().message(error_number));
}

std::string named(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += cat(i == 0 ? "" : ", ", ranks[i]);
  return text;
}

// What the others say; an error names all who have said nothing.
Result<std::vector<Card>> read_cards(const Joining& joining, Rendezvous& rendezvous) {
  std::vector<Card> cards(static_cast<size_t>(joining.size));
  std::vector<int> missing;
  for (int r = 0; r < joining.size; ++r) {
    if (r == joining.rank) continue;
    auto text = rendezvous.get_text(key_of(joining, r), missing.empty() ? joining.join_seconds : 0);
    if (text.ok()) {
      EPL_ASSIGN(cards[static_cast<size_t>(r)], read_card(joining, r, *text));
    } else if (text.status().code() == Code::deadline_exceeded) {
      missing.push_back(r);
    } else {
      return text.status().with_context(own(joining));
    }
  }
  if (missing.empty()) return cards;
  return error(Code::deadline_exceeded, own(joining), "; after ", joining.join_seconds, " s ", named(missing),
               missing.size() == 1 ? " has" : " have", " not come (", quoted(key_of(joining, missing.front())),
               " is not at the rendezvous)");
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

Result<Descriptor> listen_for_peers(const Joining& joining, int& port) {
  Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (!listener.open() || ::bind(listener.number(), any, length) != 0 ||
      ::listen(listener.number(), joining.size) != 0 || ::getsockname(listener.number(), any, &length) != 0) {
    return failed(joining, "it cannot listen on 127.0.0.1", errno);
  }
  port = ntohs(address.sin_port);
  return listener;
}

Result<Descriptor> connect_to(const Joining& joining, int rank, const Card& card) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(card.port);
  const Hello hello{card.token, joining.rank};
  int outcome = -1;
  if (socket.open()) {
    while ((outcome = ::connect(socket.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address)) != 0 &&
           errno == EINTR) {
    }
  }
  if (outcome != 0 ||
      ::send(socket.number(), &hello, sizeof hello, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello)) {
    return error(Code::peer_failed, own(joining), "; ", who(joining, rank),
                 " cannot be reached at 127.0.0.1:", card.port, ": ", std::generic_category().message(errno),
                 "; its process may have ended");
  }
  return socket;
}

// The rank that a new connection says it is, -1 for a stranger.
int read_hello(const Joining& joining, const Descriptor& socket, uint64_t token) {
  const timeval limit{.tv_sec = hello_seconds, .tv_usec = 0};
  ::setsockopt(socket.number(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  Hello hello;
  if (::recv(socket.number(), &hello, sizeof hello, MSG_WAITALL) != static_cast<ssize_t>(sizeof hello)) return -1;
  return hello.token == token && hello.rank > joining.rank && hello.rank < joining.size ? static_cast<int>(hello.rank)
                                                                                        : -1;
}

// Takes the connections of all ranks behind this one.
Status accept_peers(const Joining& joining, const Descriptor& listener, uint64_t token,
                    std::vector<Descriptor>& sockets) {
  for (;;) {
    std::vector<int> missing;
    for (int r = joining.rank + 1; r < joining.size; ++r) {
      if (!sockets[static_cast<size_t>(r)].open()) missing.push_back(r);
    }
    if (missing.empty()) return {};
    pollfd waiting{.fd = listener.number(), .events = POLLIN, .revents = 0};
    const double milliseconds = std::clamp(joining.join_seconds * 1e3, 0.0, 1e9);
    const int ready = ::poll(&waiting, 1, static_cast<int>(milliseconds));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return failed(joining, "it cannot wait for connections", errno);
    if (ready == 0) {
      return error(Code::deadline_exceeded, own(joining), "; after ", joining.join_seconds, " s ", named(missing),
                   " said where to be found, but did not connect; the process may have ended");
    }
    Descriptor socket(::accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.open() && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
      return failed(joining, "it cannot take a connection", errno);
    }
    const int rank = socket.open() ? read_hello(joining, socket, token) : -1;
    if (rank >= 0 && !sockets[static_cast<size_t>(rank)].open()) sockets[static_cast<size_t>(rank)] = std::move(socket);
  }
}

Status prepare(const Joining& joining, const Descriptor& socket) {
  const int on = 1;
  const int flags = ::fcntl(socket.number(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.number(), F_SETFL, flags | O_NONBLOCK) != 0 ||
      ::setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
    return failed(joining, "it cannot set up a connection", errno);
  }
  return {};
}

}  // namespace

Result<MetPeers> meet_peers(const Joining& joining, const SharedAddress& offer, Rendezvous& rendezvous) {
  if (joining.group.empty()) return invalid("a group needs a name");
  if (joining.size < 1 || joining.size > max_process_ranks) {
    return invalid("group ", joining.group, " of ", joining.size, " ranks; over processes there are 1 to ",
                   max_process_ranks);
  }
  if (joining.rank < 0 || joining.rank >= joining.size)
    return invalid("rank ", joining.rank, " of ", joining.size, " joins group ", joining.group);
  if (!(joining.join_seconds >= 0) || !(joining.silence_seconds > 0)) {
    return invalid(own(joining), " and waits ", joining.join_seconds, " s for its peers to come and ",
                   joining.silence_seconds, " s for what they say");
  }
  MetPeers met;
  std::vector<Descriptor>& sockets = met.sockets;
  sockets.resize(static_cast<size_t>(joining.size));
  Card card{.size = joining.size, .offer = offer, .host = host_identity(), .job = joining.job};
  if (card.host.empty()) card.offer = {};
  EPL_ASSIGN(const Descriptor listener, listen_for_peers(joining, card.port));
  if (::getrandom(&card.token, sizeof card.token, 0) != static_cast<ssize_t>(sizeof card.token)) {
    return failed(joining, "the system gives no random number", errno);
  }
  if (Status status = rendezvous.put_text(key_of(joining, joining.rank), card_text(card)); !status.ok())
    return status.with_context(own(joining));
  EPL_ASSIGN(const std::vector<Card> cards, read_cards(joining, rendezvous));
  for (int r = 0; r < joining.rank; ++r) {
    EPL_ASSIGN(sockets[static_cast<size_t>(r)], connect_to(joining, r, cards[static_cast<size_t>(r)]));
  }
  EPL_TRY(accept_peers(joining, listener, card.token, sockets));
  for (const Descriptor& socket : sockets) {
    if (socket.open()) EPL_TRY(prepare(joining, socket));
  }
  for (int r = 0; r < joining.size; ++r) {
    const Card& peer = r == joining.rank ? card : cards[static_cast<size_t>(r)];
    met.offers.push_back(peer.host == card.host ? peer.offer : SharedAddress());
  }
  return met;
}

}  // namespace epl::cpu
