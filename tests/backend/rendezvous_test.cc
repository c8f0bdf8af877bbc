// Where processes find each other: what is put once is got by everyone, whatever its name and whoever comes first.
#include "core/backend/rendezvous.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

namespace epl {
namespace {

namespace fs = std::filesystem;

class Meeting : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "memory") {
      place = memory_rendezvous();
      return;
    }
    folder = (fs::temp_directory_path() / ("epl_rendezvous_test_" + std::to_string(::getpid()))).string();
    fs::remove_all(folder);
    auto made = folder_rendezvous(folder);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    place = *made;
  }
  void TearDown() override {
    if (!folder.empty()) fs::remove_all(folder);
  }

  std::string folder;
  std::shared_ptr<Rendezvous> place;
};

TEST_P(Meeting, what_is_put_is_got_by_everyone) {
  const std::string bytes("a\0b", 3);
  for (const std::string& key :
       {std::string("a"), std::string("../a"), std::string("a/b c\n\0d", 8), std::string("A")}) {
    ASSERT_TRUE(place->put_text(key, key == "A" ? "" : bytes).ok());
    for (int again = 0; again < 2; ++again) EXPECT_EQ(*place->get_text(key, 0), key == "A" ? "" : bytes);
  }
  if (!folder.empty()) {
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

INSTANTIATE_TEST_SUITE_P(, Meeting, testing::Values("memory", "folder"), [](const auto& info) { return info.param; });

TEST(FolderMeeting, reaches_another_process) {
  const std::string folder =
      (fs::temp_directory_path() / ("epl_rendezvous_two_" + std::to_string(::getpid()))).string();
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

TEST(FolderMeeting, refuses_what_cannot_be) {
  EXPECT_EQ(folder_rendezvous("").status().code(), Code::invalid_argument);
  EXPECT_FALSE(folder_rendezvous("/proc/nothing/here").ok());
  const std::string folder =
      (fs::temp_directory_path() / ("epl_rendezvous_odd_" + std::to_string(::getpid()))).string();
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
}  // namespace epl
