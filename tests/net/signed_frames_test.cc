// Frames that are signed: whatever a wire does to them is noticed, by an error that names the peer. A proxy between two
// ranks stands for the wire, and changes what goes through it once the two know each other.
#include <poll.h>
#include <sys/socket.h>

#include <atomic>

#include "core/base/philox.h"
#include "core/net/handshake.h"
#include "core/net/socket_join.h"
#include "tests/backend/conformance.h"

namespace epl::signed_frames_test {
namespace {

using Kind = Collective::Kind;

// What is done to the bytes from `at` on of one direction, counted behind the handshake.
struct Change {
  enum class What { none, flip, repeat, drop, insert, swap } what = What::none;
  int direction = 0;
  size_t at = 0, bytes = 1;
  int bit = 0;
};

// Passes on what two sockets say. The first bytes are those of the handshake.
class Wire {
 public:
  Wire(Descriptor who_listens, Descriptor who_connects, const Change& change)
      : change_(change), ends_{std::move(who_listens), std::move(who_connects)} {
    for (int d = 0; d < 2; ++d) threads_[d] = std::thread([this, d] { pump(d); });
  }
  ~Wire() {
    for (Descriptor& end : ends_) ::shutdown(end.number(), SHUT_RDWR);
    for (std::thread& thread : threads_) thread.join();
  }
  bool changed() const { return changed_; }

 private:
  void pump(int direction) {
    const size_t handshake = direction == 0 ? sizeof(Challenge) + sizeof(LastWord) : sizeof(Answer);
    const Descriptor &from = ends_[direction], &to = ends_[1 - direction];
    size_t seen = 0;
    for (char bytes[65536];;) {
      pollfd waiting{.fd = from.number(), .events = POLLIN, .revents = 0};
      ::poll(&waiting, 1, -1);
      const ssize_t got = ::recv(from.number(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (got <= 0) break;
      std::string text(bytes, static_cast<size_t>(got));
      const size_t position = handshake + change_.at;
      const bool here = direction == change_.direction && change_.what != Change::What::none && !changed_ &&
                        position >= seen && position + change_.bytes <= seen + text.size();
      seen += text.size();
      if (here) alter(text, position - (seen - text.size()));
      for (size_t sent = 0; sent < text.size();) {
        const ssize_t wrote = ::send(to.number(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (wrote < 0 && errno != EAGAIN && errno != EINTR) return;
        sent += wrote > 0 ? static_cast<size_t>(wrote) : 0;
      }
    }
    ::shutdown(to.number(), SHUT_WR);
  }
  void alter(std::string& text, size_t at) {
    const std::string before = text, part = text.substr(at, change_.bytes);
    switch (change_.what) {
      case Change::What::flip:
        text[at] = static_cast<char>(text[at] ^ 1 << change_.bit);
        break;
      case Change::What::repeat:
        text.insert(at, part);
        break;
      case Change::What::drop:
        text.erase(at, change_.bytes);
        break;
      case Change::What::insert:
        text.insert(at, std::string(change_.bytes, '\x5a'));
        break;
      case Change::What::swap:  // of two halves, one frame and the next of the same size among them
        text = text.substr(0, at) + text.substr(at + change_.bytes / 2, change_.bytes - change_.bytes / 2) +
               text.substr(at, change_.bytes / 2) + text.substr(at + change_.bytes);
        break;
      case Change::What::none:
        break;
    }
    changed_ = text != before;
  }

  const Change change_;
  Descriptor ends_[2];
  std::thread threads_[2];
  std::atomic<bool> changed_{false};
};

class SignedFrames : public testing::Test {
 protected:
  Joining joining(int rank, bool signs = true) const {
    return {.group = "world",
            .rank = rank,
            .size = 2,
            .job = "job: 1\n",
            .secret = "the secret",
            .transport = "sockets",
            .join_seconds = 20,
            .silence_seconds = 0.5,
            .signs_frames = signs};
  }
  struct Outcome {
    bool changed = false, noticed = false;
    std::vector<Status> statuses = std::vector<Status>(2);
    std::vector<std::vector<float>> sums = std::vector<std::vector<float>>(2);
  };

  // Two ranks make some calls over a wire.
  Outcome run(const Change& change, bool signs = true) {
    const auto rendezvous = memory_rendezvous(), other = memory_rendezvous();
    Endpoint door{"127.0.0.1", 0};
    const Descriptor listener = listen_at(door, 4).value();
    Outcome out;
    std::unique_ptr<Wire> wire;
    // Rank 1 reads a card of rank 0 in which the wire's door stands.
    std::thread between([&] {
      const std::string text = rendezvous->get_text("world/rank 0", 20).value();
      net::Card card;
      std::istringstream lines(text);
      std::string line;
      std::getline(lines, line), std::getline(lines, line), std::getline(lines, line);
      card.size = 2;
      std::getline(lines, card.address), std::getline(lines, line);
      const int port = std::atoi(line.c_str());
      std::getline(lines, card.drawn);
      for (int i = 0; i < 4; ++i) std::getline(lines, line);  // it offers no memory
      std::getline(lines, card.host);
      card.port = door.port;
      const auto begin = text.find("transport: ");
      card.job = text.substr(begin);
      EXPECT_TRUE(other->put_text("world/rank 0", net::card_text(joining(0, signs), 0, card)).ok());
      EXPECT_TRUE(rendezvous->put_text("world/rank 1", other->get_text("world/rank 1", 20).value()).ok());
      Descriptor connected;
      while (!connected.open()) connected = accept_next(listener).value();
      const std::function<double()> clock = test_seconds;
      const Deadline deadline(clock, 20);
      wire = std::make_unique<Wire>(connect_within({"127.0.0.1", port}, deadline, false).value(), std::move(connected),
                                    change);
    });
    std::vector<std::thread> ranks;
    for (int r = 0; r < 2; ++r) {
      ranks.emplace_back([&, r] {
        auto joined = device->join(joining(r, signs), r == 0 ? *rendezvous : *other);
        ASSERT_TRUE(joined.ok()) << joined.status().to_string();
        auto stream = device->create_stream(1).value();
        std::vector<float> values(50);
        for (int call = 0; call < 4 && out.statuses[r].ok(); ++call) {
          for (size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<float>(call + r) + static_cast<float>(i) / 64;
          out.statuses[r] = (*joined)->run(*stream, {.kind = Kind::all_reduce,
                                                     .dtype = DType::f32,
                                                     .count = std::ssize(values),
                                                     .source = values.data(),
                                                     .target = values.data(),
                                                     .reduction = Reduction::sum});
          if (out.statuses[r].ok()) out.sums[r].insert(out.sums[r].end(), values.begin(), values.end());
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
    between.join();
    out.changed = wire->changed();
    out.noticed = !out.statuses[0].ok() || !out.statuses[1].ok();
    return out;
  }

  TestHost memory;
  std::shared_ptr<Device> device = open_device("cpu", memory.host()).value();
};

std::vector<float> expected_sums() {
  std::vector<float> out;
  for (int call = 0; call < 4; ++call) {
    for (int i = 0; i < 50; ++i) out.push_back(static_cast<float>(2 * call + 1) + static_cast<float>(i) / 32);
  }
  return out;
}

TEST_F(SignedFrames, go_through_a_wire_that_changes_nothing) {
  const Outcome out = run({});
  EXPECT_FALSE(out.noticed) << out.statuses[0].to_string() << out.statuses[1].to_string();
  for (const auto& sums : out.sums) EXPECT_EQ(sums, expected_sums());
}

// EPL_WIRE_CHANGES sets how many.
TEST_F(SignedFrames, every_change_on_the_wire_is_noticed) {
  const char* wanted = std::getenv("EPL_WIRE_CHANGES");
  const int changes = wanted == nullptr ? 150 : std::atoi(wanted);
  int changed = 0, named = 0;
  for (int i = 0; i < changes; ++i) {
    const auto draw = [&](uint64_t n, size_t below) {
      return static_cast<size_t>(philox_uniform(static_cast<uint64_t>(i) + 5, n) * static_cast<double>(below));
    };
    static constexpr Change::What kinds[] = {Change::What::flip, Change::What::flip,   Change::What::repeat,
                                             Change::What::drop, Change::What::insert, Change::What::swap};
    Change change{.what = kinds[draw(0, std::size(kinds))],
                  .direction = static_cast<int>(draw(1, 2)),
                  .at = draw(2, 1600),
                  .bit = static_cast<int>(draw(3, 8))};
    if (change.what != Change::What::flip) change.bytes = 1 + draw(4, 300);
    const Outcome out = run(change);
    if (!out.changed) continue;
    ++changed;
    // What was computed before the change counts; nothing that was changed does.
    for (const auto& sums : out.sums)
      for (size_t at = 0; at < sums.size(); ++at) ASSERT_EQ(sums[at], expected_sums()[at]) << "change " << i;
    // A change behind the last operand is of a message that all could do without: that a rank leaves.
    const bool all_done = out.sums[0].size() == 200 && out.sums[1].size() == 200;
    EXPECT_TRUE(out.noticed || all_done) << "change " << i;
    for (const Status& status : out.statuses) named += !status.ok() && status.rank() >= 0;
  }
  EXPECT_GT(changed, changes / 3);
  EXPECT_GT(named, changed / 2);
}

// The same wire without signatures: the test can see what it looks for.
TEST_F(SignedFrames, a_changed_operand_that_is_not_signed_goes_unseen) {
  const Change change{.what = Change::What::flip, .direction = 0, .at = sizeof(net::FrameHead) + 5, .bit = 2};
  const Outcome plain = run(change, false), sealed = run(change);
  EXPECT_TRUE(plain.changed && sealed.changed);
  EXPECT_FALSE(plain.noticed);
  EXPECT_NE(plain.sums[1], expected_sums());
  EXPECT_TRUE(sealed.noticed);
  EXPECT_NE((sealed.statuses[0].to_string() + sealed.statuses[1].to_string()).find("not signed as it should be"),
            std::string::npos)
      << sealed.statuses[0].to_string() << sealed.statuses[1].to_string();
}

TEST_F(SignedFrames, need_a_secret) {
  Joining bare = joining(0);
  bare.secret = Secret();
  const auto refused = device->join(bare, *memory_rendezvous());
  EXPECT_EQ(refused.status().code(), Code::invalid_argument);
  EXPECT_NE(refused.status().message().find("needs a secret"), std::string::npos) << refused.status().message();
}

}  // namespace
}  // namespace epl::signed_frames_test
