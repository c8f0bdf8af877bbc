#include "core/base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/base/stop_tasks.h"

namespace epl::thread_pool_test {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const int size : {1, 3}) {
    ThreadPool pool(size);
    std::atomic<int64_t> sum{0};
    pool.run(1000, [&](int64_t i, int thread) { sum += i + (thread >= 0 && thread < size ? 0 : 1'000'000); });
    EXPECT_EQ(sum, 499500);
    sum = 0;
    pool.run_ranges(1000, 10, [&](int64_t begin, int64_t end) { sum += end - begin; });
    EXPECT_EQ(sum, 1000);
  }
}

// What has begun ends, and what has not is left out, until nobody may want to stop any more.
TEST(ThreadPool, LeavesOutWhatHasNotBegunOnceItIsStopped) {
  for (const int size : {1, 3}) {
    ThreadPool pool(size);
    std::atomic<int64_t> done{0}, covered{0};
    const auto enough = [&] { return done >= 10; };
    {
      StopTasks stop(&pool, enough);
      pool.run(1000, [&](int64_t, int) { ++done; });
      EXPECT_GE(done, 10);
      EXPECT_LE(done, 10 + size);
      EXPECT_TRUE(stop.left_out());
      done = 0;  // what is left out stays left out: the rest would be computed from what is not there
      pool.run(1000, [&](int64_t, int) { ++done; });
      EXPECT_EQ(done, 0);
    }
    {
      StopTasks stop(&pool, enough);  // loops over ranges are cut finely enough to be stopped on one thread as well
      pool.run_ranges(int64_t{1} << 20, 16, [&](int64_t begin, int64_t end) {
        ++done;
        covered += end - begin;
      });
      EXPECT_TRUE(stop.left_out());
      EXPECT_LT(covered, int64_t{1} << 19);
    }
    done = 0;
    pool.run(1000, [&](int64_t, int) { ++done; });
    EXPECT_EQ(done, 1000);
  }
}

// However many pools run loops at once, there are not more workers, and every loop ends.
TEST(Workers, AreSharedByThePoolsOfAnEngine) {
  const auto workers = std::make_shared<Workers>(4, ThreadPool::Wait::brief);
  EXPECT_EQ(workers->started(), 0);
  {
    std::vector<std::unique_ptr<ThreadPool>> pools;
    for (int i = 0; i < 6; ++i) pools.push_back(std::make_unique<ThreadPool>(workers, i % 2 == 0 ? 4 : 2));
    EXPECT_EQ(workers->started(), 3);
    std::vector<std::thread> callers;
    std::atomic<int64_t> sum{0};
    std::atomic<int> wrong{0};
    for (auto& pool : pools) {
      callers.emplace_back([&, pool = pool.get()] {
        for (int times = 0; times < 2000; ++times) {
          std::vector<int> seats(static_cast<size_t>(pool->size()));
          std::vector<char> done(1 + times % 40);
          pool->run(static_cast<int64_t>(done.size()), [&](int64_t i, int thread) {
            if (done[static_cast<size_t>(i)]++ != 0) ++wrong;
            ++seats[static_cast<size_t>(thread)];  // a seat is one thread's
          });
          for (const int one : seats) sum += one;
          for (const char one : done) wrong += one == 1 ? 0 : 1;
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(sum, 6 * 50 * (40 * 41 / 2));
    pools.resize(2);
    EXPECT_EQ(workers->started(), 3);
  }
  EXPECT_EQ(workers->started(), 0);
}

// A pool may want more than the engine's threads, and a loop goes on where all workers are taken.
TEST(Workers, AreTakenWhereTheyAreFree) {
  const auto workers = std::make_shared<Workers>(1, ThreadPool::Wait::brief);
  ThreadPool large(workers, 3), other(workers, 2);
  EXPECT_EQ(workers->started(), 2);
  std::atomic<int64_t> done{0};
  large.run(3, [&](int64_t, int) {
    if (done++ == 0) other.run(100, [&](int64_t, int) { ++done; });
  });
  EXPECT_EQ(done, 103);
}

// Tasks of a team meet: each has a thread, whoever else has a team now.
TEST(Workers, HaveTeamsWhoseThreadsMeet) {
  const auto workers = std::make_shared<Workers>(1, ThreadPool::Wait::brief);
  const std::shared_ptr<Teams> teams = workers->teams(3);
  EXPECT_EQ(workers->teams(3), teams);
  EXPECT_NE(workers->teams(2), teams);
  const auto meet = [&] {
    for (int times = 0; times < 200; ++times) {
      Team team(*teams);
      std::atomic<int> here{0};
      team.threads().run(3, [&](int64_t, int) {
        ++here;
        while (here < 3) std::this_thread::yield();
      });
      EXPECT_EQ(here, 3);
    }
  };
  std::thread other(meet);
  meet();
  other.join();
}

#if !defined(__SANITIZE_THREAD__)  // it starts no threads in a child of fork
TEST(Workers, AreStartedAnewInAChildOfFork) {
  const auto workers = std::make_shared<Workers>(3, ThreadPool::Wait::brief);
  const auto counts = [&] {
    ThreadPool pool(workers, 3);
    const std::shared_ptr<Teams> teams = workers->teams(2);  // outlives its team
    Team team(*teams);
    std::atomic<int64_t> done{0};
    pool.run(100, [&](int64_t, int) { ++done; });
    team.threads().run(2, [&](int64_t, int) { ++done; });
    return done.load();
  };
  ThreadPool kept(workers, 3);
  const std::shared_ptr<Teams> held = workers->teams(2);
  EXPECT_EQ(counts(), 102);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(counts() == 102 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(counts(), 102);
}
#endif

}  // namespace
}  // namespace epl::thread_pool_test
