// How the frames of connections go over their sockets: those that a call sends, and what the thread reads and writes.
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/net/connections.h"
#include "core/net/tcp.h"

namespace epl::net {
namespace {

constexpr size_t max_read = 1 << 20;  // at once from one peer, so that the others get their turn
constexpr size_t max_body = size_t{1} << 40;
constexpr size_t max_spare = 64;
constexpr int drain_milliseconds = 2000;  // for peers that stopped reading, before what is left is dropped

constexpr std::string_view unsigned_text =
    "what it sends is not signed as it should be: it was changed, repeated or left out on its way";

std::string reason(int error_number) { return std::generic_category().message(error_number); }

}  // namespace

void Connections::send(int peer, FrameHead head, const void* body) {
  std::lock_guard lock(mutex_);
  send_locked(peer, head, body);
}

void Connections::send_locked(int rank, const FrameHead& head, const void* body) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (!peer.socket.open()) return;
  FrameTag tags[2];
  iovec parts[4];
  size_t count = 0;
  const auto add = [&](const void* bytes, size_t size) { parts[count++] = {const_cast<void*>(bytes), size}; };
  add(&head, sizeof head);
  if (peer.sends) {
    tags[0] = peer.sends->of_head(bytes_of(head));
    add(&tags[0], sizeof tags[0]);
  }
  if (head.bytes > 0) add(body, static_cast<size_t>(head.bytes));
  if (head.bytes > 0 && peer.sends) {
    tags[1] = peer.sends->of_body({static_cast<const char*>(body), static_cast<size_t>(head.bytes)});
    add(&tags[1], sizeof tags[1]);
  }
  size_t taken = 0;
  if (peer.pending.empty()) {
    const msghdr message{.msg_iov = parts, .msg_iovlen = count};
    ssize_t wrote = 0;
    while ((wrote = ::sendmsg(peer.socket.number(), &message, MSG_DONTWAIT | MSG_NOSIGNAL)) < 0 && errno == EINTR) {
    }
    // The reading thread sees what is wrong with the connection, after it has read what came before.
    taken = wrote > 0 ? static_cast<size_t>(wrote) : 0;
  }
  for (const iovec& part : std::span(parts, count)) {
    const size_t skipped = std::min(taken, part.iov_len);
    taken -= skipped;
    const auto* from = static_cast<const std::byte*>(part.iov_base);
    peer.pending.insert(peer.pending.end(), from + skipped, from + part.iov_len);
  }
  if (!peer.pending.empty()) static_cast<void>(::eventfd_write(wake_.number(), 1));
}

void Connections::use_again(Message message) {
  std::lock_guard lock(mutex_);
  if (message.room > 0 && spare_.size() < max_spare) spare_.push_back(std::move(message));
}

Message Connections::make_room(const FrameHead& head) {
  std::lock_guard lock(mutex_);
  return room_for(head);
}

Message Connections::room_for(const FrameHead& head) {
  Message made;
  // The smallest that is large enough.
  auto best = spare_.end();
  for (auto one = spare_.begin(); one != spare_.end(); ++one) {
    if (one->room >= head.bytes && (best == spare_.end() || one->room < best->room)) best = one;
  }
  if (head.bytes > 0 && best != spare_.end()) {
    made = std::move(*best);
    spare_.erase(best);
  } else if (head.bytes > 0) {
    made.body = std::make_unique_for_overwrite<std::byte[]>(head.bytes);
    made.room = head.bytes;
  }
  made.head = head;
  return made;
}

void Connections::write_pending(Peer& peer) {
  while (peer.written < peer.pending.size()) {
    const ssize_t wrote = ::send(peer.socket.number(), peer.pending.data() + peer.written,
                                 peer.pending.size() - peer.written, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) break;  // there is no room, or read_some will see what is wrong
    peer.written += static_cast<size_t>(wrote);
  }
  // What is written goes when nothing is left or it is half of all, so that memory neither grows nor is moved for every
  // frame.
  if (peer.written * 2 < peer.pending.size()) return;
  peer.pending.erase(peer.pending.begin(), peer.pending.begin() + static_cast<std::ptrdiff_t>(peer.written));
  peer.written = 0;
}

// Where the next bytes of a frame belong; empty when it is complete.
std::span<std::byte> Connections::next_to_read(Peer& peer) const {
  const size_t tag = peer.receives ? sizeof(FrameTag) : 0, body = peer.incoming.head.bytes;
  size_t begin = 0;
  // A part of the frame that begins at `begin`, if that is where reading stands.
  const auto rest_of = [&](void* part, size_t size) {
    const size_t done = std::min(peer.read - std::min(peer.read, begin), size);
    begin += size;
    return std::span(static_cast<std::byte*>(part) + done, size - done);
  };
  std::span<std::byte> rest = rest_of(&peer.incoming.head, sizeof peer.incoming.head);
  if (rest.empty()) rest = rest_of(&peer.head_tag, tag);
  if (rest.empty() && body > 0) rest = rest_of(peer.incoming.body.get(), body);
  if (rest.empty() && body > 0) rest = rest_of(&peer.body_tag, tag);
  return rest;
}

// A head has come, which is looked at before there is room for the body that it announces. Empty: it is well.
std::string Connections::begin_body(Peer& peer) {
  const FrameHead head = peer.incoming.head;
  if (peer.receives && !same_digest(peer.receives->of_head(bytes_of(head)), peer.head_tag))
    return std::string(unsigned_text);
  const bool well = head.mark == FrameHead::right_mark && head.type <= FrameHead::Type::leave &&
                    head.bytes <= max_body && head.kind <= Collective::Kind::barrier &&
                    head.reduction <= Reduction::min && static_cast<int>(head.dtype) < dtype_count;
  if (!well) return "what it sends makes no sense";
  peer.incoming = room_for(head);
  return "";
}

std::string Connections::end_body(Peer& peer) const {
  const std::string_view body(reinterpret_cast<const char*>(peer.incoming.data()), peer.incoming.head.bytes);
  const bool well = !peer.receives || body.empty() || same_digest(peer.receives->of_body(body), peer.body_tag);
  return well ? "" : std::string(unsigned_text);
}

void Connections::read_some(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  const size_t head_end = sizeof(FrameHead) + (peer.receives ? sizeof(FrameTag) : 0);
  for (size_t budget = max_read; budget > 0;) {
    const std::span<std::byte> to = next_to_read(peer);
    const ssize_t got = ::recv(peer.socket.number(), to.data(), std::min(to.size(), budget), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {
      return lose(rank, cat("its connection has ended", got < 0 ? cat(" (", reason(errno), ")") : "",
                            ", and with it probably its process"));
    }
    peer.read += static_cast<size_t>(got);
    budget -= static_cast<size_t>(got);
    if (peer.read == head_end) {
      if (std::string why = begin_body(peer); !why.empty()) return lose(rank, std::move(why));
    }
    if (peer.read < head_end || !next_to_read(peer).empty()) continue;
    if (std::string why = end_body(peer); !why.empty()) return lose(rank, std::move(why));
    peer.read = 0;
    take(rank, std::exchange(peer.incoming, {}));
  }
}

// Waits until some peer can be read from or written to and does so; false when there is nothing more to do.
bool Connections::wait_for_sockets() {
  bool closing = false, unwritten = false;
  waiting_.clear();
  {
    std::lock_guard lock(mutex_);
    closing = closing_;
    for (const Peer& peer : peers_) {
      const bool writes = !peer.pending.empty();
      unwritten |= writes;
      const int events = writes ? POLLIN | POLLOUT : POLLIN;
      waiting_.push_back({.fd = peer.socket.number(), .events = static_cast<short>(events), .revents = 0});
    }
  }
  if (closing && !unwritten) return false;
  waiting_.push_back({.fd = wake_.number(), .events = POLLIN, .revents = 0});
  const int ready = ::poll(waiting_.data(), waiting_.size(), closing ? drain_milliseconds : -1);
  if (ready < 0) return errno == EINTR;
  if (ready == 0) return false;
  eventfd_t ignored = 0;
  if (waiting_.back().revents != 0) static_cast<void>(::eventfd_read(wake_.number(), &ignored));
  std::lock_guard lock(mutex_);
  for (size_t r = 0; r < peers_.size(); ++r) {
    if (!peers_[r].socket.open() || waiting_[r].revents == 0) continue;
    if (waiting_[r].revents & POLLOUT) write_pending(peers_[r]);
    if (waiting_[r].revents & ~POLLOUT) read_some(static_cast<int>(r));
  }
  return true;
}

void Connections::serve() {
  for (bool more = true; more;) {
    try {
      more = wait_for_sockets();
    } catch (const std::bad_alloc&) {
      std::lock_guard lock(mutex_);
      for (size_t r = 0; r < peers_.size(); ++r) {
        if (peers_[r].socket.open()) lose(static_cast<int>(r), "there is no memory for what it sends");
      }
      return;
    }
  }
}

}  // namespace epl::net
