#include "core/net/handshake.h"

#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace epl {
namespace {

constexpr std::array<char, 16> protocol = {"epl handshake 1"};

// What is signed: who speaks, what both mean, and all that was said before.
Digest signature_of(const Secret& secret, std::string_view speaker, std::string_view about, const Challenge& challenge,
                    const Answer& answer, std::string_view last) {
  const uint64_t length = about.size();
  return hmac_sha256(secret.view(), cat(speaker, bytes_of(length), about, bytes_of(challenge.drawn),
                                        bytes_of(answer.number), bytes_of(answer.drawn), last));
}

Digest answered(const Secret& secret, std::string_view about, const Challenge& challenge, const Answer& answer) {
  return signature_of(secret, "connects", about, challenge, answer, "");
}
Digest ended(const Secret& secret, std::string_view about, const Challenge& challenge, const Answer& answer,
             Verdict verdict) {
  return signature_of(secret, "listens.", about, challenge, answer, bytes_of(verdict));
}

Digest key_of(const Secret& secret, std::string_view about, const Challenge& challenge, const Answer& answer) {
  return signature_of(secret, "the key.", about, challenge, answer, "");
}

}  // namespace

Result<Digest> draw() {
  Digest drawn;
  if (::getrandom(drawn.data(), drawn.size(), 0) != static_cast<ssize_t>(drawn.size()))
    return error(Code::io, "the system gives no random numbers");
  return drawn;
}

Result<Guest> Guest::greet(Descriptor socket, const Secret& secret, const std::string& about) {
  Guest guest(std::move(socket), secret, about);
  guest.challenge_.protocol = protocol;
  EPL_ASSIGN(guest.challenge_.drawn, draw());
  // A new connection has room for these few bytes; who takes none of them does not answer either.
  static_cast<void>(
      ::send(guest.socket_.number(), &guest.challenge_, sizeof guest.challenge_, MSG_NOSIGNAL | MSG_DONTWAIT));
  return guest;
}

Guest::State Guest::read() {
  auto* to = reinterpret_cast<char*>(&answer_);
  while (read_ < sizeof answer_) {
    const ssize_t got = ::recv(socket_.number(), to + read_, sizeof answer_ - read_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return State::unknown;
    if (got <= 0) return State::stranger;
    read_ += static_cast<size_t>(got);
  }
  const bool known =
      answer_.protocol == protocol && same_digest(answer_.signature, answered(secret_, about_, challenge_, answer_));
  if (!known) static_cast<void>(tell(Verdict::other_secret));
  return known ? State::known : State::stranger;
}

Digest Guest::key() const { return key_of(secret_, about_, challenge_, answer_); }

Status Guest::tell(Verdict verdict) {
  LastWord last{.verdict = verdict};
  if (verdict != Verdict::other_secret) last.signature = ended(secret_, about_, challenge_, answer_, verdict);
  const ssize_t sent = ::send(socket_.number(), &last, sizeof last, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(sizeof last)) return {};
  return error(Code::peer_failed, "who connected has gone");
}

Result<Digest> introduce(const Descriptor& socket, const Secret& secret, const std::string& about, int64_t number,
                         const Deadline& deadline) {
  Challenge challenge;
  EPL_TRY(receive_all(socket, &challenge, sizeof challenge, deadline));
  if (challenge.protocol != protocol) return invalid("what listens there is not of EPL, or of another version");
  Answer answer{.protocol = protocol, .number = number};
  EPL_ASSIGN(answer.drawn, draw());
  answer.signature = answered(secret, about, challenge, answer);
  EPL_TRY(send_all(socket, bytes_of(answer), deadline));
  LastWord last;
  EPL_TRY(receive_all(socket, &last, sizeof last, deadline));
  const bool signed_well = same_digest(last.signature, ended(secret, about, challenge, answer, last.verdict));
  if (last.verdict == Verdict::other_secret || !signed_well)
    return invalid("the two ends do not have the same secret: one has another or none");
  if (last.verdict == Verdict::already_here)
    return invalid("it has a connection of rank ", number, " already: two processes take themselves for the same rank");
  return key_of(secret, about, challenge, answer);
}

}  // namespace epl
