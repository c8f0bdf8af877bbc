#include "core/base/folder_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/temporary_folder.h"

namespace epl::folder_lock_test {
namespace {

// Runs `f` in a child, whose exit code it gives; it may be killed on the way by who has its number.
pid_t child(const std::function<int()>& f) {
  const pid_t made = ::fork();
  if (made == 0) ::_exit(f());
  return made;
}
int ended(pid_t one) {
  int status = 0;
  ::waitpid(one, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// 0: taken, 1: busy, 2: else.
int try_to_take(const std::string& folder) {
  const auto taken = OwnedFolder::take(folder);
  return taken.ok() ? 0 : taken.status().code() == Code::busy ? 1 : 2;
}

// A child that has the folder and waits to be killed.
pid_t owner_of(const std::string& folder) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t one = child([&]() -> int {
    const auto taken = OwnedFolder::take(folder);
    char said = taken.ok() ? 'y' : 'n';
    if (::write(ends[1], &said, 1) != 1) return 1;
    while (true) ::pause();
  });
  char said = 0;
  EXPECT_EQ(::read(ends[0], &said, 1), 1);
  EXPECT_EQ(said, 'y');
  ::close(ends[0]);
  ::close(ends[1]);
  return one;
}

TEST(FolderLock, ASecondOwnerIsToldWhoHasIt) {
  const TemporaryFolder folder;
  auto first = OwnedFolder::take(folder.path());
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  const auto second = OwnedFolder::take(folder.path());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::busy);
  const std::string message = second.status().message(), us = "is in use by process " + std::to_string(::getpid());
  EXPECT_NE(message.find(us), std::string::npos) << message;
  // By another way to the same folder too.
  EXPECT_EQ(try_to_take(folder.path() + "/../" + std::filesystem::path(folder.path()).filename().string()), 1);
  first->reset();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "the lock leaves something";
  EXPECT_EQ(try_to_take(folder.path()), 0);
}

TEST(FolderLock, AnotherProcessIsTheOwnerUntilItIsKilled) {
  const TemporaryFolder folder;
  for (const int signal : {SIGKILL, SIGTERM, SIGKILL}) {
    const pid_t owner = owner_of(folder.path());
    const auto refused = OwnedFolder::take(folder.path());
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.status().message().find("process " + std::to_string(owner)), std::string::npos)
        << refused.status().message();
    ::kill(owner, signal);
    EXPECT_EQ(ended(owner), -signal);
    EXPECT_EQ(try_to_take(folder.path()), 0);
  }
}

TEST(FolderLock, AChildOfForkDoesNotHoldIt) {
  const TemporaryFolder folder;
  auto mine = OwnedFolder::take(folder.path());
  ASSERT_TRUE(mine.ok());
  const pid_t idle = child([]() -> int {
    while (true) ::pause();
  });
  // One that destroys what it has inherited takes nothing from its parent.
  EXPECT_EQ(ended(child([&] {
              mine->reset();
              return try_to_take(folder.path());
            })),
            1);
  EXPECT_EQ(try_to_take(folder.path()), 1);
  mine->reset();
  EXPECT_EQ(try_to_take(folder.path()), 0) << "the child keeps it";
  ::kill(idle, SIGKILL);
  ended(idle);
}

TEST(FolderLock, OfManyAtOnceOneHasIt) {
  const TemporaryFolder folder;
  // Each takes it, writes its number, waits, and reads it again: another one that had it meanwhile would show.
  const std::string note = folder / "note";
  std::vector<pid_t> all;
  for (int i = 0; i < 8; ++i) {
    all.push_back(child([&, i] {
      int times = 0;
      while (times < 8) {
        const auto taken = OwnedFolder::take(folder.path());
        if (!taken.ok()) {
          if (taken.status().code() != Code::busy) return 2;
          ::usleep(200);
          continue;
        }
        std::ofstream(note) << i;
        ::usleep(100);
        int found = -1;
        std::ifstream(note) >> found;
        if (found != i) return 3;
        ++times;
      }
      return 0;
    }));
  }
  for (const pid_t one : all) EXPECT_EQ(ended(one), 0);
}

TEST(FolderLock, WhatCannotBeLockedSaysWhy) {
  const TemporaryFolder folder;
  EXPECT_EQ(OwnedFolder::take("").status().code(), Code::invalid_argument);
  EXPECT_EQ(OwnedFolder::take(folder / "missing").status().code(), Code::not_found);
  std::ofstream(folder / "file") << "x";
  EXPECT_FALSE(OwnedFolder::take(folder / "file").ok());
  // What lies there under the lock's name and is none is nobody's to follow.
  std::filesystem::create_symlink("file", folder / OwnedFolder::file_name);
  EXPECT_FALSE(OwnedFolder::take(folder.path()).ok());
  std::filesystem::remove(folder / OwnedFolder::file_name);
  std::ofstream(folder / OwnedFolder::file_name) << "anything that a process before us has left";
  EXPECT_EQ(try_to_take(folder.path()), 0);
}

}  // namespace
}  // namespace epl::folder_lock_test
