#include "core/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>

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

}  // namespace
}  // namespace epl::thread_pool_test
