// What sending and receiving mean: order, who waits for whom, and how errors are said.
#include <algorithm>

#include "tests/backend/conformance.h"

namespace epl::message_test {
namespace {

using Kind = Collective::Kind;

// Around a ring and back, so that every rank sends to two and receives from two, in an order that never waits in a
// circle.
TEST_P(Ranks, what_is_sent_is_received) {
  if (ranks() == 1) return;  // has nobody to send to
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    const int next = (r + 1) % ranks(), before = (r + ranks() - 1) % ranks();
    for (int round = 0; round < 100; ++round) {
      std::vector<int64_t> own(300, r * 1000 + round), got(300);
      const Collective send{.kind = Kind::send, .dtype = DType::i64, .count = 300, .source = own.data(), .peer = next};
      const Collective receive{
          .kind = Kind::receive, .dtype = DType::i64, .count = 300, .target = got.data(), .peer = before};
      for (int round = 0; round < 2; ++round) {
        const Status status = run(c, s, (round == 0) == (r == 0) ? receive : send);
        ASSERT_TRUE(status.ok()) << status.to_string();
      }
      ASSERT_EQ(got, std::vector<int64_t>(300, before * 1000 + round));
      std::fill(own.begin(), own.end(), -1);  // it is free again
    }
  });
}

TEST_P(Ranks, a_send_that_its_receiver_does_not_expect_is_misuse_for_both) {
  if (ranks() == 1) return;
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    std::vector<float> x(8);
    if (r > 1) return;
    Status status =
        r == 0 ? run(c, s, {.kind = Kind::send, .dtype = DType::f32, .count = 8, .source = x.data(), .peer = 1})
               : run(c, s, {.kind = Kind::receive, .dtype = DType::f32, .count = 4, .target = x.data(), .peer = 0});
    status = outcome(c, s, status);
    EXPECT_EQ(status.code(), Code::misuse);
    EXPECT_NE(status.message().find("send(8 x f32, to rank 1)"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("receive(4 x f32, from rank 0)"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("group world"), std::string::npos) << status.message();
  });
}

TEST_P(Ranks, an_abort_ends_those_who_wait_for_one_peer) {
  if (ranks() == 1) return;
  std::atomic<bool> aborted{false};
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    float x = 1;
    if (r == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      c.abort(error(Code::deadline_exceeded, "too slow"));
      aborted = true;
      return;
    }
    while (r > 2 && !aborted) std::this_thread::yield();  // some come too late to wait
    const Collective::Kind kind = r % 2 == 1 ? Kind::send : Kind::receive;
    const Status status =
        run(c, s, {.kind = kind, .dtype = DType::f32, .count = 1, .source = &x, .target = &x, .peer = 0});
    EXPECT_EQ(outcome(c, s, status).code(), Code::deadline_exceeded);
    EXPECT_TRUE(s.synchronize().ok()) << "an error is said once";
  });
}

// Integers in the memory of a device.
class Numbers {
 public:
  Numbers(Device& device, int64_t count)
      : host_(static_cast<size_t>(count)), buffer_(device.allocate(count * 8).value()) {}
  int64_t* data() { return static_cast<int64_t*>(buffer_->data()); }
  int64_t bytes() const { return buffer_->bytes(); }
  void set(Stream& stream, int64_t value) {
    std::fill(host_.begin(), host_.end(), value);
    stream.upload(data(), host_.data(), bytes());
  }
  std::vector<int64_t> get(Stream& stream) {
    std::vector<int64_t> values(host_.size());
    stream.download(values.data(), data(), bytes());
    EXPECT_TRUE(stream.synchronize().ok());
    return values;
  }

 private:
  std::vector<int64_t> host_;
  std::unique_ptr<Buffer> buffer_;
};

// Two ranks send to each other before either receives, as neighbours of a pipeline do: on a stream of their own, sends
// do not keep the host from the receives that their peers wait for.
TEST_P(Ranks, sends_on_a_stream_of_their_own_do_not_wait_for_each_other) {
  if (ranks() == 1) return;
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    if (r > 1) return;
    const int64_t count = 300;
    auto sending = device->of_rank(r).create_stream(1).value();
    auto sent = device->of_rank(r).create_event(), computed = device->of_rank(r).create_event();
    std::vector<Numbers> own, got;
    for (int m = 0; m < 40; ++m) {
      own.emplace_back(device->of_rank(r), count);
      got.emplace_back(device->of_rank(r), count);
    }
    for (int64_t m = 0; m < std::ssize(own); ++m) {
      own[m].set(s, 1000 * r + m);
      s.record(*computed);
      sending->wait(*computed);
      const Collective send{
          .kind = Kind::send, .dtype = DType::i64, .count = count, .source = own[m].data(), .peer = 1 - r};
      ASSERT_TRUE(c.run(*sending, send).ok());
      sending->record(*sent);
    }
    for (Numbers& numbers : got) {
      const Collective receive{
          .kind = Kind::receive, .dtype = DType::i64, .count = count, .target = numbers.data(), .peer = 1 - r};
      ASSERT_TRUE(c.run(s, receive).ok());
    }
    s.wait(*sent);  // from here on what was sent may be written over
    for (Numbers& numbers : own) s.fill(numbers.data(), numbers.bytes(), 0xff);
    for (int64_t m = 0; m < std::ssize(got); ++m)
      EXPECT_EQ(got[m].get(s), std::vector<int64_t>(count, 1000 * (1 - r) + m));
    EXPECT_TRUE(s.synchronize().ok());
    EXPECT_TRUE(sending->synchronize().ok());
  });
}

// What the receiver has not taken yet holds back who waits for it, and nobody else.
TEST_P(Ranks, an_event_behind_a_send_comes_when_it_was_taken) {
  if (ranks() == 1) return;
  std::atomic<bool> taken{false}, overtaken{false};
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    if (r > 1) return;
    Numbers x(device->of_rank(r), 1);
    if (r == 1) {
      while (!overtaken) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      taken = true;
      EXPECT_TRUE(
          c.run(s, {.kind = Kind::receive, .dtype = DType::i64, .count = 1, .target = x.data(), .peer = 0}).ok());
      EXPECT_EQ(x.get(s)[0], 7);
      return;
    }
    auto sending = device->of_rank(r).create_stream(1).value();
    auto before = device->of_rank(r).create_event(), sent = device->of_rank(r).create_event();
    x.set(*sending, 7);
    sending->record(*before);
    EXPECT_TRUE(
        c.run(*sending, {.kind = Kind::send, .dtype = DType::i64, .count = 1, .source = x.data(), .peer = 1}).ok());
    sending->record(*sent);
    s.wait(*before);  // nothing was sent before it
    EXPECT_TRUE(s.synchronize().ok());
    overtaken = true;
    s.wait(*sent);
    s.fill(x.data(), 8, 0);
    EXPECT_TRUE(s.synchronize().ok());
    EXPECT_TRUE(taken || joined());
    EXPECT_TRUE(sending->synchronize().ok());
  });
}

// Streams are not waited for in between: the first call of a subgroup finds one of all ranks at work.
TEST_P(Ranks, a_subgroup_is_called_behind_calls_that_go_on) {
  if (ranks() < 3) return;
  std::atomic<int> called{0};
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    Device& own = device->of_rank(r);
    Numbers x(own, 1), all(own, c.size()), two(own, 2);
    x.set(s, 100 + r);
    const auto gather = [&](Communicator& among, Numbers& to) {
      const Status status = among.run(
          s, {.kind = Kind::all_gather, .dtype = DType::i64, .count = 1, .source = x.data(), .target = to.data()});
      EXPECT_TRUE(status.ok()) << status.to_string();
    };
    gather(c, all);
    const auto low = r < 2 ? c.split("low", std::vector<int>{0, 1}) : unsupported("no member");
    EXPECT_EQ(low.ok(), r < 2) << low.status().to_string();
    if (low.ok()) gather(**low, two);
    if (r < 2) ++called;
    while (called < 2) std::this_thread::yield();  // who waits for a device lets it go on
    for (int p = 0; low.ok() && p < 2; ++p) EXPECT_EQ(two.get(s)[static_cast<size_t>(p)], 100 + p);
    for (int p = 0; p < c.size(); ++p) EXPECT_EQ(all.get(s)[static_cast<size_t>(p)], 100 + p);
    EXPECT_TRUE(run(c, s, {.kind = Kind::barrier}).ok());
  });
}

// What processes say of themselves lies on the host, whatever memory the device has.
TEST_P(Ranks, tell_each_other_what_is_on_the_host) {
  if (!joined()) return;
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    const int64_t own = 100 + r;
    std::vector<int64_t> all(static_cast<size_t>(c.size())), expected;
    for (int p = 0; p < c.size(); ++p) expected.push_back(100 + p);
    const Status status = c.run_on_host(
        s, {.kind = Kind::all_gather, .dtype = DType::i64, .count = 1, .source = &own, .target = all.data()});
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(all, expected);
  });
}

// A stream keeps its order: what comes behind a send on the same one waits for it.
TEST_P(Ranks, a_stream_waits_for_its_own_sends) {
  if (ranks() == 1) return;
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    if (r > 1) return;
    Numbers x(device->of_rank(r), 1);
    for (int64_t round = 0; round < 50; ++round) {
      x.set(s, round);
      if (r == 1) {
        EXPECT_TRUE(
            c.run(s, {.kind = Kind::receive, .dtype = DType::i64, .count = 1, .target = x.data(), .peer = 0}).ok());
      } else {
        EXPECT_TRUE(
            c.run(s, {.kind = Kind::send, .dtype = DType::i64, .count = 1, .source = x.data(), .peer = 1}).ok());
        s.fill(x.data(), 8, 0xff);
      }
      EXPECT_EQ(x.get(s)[0], r == 1 ? round : -1);
    }
  });
}

TEST_P(Ranks, who_waits_for_a_send_that_fails_hears_of_it) {
  if (ranks() == 1) return;
  on_ranks(*device, group, [&](int r, Communicator& c, Stream& s) {
    if (r > 1) return;
    if (r == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      c.abort(error(Code::cancelled, "enough"));
      return;
    }
    auto sending = device->of_rank(r).create_stream(1).value();
    auto sent = device->of_rank(r).create_event();
    Numbers x(device->of_rank(r), 1);
    x.set(*sending, 7);
    const Status posted =
        c.run(*sending, {.kind = Kind::send, .dtype = DType::i64, .count = 1, .source = x.data(), .peer = 1});
    if (!posted.ok()) return;  // the abort was quicker
    sending->record(*sent);
    s.wait(*sent);
    EXPECT_EQ(outcome(c, s, s.synchronize()).code(), Code::cancelled);
    EXPECT_EQ(outcome(c, *sending, sending->synchronize()).code(), Code::cancelled);
  });
}

}  // namespace
}  // namespace epl::message_test
