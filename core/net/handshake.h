// How the two ends of a new connection show each other that they know one secret, which itself is never sent: each
// signs what both have drawn by chance (HMAC-SHA256). The end that connects goes first, so that a stranger who connects
// gets nothing that is signed. What is sent afterwards is neither signed nor encrypted by itself; a key for that
// follows from the secret and what was drawn, and is another one for each connection.
//
//   who listens   challenge: 32 bytes drawn by chance
//   who connects  answer: its number, 32 bytes of its own, the signature of all that was said
//   who listens   verdict: welcome or why not, signed
#pragma once

#include <array>
#include <string>

#include "core/base/secret.h"
#include "core/base/sha256.h"
#include "core/net/tcp.h"

namespace epl {

enum class Verdict : uint32_t { welcome, other_secret, already_here };

struct Challenge {
  std::array<char, 16> protocol;
  Digest drawn;
};
struct Answer {
  std::array<char, 16> protocol;
  int64_t number = 0;
  Digest drawn, signature;
};
struct LastWord {
  Verdict verdict = Verdict::welcome;
  Digest signature{};
};

// 32 bytes drawn by chance.
Result<Digest> draw();

// The end that listens: a connection that has come, of whom nobody knows yet who it is. Nothing here waits.
class Guest {
 public:
  // `about` is what both ends must mean: which group of which job, say.
  static Result<Guest> greet(Descriptor socket, const Secret& secret, const std::string& about);
  enum class State { unknown, known, stranger };
  // Reads what has come. A stranger is told so where it has said anything.
  State read();
  int64_t number() const { return answer_.number; }  // that a known one has given
  // Ends the handshake. An error says that the guest has gone.
  Status tell(Verdict verdict);
  Digest key() const;  // of the connection, the same at both ends; of a known guest
  Descriptor& socket() { return socket_; }
  const std::string& address() const { return address_; }  // where it comes from

 private:
  Guest(Descriptor socket, const Secret& secret, const std::string& about)
      : socket_(std::move(socket)), address_(peer_address(socket_)), secret_(secret), about_(about) {}
  Descriptor socket_;
  std::string address_;
  Secret secret_;
  std::string about_;
  Challenge challenge_{};
  Answer answer_;
  size_t read_ = 0;
};

// The end that connects, as `number`: the key of the connection, or an error that says who has refused whom.
Result<Digest> introduce(const Descriptor& socket, const Secret& secret, const std::string& about, int64_t number,
                         const Deadline& deadline);

}  // namespace epl
