// Where processes find each other: what is put once is got by everyone, whatever its name and whoever comes first.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "core/backend/store.h"
#include "tests/temporary_folder.h"

namespace epl::rendezvous_test {
namespace {

namespace fs = std::filesystem;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
const std::function<double()> clock_of_tests = seconds_now;

class Meeting : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "memory") {
      place = memory_rendezvous();
      return;
    }
    if (GetParam() == "store") {
      store = Store::serve({"127.0.0.1", 0}, "secret").value();
      place = store_rendezvous(store->at(), "secret", seconds_now, 20);
      return;
    }
    auto made = folder_rendezvous(folder);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    place = *made;
  }

  const TemporaryFolder temporary;
  const std::string folder = temporary / "meet";
  std::unique_ptr<Store> store;
  std::shared_ptr<Rendezvous> place;
};

TEST_P(Meeting, what_is_put_is_got_by_everyone) {
  const std::string bytes("a\0b", 3);
  for (const std::string& key :
       {std::string("a"), std::string("../a"), std::string("a/b c\n\0d", 8), std::string("A")}) {
    ASSERT_TRUE(place->put_text(key, key == "A" ? "" : bytes).ok());
    for (int again = 0; again < 2; ++again) EXPECT_EQ(*place->get_text(key, 0), key == "A" ? "" : bytes);
  }
  if (GetParam() == "folder") {
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 4) << "and nothing beside";
  }
}

TEST_P(Meeting, who_comes_first_waits) {
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_TRUE(place->put_text("late", "here").ok());
  });
  EXPECT_EQ(*place->get_text("late", 20), "here");
  later.join();
}

TEST_P(Meeting, nobody_waits_for_ever) {
  for (const double seconds : {0.0, 0.02, -1.0}) {
    const Status status = place->get_text("group/rank 3", seconds).status();
    EXPECT_EQ(status.code(), Code::deadline_exceeded);
    EXPECT_NE(status.message().find("\"group/rank 3\""), std::string::npos) << status.message();
  }
}

TEST_P(Meeting, a_key_is_put_once) {
  ASSERT_TRUE(place->put_text("rank 0", "first").ok());
  const Status status = place->put_text("rank 0", "second");
  EXPECT_EQ(status.code(), Code::misuse);
  EXPECT_NE(status.message().find("\"rank 0\""), std::string::npos) << status.message();
  EXPECT_EQ(*place->get_text("rank 0", 0), "first");
}

TEST_P(Meeting, one_of_many_who_put_the_same_wins) {
  std::atomic<int> won{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { won += place->put_text("only", "one").ok(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(won, 1);
}

INSTANTIATE_TEST_SUITE_P(, Meeting, testing::Values("memory", "folder", "store"),
                         [](const auto& info) { return info.param; });

TEST(FolderMeeting, reaches_another_process) {
  const TemporaryFolder temporary;
  const std::string folder = temporary / "meet";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto place = folder_rendezvous(folder);
    const bool well = place.ok() && (*place)->put_text("child", "c").ok() && (*place)->get_text("parent", 20).ok();
    ::_exit(well ? 0 : 1);
  }
  auto place = folder_rendezvous(folder);
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(*(*place)->get_text("child", 20), "c");
  EXPECT_TRUE((*place)->put_text("parent", "p").ok());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  fs::remove_all(folder);
}

void expect_words(const Status& status, Code code, const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  for (const std::string& word : words) EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
}

TEST(StoreMeeting, who_has_another_secret_or_none_is_refused) {
  const auto store = Store::serve({"127.0.0.1", 0}, "secret").value();
  for (const char* other : {"another", "", "secret "}) {
    const auto place = store_rendezvous(store->at(), other, seconds_now, 20);
    expect_words(place->put_text("a", "x"), Code::invalid_argument,
                 {store->at().text(), "do not have the same secret"});
    expect_words(place->get_text("a", 1).status(), Code::invalid_argument, {"do not have the same secret"});
  }
  EXPECT_TRUE(store_rendezvous(store->at(), "secret", seconds_now, 20)->put_text("a", "x").ok());
}

TEST(StoreMeeting, one_who_waits_keeps_nobody_from_putting) {
  const auto store = Store::serve({"127.0.0.1", 0}, "").value();
  const auto place = store_rendezvous(store->at(), "", seconds_now, 20);
  std::vector<std::thread> waiting;
  for (int i = 0; i < 4; ++i) waiting.emplace_back([&] { EXPECT_EQ(place->get_text("late", 20).value(), "here"); });
  expect_words(place->get_text("never", 0.02).status(), Code::deadline_exceeded, {"\"never\"", store->at().text()});
  EXPECT_TRUE(place->put_text("late", "here").ok());
  for (std::thread& thread : waiting) thread.join();
  const std::string large(3 << 20, 'x');
  EXPECT_TRUE(place->put_text("large", large).ok());
  EXPECT_EQ(place->get_text("large", 20).value(), large);
  EXPECT_EQ(place->own_address().value(), "127.0.0.1");
}

TEST(StoreMeeting, strangers_do_no_harm) {
  const auto store = Store::serve({"127.0.0.1", 0}, "secret").value();
  const Deadline deadline(clock_of_tests, 20);
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 300; ++i) {  // more than may stand at its door
    strangers.push_back(connect_within(store->at(), deadline, false).value());
    if (i % 2 == 0) {
      EXPECT_TRUE(send_whole(strangers.back(), std::string(i * 10, 'x'), deadline).ok());
    }
  }
  const auto place = store_rendezvous(store->at(), "secret", seconds_now, 20);
  EXPECT_TRUE(place->put_text("a", "x").ok());
  EXPECT_EQ(place->get_text("a", 20).value(), "x");
}

TEST(StoreMeeting, a_store_that_is_not_there_or_silent_is_an_error_in_time) {
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

TEST(StoreMeeting, addresses_are_read_or_refused) {
  EXPECT_EQ(parse_endpoint("10.0.0.1:80")->text(), "10.0.0.1:80");
  EXPECT_EQ(parse_endpoint("[::1]:80")->host, "::1");
  EXPECT_EQ(parse_endpoint("[::1]:80")->text(), "[::1]:80");
  for (const char* bad : {"", ":", "a", "a:", ":80", "a:65536", "a:-1", "a:8x", "a: 8"})
    EXPECT_EQ(parse_endpoint(bad).status().code(), Code::invalid_argument) << bad;
  EXPECT_EQ(Store::serve({"192.0.2.1", 0}, "").status().code(), Code::io) << "not an address of this host";
}

TEST(FolderMeeting, refuses_what_cannot_be) {
  EXPECT_EQ(folder_rendezvous("").status().code(), Code::invalid_argument);
  EXPECT_FALSE(folder_rendezvous("/proc/nothing/here").ok());
  const TemporaryFolder temporary;
  const std::string folder = temporary / "meet";
  auto place = folder_rendezvous(folder);
  ASSERT_TRUE(place.ok());
  for (const std::string& key : {std::string(), std::string(300, 'a')}) {
    EXPECT_EQ((*place)->put_text(key, "x").code(), Code::invalid_argument);
    EXPECT_EQ((*place)->get_text(key, 0).status().code(), Code::invalid_argument);
  }
  fs::remove_all(folder);
  EXPECT_FALSE((*place)->put_text("a", "x").ok());
}

}  // namespace
}  // namespace epl::rendezvous_test
