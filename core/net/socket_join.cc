#include "core/net/socket_join.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <list>
#include <system_error>

#include "core/backend/job_call.h"
#include "core/base/shown.h"
#include "core/net/handshake.h"
#include "core/net/process_communicator.h"
#include "core/net/rendezvous.h"

namespace epl::net {
namespace {

// What is said at the rendezvous and in frames; raised when either changes.
constexpr std::string_view protocol = "epl sockets 7";
constexpr size_t max_guests = 256;  // whom nobody knows yet; of more the first one goes

std::string who(const Joining& joining, int rank) { return cat("rank ", rank, " of group ", joining.group); }
std::string own(const Joining& joining) {
  return cat("rank ", joining.rank, " of ", joining.size, " joins group ", joining.group);
}

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}
template <class T> bool take_number(std::string_view& text, T& value) {
  const std::string_view line = take_line(text);
  const auto [stop, failure] = std::from_chars(line.data(), line.data() + line.size(), value);
  return failure == std::errc() && stop == line.data() + line.size();
}

std::string signed_lines(const Joining& joining, int rank, std::string_view lines) {
  return digest_text(hmac_sha256(joining.secret.view(), cat(protocol, "\n", joining.group, "\n", rank, "\n", lines)));
}

// What stands in place of the card of a rank that cannot come any more: nobody waits for it, or nobody waits any more.
constexpr std::string_view notice = "epl sockets: nobody comes", too_late = "epl sockets: too late";

Status put_notice(const Joining& joining, Rendezvous& rendezvous, std::string_view kind, int rank,
                  std::string_view text) {
  const std::string said = cat(kind, "\n", signed_lines(joining, rank, text), "\n", text);
  return rendezvous.put_text(card_key(joining.group, rank), said, joining.stop);
}

Status read_notice(const Joining& joining, int rank, std::string_view kind, std::string_view text) {
  const std::string_view signature = take_line(text);
  if (signature != signed_lines(joining, rank, text)) {
    return invalid(own(joining), "; ", who(joining, rank),
                   " is refused by a process that has not the secret of this rank");
  }
  return error(kind == too_late ? Code::deadline_exceeded : Code::invalid_argument, own(joining), "; ", text);
}

// This rank's name at the rendezvous is taken: by those who have waited for it, or by another process. Then the
// processes that have come wait for another rank, which may be this one: they are told in its place.
Status tell_twice(const Joining& joining, Rendezvous& rendezvous, const std::string& why) {
  const auto there = rendezvous.get_text(card_key(joining.group, joining.rank), 0, joining.stop);
  if (std::string_view text = there.ok() ? std::string_view(*there) : ""; take_line(text) == too_late)
    return read_notice(joining, joining.rank, too_late, text);
  const std::string text = cat("another process has come as rank ", joining.rank, " too: ", why);
  for (int r = 0; r < joining.size; ++r) {
    if (r == joining.rank) continue;
    static_cast<void>(put_notice(joining, rendezvous, notice, r, text));
  }
  return invalid(own(joining), ": ", why);
}

Result<Card> read_card(const Joining& joining, int rank, std::string_view text) {
  const std::string_view theirs = take_line(text);
  if (theirs == notice || theirs == too_late) return read_notice(joining, rank, theirs, text);
  if (theirs != protocol) {
    return invalid(own(joining), "; ", who(joining, rank), " is of another version of this library: it speaks ",
                   shown(theirs, 40), ", this one ", quoted(protocol));
  }
  const std::string_view signature = take_line(text);
  if (signature != signed_lines(joining, rank, text)) {
    return invalid(own(joining), "; ", who(joining, rank), " has not the secret of this rank: one of them has ",
                   joining.secret.empty() ? "one and this rank has none" : "another or none");
  }
  Card card;
  bool well = take_number(text, card.size);
  card.address = take_line(text);
  well = well && take_number(text, card.port) && card.port > 0 && card.port <= 65535;
  card.drawn = take_line(text);
  well = well && take_number(text, card.offer.process) && take_number(text, card.offer.file) &&
         take_number(text, card.offer.token) && take_number(text, card.offer.bytes);
  card.host = take_line(text);
  if (!well || card.address.empty())
    return invalid(own(joining), "; what ", who(joining, rank), " says at the rendezvous cannot be read");
  card.job = text;
  if (card.size != joining.size)
    return invalid(own(joining), "; ", who(joining, rank), " says that there are ", card.size, " ranks");
  if (card.job != joining.job) {
    return invalid(own(joining), "; ", who(joining, rank),
                   " does not do the same job: ", line_difference(joining.job, card.job));
  }
  return card;
}

std::string named(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += cat(i == 0 ? "" : ", ", ranks[i]);
  return text;
}

void note_awaited(const Joining& joining, int rank) {
  if (joining.awaited != nullptr) joining.awaited->store(rank, std::memory_order_relaxed);
}

// What the others say; an error names all who have said nothing. Who comes later is told, and waits for nobody.
Result<std::vector<Card>> read_cards(const Joining& joining, Rendezvous& rendezvous, const Deadline& deadline) {
  std::vector<Card> cards(static_cast<size_t>(joining.size));
  std::vector<int> missing;
  for (int r = 0; r < joining.size; ++r) {
    if (r == joining.rank) continue;
    const std::string key = card_key(joining.group, r);
    note_awaited(joining, r);
    auto text = rendezvous.get_text(key, missing.empty() ? std::max(deadline.left(), 0.0) : 0, joining.stop);
    if (!text.ok()) EPL_TRY(joining.stop.check().with_context(own(joining)));
    if (text.ok()) {
      EPL_ASSIGN(cards[static_cast<size_t>(r)], read_card(joining, r, *text));
    } else if (text.status().code() == Code::deadline_exceeded) {
      missing.push_back(r);
    } else {
      return text.status().with_context(own(joining));
    }
  }
  if (missing.empty()) return cards;
  for (const int r : missing) {
    const std::string text = cat("too late: rank ", joining.rank, " has waited for ", joining.join_seconds, " s, and ",
                                 named(missing), missing.size() == 1 ? " has" : " have", " not come");
    static_cast<void>(put_notice(joining, rendezvous, too_late, r, text));
  }
  return error(Code::deadline_exceeded, own(joining), "; after ", joining.join_seconds, " s ", named(missing),
               missing.size() == 1 ? " has" : " have", " not come (", shown(card_key(joining.group, missing.front())),
               " is not at the rendezvous)");
}

// Of the end that connects, or of the one that listens. A key of each direction.
FrameKeys frame_keys(const Digest& key, bool connects) {
  const std::string_view bytes = bytes_of(key);
  const Digest there = hmac_sha256(bytes, "to who listens"), back = hmac_sha256(bytes, "to who connects");
  return connects ? FrameKeys{there, back} : FrameKeys{back, there};
}

Result<Link> reach(const Joining& joining, int rank, const Card& card, const Deadline& deadline) {
  note_awaited(joining, rank);
  const Endpoint at{card.address, card.port};
  auto socket = connect_within(at, deadline, false);
  Status status = socket.status();
  if (status.ok()) {
    const auto key = introduce(*socket, joining.secret, card_subject(joining, rank, card), joining.rank, deadline);
    if (key.ok()) return Link{std::move(*socket), frame_keys(*key, true)};
    status = key.status();
  }
  EPL_TRY(deadline.stopped());
  const bool far = !is_loopback(joining.address) && is_loopback(card.address);
  return Status(status.code(),
                cat(own(joining), "; ", who(joining, rank), " cannot be reached at ", at.text(), ": ", status.message(),
                    far ? "; this is an address of its own host alone, so that rank must be given another one"
                        : "; its process may have ended"))
      .of_rank(rank);
}

// Takes the connections of all ranks behind this one. Several guests may stand at the door at once: one who says
// nothing keeps nobody from coming in.
class Door {
 public:
  Door(const Joining& joining, const Descriptor& listener, const Card& card, std::vector<Link>& links)
      : joining_(joining), listener_(listener), about_(card_subject(joining, joining.rank, card)), links_(links) {}

  Status take_all(const Deadline& deadline) {
    for (std::vector<int> missing; !(missing = absent()).empty();) {
      note_awaited(joining_, missing.front());
      std::vector<pollfd> waiting = {{.fd = listener_.number(), .events = POLLIN, .revents = 0}};
      for (Guest& guest : guests_) waiting.push_back({.fd = guest.socket().number(), .events = POLLIN, .revents = 0});
      const int ready = ::poll(waiting.data(), waiting.size(), deadline.milliseconds());
      if (ready < 0 && errno != EINTR)
        return error(Code::io, own(joining_), ": it cannot wait: ", std::generic_category().message(errno));
      EPL_TRY(deadline.stopped());
      if (ready > 0) look(waiting);
      missing = absent();
      if (!missing.empty() && deadline.left() <= 0) {
        return error(Code::deadline_exceeded, own(joining_), "; after ", joining_.join_seconds, " s ", named(missing),
                     " said where to be found, but did not connect; the process may have ended", strangers());
      }
    }
    return {};
  }

 private:
  std::vector<int> absent() const {
    std::vector<int> missing;
    for (int r = joining_.rank + 1; r < joining_.size; ++r)
      if (!links_[static_cast<size_t>(r)].socket.open()) missing.push_back(r);
    return missing;
  }

  void look(const std::vector<pollfd>& waiting) {
    auto guest = guests_.begin();
    for (size_t i = 1; i < waiting.size(); ++i) {
      const bool stays = waiting[i].revents == 0 || !serve(*guest);
      guest = stays ? std::next(guest) : guests_.erase(guest);
    }
    if (waiting[0].revents == 0) return;
    auto socket = accept_next(listener_);
    if (!socket.ok()) return make_room();
    if (!socket->open()) return;
    if (guests_.size() == max_guests) guests_.pop_front();
    auto came = Guest::greet(std::move(*socket), joining_.secret, about_);
    if (came.ok()) guests_.push_back(std::move(*came));
  }

  // Where there are no more descriptors, the longest unknown goes; else it is tried again, until the deadline.
  void make_room() {
    constexpr int busy_milliseconds = 10;
    if (!guests_.empty()) guests_.pop_front();
    ::poll(nullptr, 0, busy_milliseconds);
  }

  // Whether the guest is done with.
  bool serve(Guest& guest) {
    const Guest::State state = guest.read();
    if (state == Guest::State::unknown) return false;
    const int64_t rank = guest.number();
    if (state == Guest::State::stranger || rank <= joining_.rank || rank >= joining_.size) {
      ++strangers_;
      stranger_ = guest.address();
      return true;
    }
    auto& [socket, keys] = links_[static_cast<size_t>(rank)];
    const Status told = guest.tell(socket.open() ? Verdict::already_here : Verdict::welcome);
    if (told.ok() && !socket.open()) {
      keys = frame_keys(guest.key(), false);
      socket = std::move(guest.socket());
    }
    return true;
  }

  std::string strangers() const {
    if (strangers_ == 0) return "";
    return cat("; ", strangers_, strangers_ == 1 ? " stranger" : " strangers",
               " without the secret of this group turned away, the last one from ", stranger_);
  }

  const Joining& joining_;
  const Descriptor& listener_;
  const std::string about_;
  std::vector<Link>& links_;
  std::list<Guest> guests_;
  int strangers_ = 0;
  std::string stranger_;
};

Status check(const Joining& joining) {
  if (joining.group.empty()) return invalid("a group needs a name");
  if (joining.size < 1 || joining.size > max_process_ranks) {
    return invalid("group ", joining.group, " of ", joining.size, " ranks; over processes there are 1 to ",
                   max_process_ranks);
  }
  if (joining.rank < 0 || joining.rank >= joining.size)
    return invalid("rank ", joining.rank, " of ", joining.size, " joins group ", joining.group);
  if (joining.signs_frames && joining.secret.empty())
    return invalid(own(joining), " and is to sign what it sends, which needs a secret");
  if (!(joining.join_seconds >= 0) || !(joining.silence_seconds > 0)) {
    return invalid(own(joining), " and waits ", joining.join_seconds, " s for its peers to come and ",
                   joining.silence_seconds, " s for what they say");
  }
  if (joining.address.empty() || joining.address.find('\n') != std::string::npos)
    return invalid(own(joining), " at address ", shown(joining.address));
  return {};
}

}  // namespace

std::string card_key(const std::string& group, int rank) { return cat(group, "/rank ", rank); }

std::string card_text(const Joining& joining, int rank, const Card& card) {
  const std::string lines =
      cat(card.size, "\n", card.address, "\n", card.port, "\n", card.drawn, "\n", card.offer.process, "\n",
          card.offer.file, "\n", card.offer.token, "\n", card.offer.bytes, "\n", card.host, "\n", card.job);
  return cat(protocol, "\n", signed_lines(joining, rank, lines), "\n", lines);
}

std::string card_subject(const Joining& joining, int rank, const Card& card) {
  return cat("rank ", rank, " of ", card.size, " of group ", joining.group, ", ", card.drawn);
}

Result<FoundPeers> find_peers(const Joining& joining, const SharedAddress& offer, Rendezvous& rendezvous,
                              const std::function<double()>& clock) {
  EPL_TRY(check(joining));
  const Deadline deadline(clock, joining.join_seconds, &joining.stop);
  FoundPeers found;
  std::vector<Link>& links = found.links;
  links.resize(static_cast<size_t>(joining.size));
  Endpoint at{joining.address, 0};
  auto listener = listen_at(at, std::max(joining.size, 16));
  if (!listener.ok()) return listener.status().with_context(own(joining));
  EPL_ASSIGN(const Digest drawn, draw());
  Card card{.size = joining.size,
            .address = at.host,
            .port = at.port,
            .drawn = digest_text(drawn),
            .offer = offer,
            .host = host_identity(),
            .job = joining.job};
  if (card.host.empty()) card.offer = {};
  const Status put =
      rendezvous.put_text(card_key(joining.group, joining.rank), card_text(joining, joining.rank, card), joining.stop);
  if (put.code() == Code::misuse) return tell_twice(joining, rendezvous, put.message());
  if (!put.ok()) return put.with_context(own(joining));
  EPL_ASSIGN(const std::vector<Card> cards, read_cards(joining, rendezvous, deadline));
  const Deadline connected(clock, joining.join_seconds, &joining.stop);  // all of them are there now
  for (int r = 0; r < joining.rank; ++r) {
    EPL_ASSIGN(links[static_cast<size_t>(r)], reach(joining, r, cards[static_cast<size_t>(r)], connected));
  }
  EPL_TRY(Door(joining, *listener, card, links).take_all(connected));
  for (int r = 0; r < joining.size; ++r) {
    const Card& peer = r == joining.rank ? card : cards[static_cast<size_t>(r)];
    found.offers.push_back(peer.host == card.host ? peer.offer : SharedAddress());
  }
  return found;
}

}  // namespace epl::net
