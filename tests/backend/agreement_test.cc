// What ranks of several processes tell each other besides operands: what each is doing, and who is lost.
#include <sstream>

#include "core/backend/job_call.h"
#include "tests/backend/conformance.h"

namespace epl::agreement_test {
namespace {

using Kind = Collective::Kind;

TEST(JobCalls, differ_in_the_first_line_that_is_not_the_same) {
  JobCall a{.number = 1, .name = "epl_session_step", .lines = std::make_shared<const std::string>("rate: 1\n")}, b = a;
  a.numbers = {{"step", 3}}, b.numbers = {{"step", 4}};
  a.sign(), b.sign();
  EXPECT_NE(a.digest, b.digest);
  EXPECT_EQ(rank_difference(0, a.text(), 1, a.text()), "");
  EXPECT_EQ(rank_difference(1, b.text(), 0, a.text()),
            "the processes do not do the same: step is \"3\" at rank 0 and \"4\" at rank 1");
  b = a;
  b.name = "epl_session_save";
  EXPECT_EQ(rank_difference(2, a.text(), 5, b.text()), "rank 2 is in step, rank 5 in save");
  EXPECT_EQ(line_difference("a: 1\nb: 2\n", "a: 1\n"), "its b is nothing, here it is \"2\"");
  EXPECT_EQ(line_difference("a: 1\n", "a: 1\nc: 5\n"), "its c is \"5\", here it is nothing");
  // A text that has its quotes already gets no others.
  EXPECT_EQ(line_difference("a: \"x \\\"y\"\n", "a: \"\"\n"), "its a is \"\", here it is \"x \\\"y\"");
  EXPECT_EQ(rank_difference(0, "a: \"nothing\"\n", 1, "a: \"1\" and \"2\"\n"),
            "the processes do not do the same: a is \"nothing\" at rank 0 and \"\\\"1\\\" and \\\"2\\\"\" at rank 1");
  // A key of any text is one key of one line.
  for (const std::string key : {"a: b", "a\nb: 2", "\"a", "\"a\": 1", "a:", ""}) {
    const std::string here = told_line(key, "1") + "b: 2\n", there = told_line(key, "3") + "b: 2\n";
    EXPECT_EQ(different_keys(here, there), std::vector<std::string>{key});
    EXPECT_EQ(different_keys(here, here), std::vector<std::string>());
    EXPECT_EQ(std::ranges::count(here, '\n'), 2);
    EXPECT_EQ(line_difference(here, there).find('\n'), std::string::npos);
  }
  EXPECT_EQ(line_difference(told_line("a: b\n", "1"), told_line("a: b\n", "2")),
            "its \"a: b\\n\" is \"2\", here it is \"1\"");
  EXPECT_LT(rank_difference(0, told_line(std::string(5000, 'k'), "1"), 1, "").size(), 300u);
  EXPECT_EQ(different_keys("a: 1\nb: 2\n", "a: 2\nc: 3\n"), (std::vector<std::string>{"a", "c", "b"}));
}

// Ranks of as many processes as there are, each of which a thread stands for.
class Agreement : public testing::TestWithParam<std::string> {
 protected:
  void join(int size, double silence_seconds = 20) {
    ranks.clear(), ranks.resize(static_cast<size_t>(size));
    streams.clear();
    for (int r = 0; r < size; ++r) streams.push_back(device->create_stream(1).value());
    rendezvous = memory_rendezvous();
    each([&](int r) {
      auto joined = device->join({.group = "world",
                                  .rank = r,
                                  .size = size,
                                  .job = "job: 1\n",
                                  .transport = GetParam(),
                                  .join_seconds = 20,
                                  .silence_seconds = silence_seconds},
                                 *rendezvous);
      ASSERT_TRUE(joined.ok()) << joined.status().to_string();
      ranks[static_cast<size_t>(r)] = std::move(*joined);
    });
  }
  template <class F> void each(const F& f) {
    std::vector<std::thread> threads;
    for (int r = 0; r < static_cast<int>(ranks.size()); ++r) threads.emplace_back([&f, r] { f(r); });
    for (std::thread& thread : threads) thread.join();
  }
  Status barrier(Communicator& group, int r) {
    return group.run(*streams[static_cast<size_t>(r)], {.kind = Kind::barrier});
  }
  void enter(int r, uint64_t number, const char* name, uint64_t value = 0) {
    JobCall call{.number = number, .name = name, .numbers = {{"value", value}}};
    call.sign();
    ranks[static_cast<size_t>(r)]->enter(call);
  }
  static void expect_words(const Status& status, Code code, const std::string& words) {
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  }

  TestHost memory;
  std::shared_ptr<Device> device = open_device("cpu", memory.host()).value();
  std::shared_ptr<Rendezvous> rendezvous;
  std::vector<std::unique_ptr<Communicator>> ranks;
  std::vector<std::unique_ptr<Stream>> streams;
};

// They wait in other groups, so that no message of one would ever reach a call of the other.
TEST_P(Agreement, ranks_in_other_calls_are_told_wherever_they_wait) {
  join(3);
  const double began = test_seconds();
  each([&](int r) {
    auto one = ranks[r]->split("one", std::vector<int>{0, 1, 2}).value();
    auto other = ranks[r]->split("other", std::vector<int>{0, 1, 2}).value();
    enter(r, 1, "epl_session_step", 7);
    EXPECT_TRUE(barrier(*one, r).ok());
    enter(r, 2, r == 1 ? "epl_session_save" : "epl_session_step", 8);
    const Status status = barrier(r == 1 ? *other : *one, r);
    expect_words(status, Code::misuse, "rank 1");
    expect_words(status, Code::misuse, "in save");
    EXPECT_TRUE(ranks[r]->lost().ok()) << "all can go on";
  });
  EXPECT_LT(test_seconds() - began, 10);
}

// In one group they meet at once.
TEST_P(Agreement, what_differs_is_named_where_they_meet) {
  join(2);
  const double began = test_seconds();
  each([&](int r) {
    enter(r, 1, "epl_session_step", r == 1 ? 5 : 4);
    expect_words(barrier(*ranks[r], r), Code::invalid_argument, "value is \"4\" at rank 0 and \"5\" at rank 1");
  });
  EXPECT_LT(test_seconds() - began, 10);
}

TEST_P(Agreement, a_send_and_its_receive_are_of_one_call) {
  join(2);
  each([&](int r) {
    enter(r, 1, r == 0 ? "epl_session_predict" : "epl_session_step");
    float x = 1;
    const Collective call =
        r == 0 ? Collective{.kind = Kind::send, .dtype = DType::f32, .count = 1, .source = &x, .peer = 1}
               : Collective{.kind = Kind::receive, .dtype = DType::f32, .count = 1, .target = &x, .peer = 0};
    Status status = ranks[r]->run(*streams[r], call);
    if (r == 0) status = barrier(*ranks[r], r);  // a send does not wait
    expect_words(status, Code::misuse, "rank 0 is in predict, rank 1 in step");
  });
}

// Who comes late to a call is no other one; and one that is ahead is not either.
TEST_P(Agreement, late_ranks_are_waited_for) {
  join(2);
  each([&](int r) {
    for (uint64_t number = 1; number < 4; ++number) {
      if (r == 1) std::this_thread::sleep_for(std::chrono::milliseconds(250));
      enter(r, number, "epl_session_step", number);
      EXPECT_TRUE(barrier(*ranks[r], r).ok());
    }
  });
}

// A rank that hears of a lost one from another rank knows which that is, and what became of it. The lost one says
// nothing and its connections stay.
TEST_P(Agreement, who_is_lost_travels_with_the_end_of_the_group) {
  join(3, 0.4);
  each([&](int r) {
    if (r == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // and makes no call
      while (ranks[2]->lost().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      EXPECT_EQ(ranks[2]->lost().rank(), 2);
      return;
    }
    // Rank 0 gives rank 2 up while rank 1, which came later, still waits for both.
    if (r == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    auto pair = ranks[r]->split("pair", r == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 2}).value();
    const Status status = r == 0 ? barrier(*pair, 0) : barrier(*ranks[1], 1);
    if (r == 0) ranks[0]->abort(error(Code::peer_failed, "rank 0: ", status.message()).of_rank(status.rank()));
    EXPECT_EQ(status.code(), Code::peer_failed) << status.to_string();
    EXPECT_EQ(ranks[r]->lost().rank(), 2) << ranks[r]->lost().to_string();
  });
}

INSTANTIATE_TEST_SUITE_P(, Agreement, testing::Values("sockets", "shared,sockets"),
                         [](const auto& info) { return info.param == "sockets" ? "sockets" : "shared"; });

}  // namespace
}  // namespace epl::agreement_test
