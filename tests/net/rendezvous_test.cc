// Where processes find each other: what is put once is got by everyone, whatever its name and whoever comes first.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/net/handshake.h"
#include "core/net/store.h"
#include "tests/temporary_folder.h"

namespace epl::rendezvous_test {
namespace {

namespace fs = std::filesystem;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
const std::function<double()> clock_of_tests = seconds_now;

int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  int64_t all = 0, resident = 0;
  in >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

class AnyRendezvous : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "memory") {
      rendezvous = memory_rendezvous();
      return;
    }
    if (GetParam() == "store") {
      store = Store::serve({"127.0.0.1", 0}, "secret").value();
      rendezvous = store_rendezvous(store->at(), "secret", seconds_now, 20);
      return;
    }
    auto made = folder_rendezvous(folder);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    rendezvous = *made;
  }

  const TemporaryFolder temporary;
  const std::string folder = temporary / "meet";
  std::unique_ptr<Store> store;
  std::shared_ptr<Rendezvous> rendezvous;
};

TEST_P(AnyRendezvous, what_is_put_is_got_by_everyone) {
  const std::string bytes("a\0b", 3);
  for (const std::string& key :
       {std::string("a"), std::string("../a"), std::string("a/b c\n\0d", 8), std::string("A")}) {
    ASSERT_TRUE(rendezvous->put_text(key, key == "A" ? "" : bytes).ok());
    for (int again = 0; again < 2; ++again) EXPECT_EQ(*rendezvous->get_text(key, 0), key == "A" ? "" : bytes);
  }
  if (GetParam() == "folder") {
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 4) << "and nothing beside";
  }
}

TEST_P(AnyRendezvous, who_comes_first_waits) {
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_TRUE(rendezvous->put_text("late", "here").ok());
  });
  EXPECT_EQ(*rendezvous->get_text("late", 20), "here");
  later.join();
}

TEST_P(AnyRendezvous, nobody_waits_for_ever) {
  for (const double seconds : {0.0, 0.02, -1.0}) {
    const Status status = rendezvous->get_text("group/rank 3", seconds).status();
    EXPECT_EQ(status.code(), Code::deadline_exceeded);
    EXPECT_NE(status.message().find("\"group/rank 3\""), std::string::npos) << status.message();
  }
}

TEST_P(AnyRendezvous, a_key_is_put_once) {
  ASSERT_TRUE(rendezvous->put_text("rank 0", "first").ok());
  const Status status = rendezvous->put_text("rank 0", "second");
  EXPECT_EQ(status.code(), Code::misuse);
  EXPECT_NE(status.message().find("\"rank 0\""), std::string::npos) << status.message();
  EXPECT_EQ(*rendezvous->get_text("rank 0", 0), "first");
}

TEST_P(AnyRendezvous, one_of_many_who_put_the_same_wins) {
  std::atomic<int> won{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { won += rendezvous->put_text("only", "one").ok(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(won, 1);
}

INSTANTIATE_TEST_SUITE_P(, AnyRendezvous, testing::Values("memory", "folder", "store"),
                         [](const auto& info) { return info.param; });

TEST(FolderRendezvous, reaches_another_process) {
  const TemporaryFolder temporary;
  const std::string folder = temporary / "meet";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto rendezvous = folder_rendezvous(folder);
    const bool well =
        rendezvous.ok() && (*rendezvous)->put_text("child", "c").ok() && (*rendezvous)->get_text("parent", 20).ok();
    ::_exit(well ? 0 : 1);
  }
  auto rendezvous = folder_rendezvous(folder);
  ASSERT_TRUE(rendezvous.ok());
  EXPECT_EQ(*(*rendezvous)->get_text("child", 20), "c");
  EXPECT_TRUE((*rendezvous)->put_text("parent", "p").ok());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  fs::remove_all(folder);
}

void expect_words(const Status& status, Code code, const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  for (const std::string& word : words) EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
}

TEST(StoreRendezvous, who_has_another_secret_or_none_is_refused) {
  const auto store = Store::serve({"127.0.0.1", 0}, "secret").value();
  for (const char* other : {"another", "", "secret "}) {
    const auto rendezvous = store_rendezvous(store->at(), other, seconds_now, 20);
    expect_words(rendezvous->put_text("a", "x"), Code::invalid_argument,
                 {store->at().text(), "do not have the same secret"});
    expect_words(rendezvous->get_text("a", 1).status(), Code::invalid_argument, {"do not have the same secret"});
  }
  EXPECT_TRUE(store_rendezvous(store->at(), "secret", seconds_now, 20)->put_text("a", "x").ok());
}

TEST(StoreRendezvous, one_who_waits_keeps_nobody_from_putting) {
  const auto store = Store::serve({"127.0.0.1", 0}, "").value();
  const auto rendezvous = store_rendezvous(store->at(), "", seconds_now, 20);
  std::vector<std::thread> waiting;
  for (int i = 0; i < 4; ++i)
    waiting.emplace_back([&] { EXPECT_EQ(rendezvous->get_text("late", 20).value(), "here"); });
  expect_words(rendezvous->get_text("never", 0.02).status(), Code::deadline_exceeded,
               {"\"never\"", store->at().text()});
  EXPECT_TRUE(rendezvous->put_text("late", "here").ok());
  for (std::thread& thread : waiting) thread.join();
  const std::string large(3 << 20, 'x');
  EXPECT_TRUE(rendezvous->put_text("large", large).ok());
  EXPECT_EQ(rendezvous->get_text("large", 20).value(), large);
  EXPECT_EQ(rendezvous->own_address().value(), "127.0.0.1");
}

TEST(StoreRendezvous, strangers_do_no_harm) {
  const auto store = Store::serve({"127.0.0.1", 0}, "secret").value();
  const Deadline deadline(clock_of_tests, 20);
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 300; ++i) {  // more than may stand at its door
    strangers.push_back(connect_within(store->at(), deadline, false).value());
    if (i % 2 == 0) {
      EXPECT_TRUE(send_all(strangers.back(), std::string(i * 10, 'x'), deadline).ok());
    }
  }
  const auto rendezvous = store_rendezvous(store->at(), "secret", seconds_now, 20);
  EXPECT_TRUE(rendezvous->put_text("a", "x").ok());
  EXPECT_EQ(rendezvous->get_text("a", 20).value(), "x");
}

// What one client asks for and does not read is not kept for it, however often it asks; the others are served
// meanwhile.
TEST(StoreRendezvous, what_nobody_reads_takes_no_memory) {
  constexpr size_t large = 16 << 20, looks = 200;
  const auto store = Store::serve({"127.0.0.1", 0}, "secret").value();
  const auto rendezvous = store_rendezvous(store->at(), "secret", seconds_now, 20);
  ASSERT_TRUE(rendezvous->put_text("large", std::string(large, 'x')).ok());
  const Deadline deadline(clock_of_tests, 20);
  const Descriptor greedy = connect_within(store->at(), deadline, false).value();
  ASSERT_TRUE(introduce(greedy, "secret", "epl store 1", 0, deadline).ok());
  const int64_t before = resident_bytes();
  const uint32_t head[] = {2, 5, 0, 0};  // look, for a key of five bytes
  std::string asked;
  for (size_t i = 0; i < looks; ++i) asked += std::string(reinterpret_cast<const char*>(head), sizeof head) + "large";
  ASSERT_TRUE(send_all(greedy, asked, deadline).ok());
  for (int i = 0; i < 50; ++i) {
    const double start = seconds_now();
    EXPECT_EQ(rendezvous->get_text("large", 20).value().size(), large);
    EXPECT_LT(seconds_now() - start, 5);
    if (i % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  // All answers would be 200; a sanitizer keeps some of what was freed.
  EXPECT_LT(resident_bytes() - before, static_cast<int64_t>(40 * large));
}

// Nor is there room for ever: who fills the store is told so, and it goes on for the others.
TEST(StoreRendezvous, a_store_takes_no_more_than_it_can_hold) {
  const auto store = Store::serve({"127.0.0.1", 0}, "").value();
  const auto rendezvous = store_rendezvous(store->at(), "", seconds_now, 20);
  const std::string large(32 << 20, 'x');
  Status status;
  int taken = 0;
  for (; taken < 16 && status.ok(); ++taken) status = rendezvous->put_text(cat("key ", taken), large);
  expect_words(status, Code::exhausted, {"has no room", "\"key "});
  EXPECT_TRUE(rendezvous->put_text("small", "x").ok());
  EXPECT_EQ(rendezvous->get_text("small", 20).value(), "x");
}

TEST(StoreRendezvous, a_store_that_is_not_there_or_silent_is_an_error_in_time) {
  const auto nobody = store_rendezvous({"127.0.0.1", 1}, "", seconds_now, 0.05);
  expect_words(nobody->put_text("a", "x"), Code::peer_failed, {"127.0.0.1:1", "cannot be reached"});
  Endpoint at{"127.0.0.1", 0};
  const Descriptor listener = listen_at(at, 4).value();
  const auto silent = store_rendezvous(at, "", seconds_now, 0.05);
  expect_words(silent->put_text("a", "x"), Code::deadline_exceeded, {at.text(), "says nothing"});
  auto store = Store::serve({"127.0.0.1", 0}, "").value();
  const auto gone = store_rendezvous(store->at(), "", seconds_now, 0.05);
  EXPECT_TRUE(gone->put_text("a", "x").ok());
  store.reset();
  EXPECT_EQ(gone->get_text("a", 20).status().code(), Code::peer_failed);
}

TEST(StoreRendezvous, addresses_are_read_or_refused) {
  EXPECT_EQ(parse_endpoint("10.0.0.1:80")->text(), "10.0.0.1:80");
  EXPECT_EQ(parse_endpoint("[::1]:80")->host, "::1");
  EXPECT_EQ(parse_endpoint("[::1]:80")->text(), "[::1]:80");
  const std::string digits(64, 'a'), names = std::string(300, 'x') + ":80";
  for (const std::string& bad :
       {std::string(""), std::string(":"), std::string("a"), std::string("a:"), std::string(":80"),
        std::string("a:65536"), std::string("a:-1"), std::string("a:8x"), std::string("a: 8"), std::string("a b:8"),
        "epl-id-1:" + digits + ":127.0.0.1:80", digits + ":80", names, std::string("a:b:80"), std::string("[x]y:80")}) {
    const Status status = parse_endpoint(bad).status();
    EXPECT_EQ(status.code(), Code::invalid_argument) << bad;
    EXPECT_EQ(status.message().find("aaaaaa"), std::string::npos) << "a secret is not repeated: " << status.message();
  }
  EXPECT_EQ(Store::serve({"192.0.2.1", 0}, "").status().code(), Code::io) << "not an address of this host";
}

// Who is there and where is nobody else's business, however the process makes its files.
TEST(FolderRendezvous, is_of_this_user_alone) {
  const mode_t before = ::umask(0);
  const TemporaryFolder temporary;
  const std::string folder = temporary / "above/meet/";
  const auto rendezvous = folder_rendezvous(folder);
  ASSERT_TRUE(rendezvous.ok()) << rendezvous.status().to_string();
  ASSERT_TRUE((*rendezvous)->put_text("a", "x").ok());
  ::umask(before);
  EXPECT_EQ(fs::status(folder).permissions(), fs::perms::owner_all);
  for (const fs::directory_entry& file : fs::directory_iterator(folder))
    EXPECT_EQ(file.status().permissions(), fs::perms::owner_read | fs::perms::owner_write) << file.path();
}

TEST(FolderRendezvous, refuses_what_cannot_be) {
  EXPECT_EQ(folder_rendezvous("").status().code(), Code::invalid_argument);
  EXPECT_FALSE(folder_rendezvous("/proc/nothing/here").ok());
  const TemporaryFolder temporary;
  const std::string folder = temporary / "meet";
  auto rendezvous = folder_rendezvous(folder);
  ASSERT_TRUE(rendezvous.ok());
  for (const std::string& key : {std::string(), std::string(300, 'a')}) {
    EXPECT_EQ((*rendezvous)->put_text(key, "x").code(), Code::invalid_argument);
    EXPECT_EQ((*rendezvous)->get_text(key, 0).status().code(), Code::invalid_argument);
  }
  fs::remove_all(folder);
  EXPECT_FALSE((*rendezvous)->put_text("a", "x").ok());
}

}  // namespace
}  // namespace epl::rendezvous_test
