// Ranks that come together over processes: what keeps them from it and what ends them is an error that names who, and
// nobody waits for ever. What a wrong peer does is done here by hand, over a socket.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "core/net/handshake.h"
#include "core/net/socket_join.h"
#include "core/net/store.h"
#include "tests/backend/conformance.h"
#include "tests/temporary_folder.h"

namespace epl::join_test {
namespace {

using Kind = Collective::Kind;

class Joined : public testing::Test {
 protected:
  void SetUp() override { device = open_device("cpu", memory.host()).value(); }
  Joining rank(int rank, int size, double seconds = 20) const {
    return {
        .group = "world", .rank = rank, .size = size, .job = "a job", .join_seconds = seconds, .silence_seconds = 20};
  }
  // Both join at once; each gets what became of it.
  std::vector<Result<std::unique_ptr<Communicator>>> join_both(const Joining& a, const Joining& b) {
    std::vector<Result<std::unique_ptr<Communicator>>> out;
    Result<std::unique_ptr<Communicator>> other = Status();
    std::thread thread([&] { other = device->join(b, *rendezvous); });
    out.push_back(device->join(a, *rendezvous));
    thread.join();
    out.push_back(std::move(other));
    return out;
  }
  static void expect_words(const Status& status, Code code, const std::vector<std::string>& words) {
    EXPECT_EQ(status.code(), code) << status.to_string();
    for (const std::string& word : words) EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }

  TestHost memory;
  std::shared_ptr<Device> device;
  std::shared_ptr<Rendezvous> rendezvous = memory_rendezvous();
};

// What a rank with this card puts.
void put_card(const Joining& joining, Rendezvous& rendezvous, const net::Card& card) {
  ASSERT_TRUE(
      rendezvous.put_text(net::card_key("world", joining.rank), net::card_text(joining, joining.rank, card)).ok());
}
// Of a rank that moves data as ranks do that nothing was said to.
net::Card card_at(int port, int size = 2) {
  return {.size = size, .address = "127.0.0.1", .port = port, .drawn = "1", .job = "transport: shared,sockets\na job"};
}

TEST_F(Joined, who_does_not_come_is_named) {
  expect_words(device->join(rank(1, 4, 0.02), *rendezvous).status(), Code::deadline_exceeded,
               {"rank 1 of 4 joins group world", "ranks 0, 2, 3 have not come", "\"world/rank 0\""});
}

TEST_F(Joined, a_rank_comes_once) {
  ASSERT_FALSE(device->join(rank(0, 2, 0), *rendezvous).ok());
  expect_words(device->join(rank(0, 2, 0), *rendezvous).status(), Code::invalid_argument,
               {"rank 0 of 2", "two processes take themselves for the same rank"});
}

// Nor do the others wait for a rank that cannot come, because another process has its name.
TEST_F(Joined, who_comes_twice_is_told_to_those_who_wait) {
  for (const std::string secret : {"", "shared"}) {
    rendezvous = memory_rendezvous();
    const auto of = [&](int r, int size, double seconds) {
      Joining joining = rank(r, size, seconds);
      joining.secret = Secret(secret);
      return joining;
    };
    Status first;
    std::thread waits([&] { first = device->join(of(1, 3, 60), *rendezvous).status(); });
    ASSERT_TRUE(rendezvous->get_text(net::card_key("world", 1), 20).ok());
    const auto start = std::chrono::steady_clock::now();
    expect_words(device->join(of(1, 3, 60), *rendezvous).status(), Code::invalid_argument,
                 {"rank 1 of 3", "two processes take themselves for the same rank"});
    waits.join();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    expect_words(first, Code::invalid_argument, {"rank 1 of 3", "another process has come as rank 1 too"});
  }
}

// The others have given up. Who comes then, and who waits for the same one still, is told so at once.
TEST_F(Joined, who_comes_after_the_join_has_failed_is_told) {
  for (const std::string secret : {"", "shared"}) {
    rendezvous = memory_rendezvous();
    const auto of = [&](int r, double seconds) {
      Joining joining = rank(r, 3, seconds);
      joining.secret = Secret(secret);
      return joining;
    };
    Status waits;
    std::thread patient([&] { waits = device->join(of(1, 60), *rendezvous).status(); });
    ASSERT_TRUE(rendezvous->get_text(net::card_key("world", 1), 20).ok());
    const auto start = std::chrono::steady_clock::now();
    expect_words(device->join(of(0, 0.02), *rendezvous).status(), Code::deadline_exceeded, {"rank 2 has not come"});
    patient.join();
    expect_words(waits, Code::deadline_exceeded, {"rank 1 of 3", "too late: rank 0 has waited", "rank 2 has not come"});
    expect_words(device->join(of(2, 60), *rendezvous).status(), Code::deadline_exceeded,
                 {"rank 2 of 3", "too late: rank 0 has waited"});
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  }
}

// A call that stops does so wherever the join is: before anybody else has come, before a store is there, while another
// rank is to connect, and while one that listens says nothing.
TEST_F(Joined, a_stop_is_seen_everywhere_in_a_join) {
  Endpoint at{"127.0.0.1", 0};
  const Descriptor mute = listen_at(at, 4).value();
  const std::function<double()> clock = TestHost().host().seconds;
  const TemporaryFolder temporary;
  const auto folder = folder_rendezvous(temporary / "meet").value();
  const auto prepared = [&](int other, int port) {
    auto made = memory_rendezvous();
    put_card(rank(other, 2), *made, card_at(port));
    return made;
  };
  const std::pair<int, std::shared_ptr<Rendezvous>> cases[] = {
      {0, memory_rendezvous()},
      {0, folder},
      {0, store_rendezvous({"127.0.0.1", 1}, "", clock, 60)},  // nobody is there
      {0, store_rendezvous(at, "", clock, 60)},                // says nothing
      {0, prepared(1, at.port)},                               // does not connect
      {1, prepared(0, at.port)}};                              // says nothing
  for (const auto& [own, where] : cases) {
    StopToken token;
    Joining joining = rank(own, 2, 60);
    joining.stop = Stop(&token, nullptr, 0);
    Status status;
    std::thread joins([&] { status = device->join(joining, *where).status(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    token.cancel();
    const auto start = std::chrono::steady_clock::now();
    joins.join();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    EXPECT_EQ(status.code(), Code::cancelled) << status.to_string();
  }
}

TEST_F(Joined, worlds_of_other_sizes_do_not_meet) {
  const auto both = join_both(rank(0, 2), rank(1, 3));
  expect_words(both[0].status(), Code::invalid_argument,
               {"rank 0 of 2", "rank 1 of group world says that there are 3 ranks"});
  expect_words(both[1].status(), Code::invalid_argument,
               {"rank 1 of 3", "rank 0 of group world says that there are 2 ranks"});
}

TEST_F(Joined, jobs_do_not_meet) {
  Joining other = rank(1, 2);
  other.job = "plan: 1\nrate: 3\n";
  Joining own = rank(0, 2);
  own.job = "plan: 1\nrate: 2\n";
  const auto both = join_both(own, other);
  expect_words(both[0].status(), Code::invalid_argument,
               {"rank 1 of group world does not do the same job: its rate is \"3\", here it is \"2\""});
  expect_words(both[1].status(), Code::invalid_argument, {"its rate is \"2\", here it is \"3\""});
}

TEST_F(Joined, transports_are_compared_as_a_line_of_their_own) {
  for (const std::string job : {"plan: 1\n", "a job", ""}) {
    rendezvous = memory_rendezvous();
    Joining own = rank(0, 2), other = rank(1, 2);
    own.job = other.job = job;
    other.transport = "sockets";
    const auto both = join_both(own, other);
    expect_words(both[0].status(), Code::invalid_argument,
                 {"not do the same job: its transport is \"sockets\", here it is \"shared,sockets\""});
    expect_words(both[1].status(), Code::invalid_argument,
                 {"not do the same job: its transport is \"shared,sockets\", here it is \"sockets\""});
    // Two spellings of one.
    rendezvous = memory_rendezvous();
    other.transport = "shared";
    for (const auto& joined : join_both(own, other)) EXPECT_TRUE(joined.ok()) << joined.status().to_string();
  }
}

TEST_F(Joined, who_has_another_secret_or_none_is_refused_by_name) {
  Joining other = rank(1, 2), own = rank(0, 2);
  own.secret = "one";
  for (const std::string secret : {"another", ""}) {
    rendezvous = memory_rendezvous();
    other.secret = secret;
    const auto both = join_both(own, other);
    expect_words(both[0].status(), Code::invalid_argument,
                 {"rank 0 of 2", "rank 1 of group world has not the secret of this rank", "another or none"});
    expect_words(both[1].status(), Code::invalid_argument,
                 {"rank 1 of 2", "rank 0 of group world has not the secret of this rank",
                  secret.empty() ? "this rank has none" : "another or none"});
  }
  rendezvous = memory_rendezvous();
  other.secret = "one";
  const auto both = join_both(own, other);
  EXPECT_TRUE(both[0].ok() && both[1].ok()) << both[0].status().to_string();
}

TEST_F(Joined, versions_do_not_meet) {
  for (const std::string& card :
       {std::string("epl sockets 1\n2\n1\n1\na job"), std::string(), std::string(100000, 'x')}) {
    rendezvous = memory_rendezvous();
    ASSERT_TRUE(rendezvous->put_text("world/rank 1", card).ok());
    expect_words(device->join(rank(0, 2), *rendezvous).status(), Code::invalid_argument,
                 {"rank 1 of group world", "another version"});
  }
}

TEST_F(Joined, cards_that_cannot_be_read_are_refused) {
  rendezvous = memory_rendezvous();
  const std::string whole = net::card_text(rank(1, 2), 1, card_at(1));
  for (size_t length = whole.find('\n'); length < whole.size(); length += 7) {
    rendezvous = memory_rendezvous();
    ASSERT_TRUE(rendezvous->put_text("world/rank 1", whole.substr(0, length)).ok());
    expect_words(device->join(rank(0, 2), *rendezvous).status(), Code::invalid_argument,
                 {"rank 1 of group world has not the secret"});
  }
  net::Card nowhere = card_at(1);
  nowhere.address.clear();
  for (const net::Card& bad : {card_at(0), card_at(-1), card_at(65536), nowhere}) {
    rendezvous = memory_rendezvous();
    put_card(rank(1, 2), *rendezvous, bad);
    expect_words(device->join(rank(0, 2), *rendezvous).status(), Code::invalid_argument,
                 {"rank 1 of group world", "cannot be read"});
  }
}

TEST_F(Joined, a_card_of_another_rank_is_refused) {
  ASSERT_TRUE(rendezvous->put_text("world/rank 1", net::card_text(rank(2, 2), 2, card_at(1))).ok());
  expect_words(device->join(rank(0, 2), *rendezvous).status(), Code::invalid_argument, {"rank 1", "secret"});
}

TEST_F(Joined, a_peer_that_is_gone_before_it_is_reached_is_named) {
  put_card(rank(0, 2), *rendezvous, card_at(1));  // nobody listens at port 1
  expect_words(device->join(rank(1, 2), *rendezvous).status(), Code::peer_failed,
               {"rank 0 of group world", "cannot be reached"});
  rendezvous = memory_rendezvous();
  put_card(rank(1, 2), *rendezvous, card_at(1));
  expect_words(device->join(rank(0, 2, 0.02), *rendezvous).status(), Code::deadline_exceeded,
               {"rank 1 said where to be found, but did not connect"});
}

TEST_F(Joined, bad_arguments_are_refused) {
  for (const Joining& bad : {rank(2, 2), rank(-1, 2), rank(0, 0), rank(0, 100000), rank(0, 2, -1)}) {
    EXPECT_EQ(device->join(bad, *rendezvous).status().code(), Code::invalid_argument);
  }
  Joining unnamed = rank(0, 1);
  unnamed.group.clear();
  EXPECT_EQ(device->join(unnamed, *rendezvous).status().code(), Code::invalid_argument);
}

TEST_F(Joined, a_peer_that_says_nothing_is_not_waited_for_for_ever) {
  Joining impatient = rank(0, 2);
  impatient.silence_seconds = 0.05;
  auto both = join_both(impatient, rank(1, 2));
  ASSERT_TRUE(both[0].ok() && both[1].ok());
  auto stream = device->create_stream(1).value();
  expect_words((*both[0])->run(*stream, {.kind = Kind::barrier}), Code::peer_failed,
               {"group world, call 1 of rank 0, barrier(): rank 1 of 2 is missing: it"});  // its process may answer
  EXPECT_FALSE((*both[0])->lost().ok());
  // The other hears of it, if not in the call that was answered, then in the next one.
  Status status;
  for (int call = 0; call < 2 && status.ok(); ++call) status = (*both[1])->run(*stream, {.kind = Kind::barrier});
  expect_words(status, Code::peer_failed, {"rank 1 of 2 is missing"});
}

TEST_F(Joined, a_call_that_waits_looks_for_a_stop) {
  auto both = join_both(rank(0, 2), rank(1, 2));
  ASSERT_TRUE(both[0].ok() && both[1].ok());
  auto stream = device->create_stream(1).value();
  int asked = 0;
  (*both[0])->watch([&] { return ++asked < 3 ? Status() : error(Code::cancelled, "enough"); });
  auto subgroup = (*both[0])->split("subgroup", std::vector<int>{0, 1}).value();
  expect_words(subgroup->run(*stream, {.kind = Kind::barrier}), Code::cancelled, {"enough"});
  EXPECT_EQ(asked, 3);
  EXPECT_TRUE((*both[0])->lost().ok());
  (*both[0])->watch(nullptr);
}

TEST_F(Joined, who_leaves_is_lost_but_for_those_who_come_together_anew) {
  auto both = join_both(rank(0, 2), rank(1, 2));
  ASSERT_TRUE(both[0].ok() && both[1].ok());
  auto stream = device->create_stream(1).value();
  both[1].value().reset();
  expect_words((*both[0])->run(*stream, {.kind = Kind::barrier}), Code::peer_failed, {"rank 1 of 2", "left the group"});
  EXPECT_FALSE((*both[0])->lost().ok());

  rendezvous = memory_rendezvous();
  both = join_both(rank(0, 2), rank(1, 2));
  ASSERT_TRUE(both[0].ok() && both[1].ok());
  (*both[1])->abort(error(Code::cancelled, "no more"));
  (*both[1])->retire();
  both[1].value().reset();
  EXPECT_EQ((*both[0])->run(*stream, {.kind = Kind::barrier}).code(), Code::cancelled);
  EXPECT_TRUE((*both[0])->lost().ok());
}

TEST_F(Joined, members_of_a_subgroup_must_be_the_same_to_all) {
  std::vector<Result<std::unique_ptr<Communicator>>> three;
  for (int r = 0; r < 3; ++r) three.emplace_back(Status());
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) threads.emplace_back([&, r] { three[r] = device->join(rank(r, 3), *rendezvous); });
  for (std::thread& thread : threads) thread.join();
  auto stream = device->create_stream(1).value(), other = device->create_stream(1).value();
  auto a = (*three[0])->split("subgroup", std::vector<int>{0, 1}).value();
  auto b = (*three[1])->split("subgroup", std::vector<int>{0, 1, 2}).value();
  std::thread thread([&] { EXPECT_EQ(b->run(*other, {.kind = Kind::barrier}).code(), Code::misuse); });
  expect_words(a->run(*stream, {.kind = Kind::barrier}), Code::misuse, {"subgroup", "other ranks"});
  thread.join();
}

// A rank of whoever wrote this test: it has read the card of rank 0, has a connection to it, and nothing else.
class ByHand {
 public:
  ByHand(const Joining& own, Rendezvous& rendezvous) : own_(own) {
    std::istringstream lines(rendezvous.get_text("world/rank 0", 20).value());
    std::string line;
    std::getline(lines, line), std::getline(lines, line), std::getline(lines, line);
    card_.size = std::atoi(line.c_str());
    std::getline(lines, card_.address), std::getline(lines, line), std::getline(lines, card_.drawn);
    card_.port = std::atoi(line.c_str());
    socket_ = connect_within({card_.address, card_.port}, deadline_, false).value();
  }
  Status introduce() const {
    return epl::introduce(socket_, own_.secret, net::card_subject(own_, 0, card_), own_.rank, deadline_).status();
  }
  void say(std::string_view text) const { EXPECT_TRUE(send_all(socket_, text, deadline_).ok()); }

 private:
  const std::function<double()> clock_ = TestHost().host().seconds;
  const Deadline deadline_{clock_, 20};
  Joining own_;
  net::Card card_;
  Descriptor socket_;
};

TEST_F(Joined, strangers_are_turned_away) {
  put_card(rank(1, 2), *rendezvous, card_at(1));
  std::thread stranger([&] {
    Joining wrong = rank(1, 2);
    wrong.secret = "a guess";
    expect_words(ByHand(wrong, *rendezvous).introduce(), Code::invalid_argument, {"do not have the same secret"});
    ByHand(wrong, *rendezvous).say(std::string(200, 'x'));
  });
  expect_words(device->join(rank(0, 2, 1), *rendezvous).status(), Code::deadline_exceeded,
               {"rank 1", "did not connect", "2 strangers", "turned away, the last one from 127.0.0.1"});
  stranger.join();
}

TEST_F(Joined, strangers_who_say_nothing_keep_nobody_out) {
  std::vector<std::unique_ptr<ByHand>> mute;
  std::thread strangers([&] {
    for (int i = 0; i < 5; ++i) mute.push_back(std::make_unique<ByHand>(rank(1, 2), *rendezvous));
    mute.front()->say("epl");  // and no more
  });
  Result<std::unique_ptr<Communicator>> other = Status();
  std::thread late([&] {
    strangers.join();
    other = device->join(rank(1, 2), *rendezvous);
  });
  EXPECT_TRUE(device->join(rank(0, 2), *rendezvous).ok());
  late.join();
  EXPECT_TRUE(other.ok()) << other.status().to_string();
}

// Strangers cost nothing: where descriptors are short, the longest unknown makes room. The rank that comes at last is a
// process of its own.
TEST_F(Joined, strangers_who_hold_connections_keep_nobody_out) {
  const TemporaryFolder temporary;
  const auto folder = folder_rendezvous(temporary / "meet").value();
  int go[2];
  ASSERT_EQ(::pipe2(go, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    char ignored = 0;
    const bool told = ::read(go[0], &ignored, 1) == 1;
    const ByHand comes(rank(1, 2), *folder);
    const bool well = told && comes.introduce().ok();
    static_cast<void>(::read(go[0], &ignored, 1));  // it stays until the other one has seen it
    ::_exit(well ? 0 : 1);
  }
  put_card(rank(1, 2), *folder, card_at(1));
  rlimit before{}, few{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  few = before;
  few.rlim_cur = 200;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<Descriptor> strangers;
  std::thread hold([&] {
    const std::function<double()> clock = TestHost().host().seconds;
    const Deadline deadline(clock, 20);
    std::istringstream lines(folder->get_text("world/rank 0", 20).value());
    std::string line, address;
    for (int i = 0; i < 3; ++i) std::getline(lines, line);
    std::getline(lines, address), std::getline(lines, line);
    for (;;) {  // both ends count
      auto one = connect_within({address, std::atoi(line.c_str())}, deadline, false);
      if (!one.ok()) break;
      strangers.push_back(std::move(*one));
    }
    EXPECT_EQ(::write(go[1], "!", 1), 1);
  });
  const auto own = device->join(rank(0, 2), *folder);
  hold.join();
  EXPECT_EQ(::write(go[1], "!", 1), 1);
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(own.ok()) << own.status().to_string();
  EXPECT_GT(strangers.size(), 50u);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::close(go[0]), ::close(go[1]);
}

TEST_F(Joined, a_listener_that_says_nothing_is_not_waited_for_for_ever) {
  Endpoint at{"127.0.0.1", 0};
  const Descriptor listener = listen_at(at, 4).value();
  put_card(rank(0, 2), *rendezvous, card_at(at.port));
  expect_words(device->join(rank(1, 2, 0.05), *rendezvous).status(), Code::deadline_exceeded,
               {"rank 0 of group world", "says nothing"});
}

// The secret alone does not make a listener a peer: it must have put the card that was read.
TEST_F(Joined, a_listener_of_another_card_is_refused) {
  Endpoint at{"127.0.0.1", 0};
  const Descriptor listener = listen_at(at, 4).value();
  put_card(rank(0, 2), *rendezvous, card_at(at.port));
  std::thread thread([&] {
    Descriptor socket;
    while (!socket.open()) socket = accept_next(listener).value();
    net::Card other = card_at(at.port);
    other.drawn = "2";
    Guest guest = Guest::greet(std::move(socket), "", net::card_subject(rank(0, 2), 0, other)).value();
    while (guest.read() == Guest::State::unknown) std::this_thread::yield();
    EXPECT_EQ(guest.read(), Guest::State::stranger);
  });
  expect_words(device->join(rank(1, 2), *rendezvous).status(), Code::invalid_argument, {"rank 0", "same secret"});
  thread.join();
}

TEST_F(Joined, a_rank_that_connects_twice_is_told) {
  put_card(rank(1, 3), *rendezvous, card_at(1, 3));
  put_card(rank(2, 3), *rendezvous, card_at(1, 3));
  std::thread thread([&] {
    const ByHand first(rank(1, 3), *rendezvous), second(rank(1, 3), *rendezvous);
    EXPECT_TRUE(first.introduce().ok());
    expect_words(second.introduce(), Code::invalid_argument,
                 {"rank 1", "two processes take themselves for the same rank"});
    EXPECT_TRUE(ByHand(rank(2, 3), *rendezvous).introduce().ok());
  });
  EXPECT_TRUE(device->join(rank(0, 3), *rendezvous).ok());
  thread.join();
}

TEST_F(Joined, a_peer_that_ends_or_talks_nonsense_is_an_error_of_the_call) {
  for (const bool nonsense : {false, true}) {
    rendezvous = memory_rendezvous();
    put_card(rank(1, 2), *rendezvous, card_at(1));
    std::unique_ptr<ByHand> peer;
    std::thread thread([&] {
      peer = std::make_unique<ByHand>(rank(1, 2), *rendezvous);
      EXPECT_TRUE(peer->introduce().ok());
    });
    auto joined = device->join(rank(0, 2), *rendezvous);
    thread.join();
    ASSERT_TRUE(joined.ok()) << joined.status().to_string();
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (nonsense) {
        peer->say(std::string(200, 'x'));
      } else {
        peer.reset();
      }
    });
    auto stream = device->create_stream(1).value();
    float x = 1;
    const Status status = (*joined)->run(*stream, {.kind = Kind::all_reduce,
                                                   .dtype = DType::f32,
                                                   .count = 1,
                                                   .source = &x,
                                                   .target = &x,
                                                   .reduction = Reduction::sum});
    expect_words(status, Code::peer_failed,
                 {"group world, call 1 of rank 0, all_reduce(1 x f32, sum): rank 1 of 2 is missing",
                  nonsense ? "makes no sense" : "its connection has ended"});
    EXPECT_EQ(x, 1);
    EXPECT_FALSE((*joined)->lost().ok());
    later.join();
  }
}

// What a peer sends before anybody asks for it is kept, however much the system takes at once.
TEST_F(Joined, sends_do_not_wait_for_their_receiver) {
  auto both = join_both(rank(0, 2), rank(1, 2));
  ASSERT_TRUE(both[0].ok() && both[1].ok());
  const int64_t count = 8 << 20;
  std::vector<uint8_t> own(count), got(count);
  auto stream = device->create_stream(1).value();
  for (int r = 0; r < 2; ++r) {  // both by this one thread
    std::fill(own.begin(), own.end(), static_cast<uint8_t>(r + 1));
    ASSERT_TRUE(
        (*both[r])->run(*stream, {.kind = Kind::send, .count = count, .source = own.data(), .peer = 1 - r}).ok());
  }
  for (int r = 0; r < 2; ++r) {
    ASSERT_TRUE(
        (*both[r])->run(*stream, {.kind = Kind::receive, .count = count, .target = got.data(), .peer = 1 - r}).ok());
    EXPECT_EQ(got, std::vector<uint8_t>(count, static_cast<uint8_t>(2 - r)));
  }
  // And it arrives though its sender leaves right afterwards.
  ASSERT_TRUE((*both[0])->run(*stream, {.kind = Kind::send, .count = count, .source = own.data(), .peer = 1}).ok());
  both[0].value().reset();
  EXPECT_TRUE((*both[1])->run(*stream, {.kind = Kind::receive, .count = count, .target = got.data(), .peer = 0}).ok());
  EXPECT_EQ(got, own);
}

TEST(Sim, ranks_are_of_one_process) {
  TestHost memory;
  auto device = open_device("sim", memory.host()).value();
  const auto rendezvous = memory_rendezvous();
  EXPECT_EQ(device->join({.group = "world", .rank = 0, .size = 1}, *rendezvous).status().code(), Code::unsupported);
}

}  // namespace
}  // namespace epl::join_test
