// Waits that are left out, one after another, of trainings with several streams: each shows, as other bits, as a
// finding of the machine for tests, or as a recording that the driver refuses.
#include "tests/cuda/planted_training.h"

namespace epl::planted {
namespace {

constexpr Training given_steps = {"cuda:0", 1, "exact", 1, R"("pipeline.num_micro_batch": 2)"},
                   recorded_steps = {"cuda:0", 1, "exact", 3},
                   shards_of_ranks = {"cuda:0,1", 2, "exact", 2, R"("zero.level": "v2")"};

int waits_made = 0, wait_left_out = 0;  // the second one counted from 1; 0: none

void count_waits() {
  waits_made = 0;
  pack.driver->wait = [](StreamHandle on, EventHandle event, unsigned flags) {
    return ++waits_made == wait_left_out ? 0 : driver.wait(on, event, flags);
  };
}

class PlantedInStreams : public PlantedTraining {
 protected:
  bool shows(const Outcome& wrong, const Outcome& right) {
    return !same(wrong, right) || has_any(wrong.found, "race|that nobody has written|STREAM_CAPTURE");
  }
  // How many of the waits of a training nothing needs, by numbers.
  std::string needless(const Training& training, int& waits) {
    const Outcome right = outcome(training, nullptr);
    EXPECT_EQ(right.found, "") << "as it is";
    wait_left_out = 0;
    EXPECT_FALSE(shows(outcome(training, count_waits), right)) << "all are there";
    waits = waits_made;
    std::string out;
    for (int wait = 1; wait <= waits; ++wait) {
      wait_left_out = wait;
      bool found = false;
      for (int seed = 1; seed <= 3 && !found; ++seed) found = shows(outcome(training, count_waits, seed), right);
      if (!found) out += cat(" ", wait);
    }
    return out;
  }
};

TEST_F(PlantedInStreams, AWaitThatIsLeftOutIsFound) {
  int waits = 0;
  EXPECT_EQ(needless(given_steps, waits), "") << "of " << waits;
  EXPECT_GE(waits, 3) << "for copies in of two micro-batches, and out";
}

// There a stream joins the recording by any event of it, so that a first wait may say what a second one says.
TEST_F(PlantedInStreams, MostWaitsOfARecordingAreFound) {
  int waits = 0;
  const std::string none = needless(recorded_steps, waits);
  EXPECT_LT(std::ranges::count(none, ' '), waits / 2) << none << " of " << waits;
}

TEST_F(PlantedInStreams, NoWaitAtAllIsFound) {
  for (const Training* training : {&given_steps, &recorded_steps, &shards_of_ranks}) {
    const Outcome right = outcome(*training, nullptr);
    for (int seed = 1; seed <= 3; ++seed) {
      const Outcome wrong =
          outcome(*training, [] { pack.driver->wait = [](StreamHandle, EventHandle, unsigned) { return 0; }; }, seed);
      EXPECT_TRUE(shows(wrong, right)) << training->device << " " << training->keys << ", seed " << seed;
    }
  }
}

TEST_F(PlantedInStreams, ACopyOnTheContextsOwnStreamIsFound) {
  const Outcome right = outcome(given_steps, nullptr);
  const Outcome wrong = outcome(given_steps, [] {
    pack.driver->upload = [](Address to, const void* from, size_t bytes, StreamHandle) {
      return driver.upload(to, from, bytes, nullptr);
    };
  });
  EXPECT_TRUE(shows(wrong, right)) << wrong.found;
}

}  // namespace
}  // namespace epl::planted
