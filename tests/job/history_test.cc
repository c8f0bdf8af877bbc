// history.jsonl: few lines of a long job, and none lost where it goes on.
#include "core/job/history.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/temporary_folder.h"

namespace epl::job_test {
namespace {

class Histories : public testing::Test {
 protected:
  int64_t lines_after(int64_t steps, int64_t known) {
    History history;
    history.begin("", 0, known);
    JobEvent event;
    for (event.step = 1; event.step <= steps; ++event.step) history.add_step(event);
    return static_cast<int64_t>(history.lines().size());
  }
  const TemporaryFolder temporary;
  const std::string path = temporary / "history.jsonl";
};

TEST_F(Histories, ALongJobHasFewLines) {
  EXPECT_EQ(lines_after(800, 800), 800);
  EXPECT_LE(lines_after(100000, 100000), 2001);
  EXPECT_LE(lines_after(100000, 0), 8000);  // nobody knows how long
  EXPECT_GE(lines_after(100000, 0), 1500);
}

// Where gradients are scaled, how often a step has overflowed is seen, and nowhere else.
TEST_F(Histories, SayTheLossScaleAndWhatItSkipped) {
  History history;
  history.begin("", 0, 4);
  JobEvent event;
  event.step = 1;
  history.add_step(event);
  event.step = 2;
  event.loss_scale = 32768;
  event.skipped_steps = 1;
  history.add_step(event);
  event.step = 3;
  event.loss_scale = 1;
  history.add_step(event);
  ASSERT_EQ(history.lines().size(), 3u);
  EXPECT_EQ(history.lines()[0].find("loss_scale"), nullptr);
  EXPECT_EQ(history.lines()[0].find("skipped_steps"), nullptr);
  EXPECT_EQ(history.lines()[1].at("loss_scale").get<double>(), 32768);
  EXPECT_EQ(history.lines()[1].at("skipped_steps").get<int64_t>(), 1);
  EXPECT_EQ(history.lines()[2].at("loss_scale").get<double>(), 1);
}

TEST_F(Histories, WhatIsBehindTheCheckpointIsCutOff) {
  JobEvent event;
  {
    History first;
    first.begin(path, 0, 10);
    first.add_held_out({{"event", "held_out"}, {"samples", 5}});
    for (event.step = 1; event.step <= 6; ++event.step) {
      event.loss = 1.0 / static_cast<double>(event.step);
      event.seconds = static_cast<double>(event.step);
      first.add_step(event);
    }
    event.step = 4;
    first.add_measured(event, {{"loss", 0.25}, {"accuracy", 0.5}});
    ASSERT_TRUE(first.flush().ok());
  }
  std::ofstream(path, std::ios::app) << "{\"event\": \"step\", \"step\": half a line\n";
  History second;
  second.read(path);
  EXPECT_EQ(second.held_out().at("samples"), Json(5));
  second.begin(path, 4, 10);
  EXPECT_EQ(second.lines().size(), 5u);  // four steps and a measurement
  EXPECT_EQ(second.seconds(), 4);
  ASSERT_TRUE(second.flush().ok());
  History third;
  third.read(path);
  EXPECT_EQ(third.lines().size(), 5u);
  EXPECT_EQ(third.lines()[2].at("loss").get<double>(), 1.0 / 3);
}

TEST_F(Histories, AFailureIsSaidOnce) {
  History history;
  history.begin(temporary / "nowhere/history.jsonl", 0, 10);
  history.add_held_out({{"event", "held_out"}});
  EXPECT_FALSE(history.flush().ok());
  history.add_held_out({{"event", "held_out"}});
  EXPECT_TRUE(history.flush().ok());
}

}  // namespace
}  // namespace epl::job_test
