// Schedules against torch.optim.lr_scheduler (schedule_reference.py), and transformers' for the decays.
#include "core/train/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/math.h"

namespace epl::schedule_test {
namespace {

Schedule make(const LearningRateSchedule& wanted) {
  auto made = make_schedule(wanted);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? *made : Schedule{};
}
std::string refused(const LearningRateSchedule& wanted) {
  auto made = make_schedule(wanted);
  return made.ok() ? "" : made.status().message();
}

const std::map<std::string, std::vector<double>>& expected() {
  static const std::map<std::string, std::vector<double>> all = {
      {"step", {1.0, 1.0, 1.0, 0.3, 0.3, 0.09, 0.027}},
      {"exponential",
       {1.0, 0.9, 0.6561000000000001, 0.5904900000000002, 0.38742048900000015, 0.34867844010000015,
        0.13508517176729928}},
      {"one_cycle",
       {0.040000000000000036, 0.1316718427000253, 0.9083281572999747, 1.0, 0.8117456539497631, 0.7169430017913008,
        4e-06}},
      {"one_cycle short", {0.25, 1.0, 0.9346873843449139, 0.8859466660205018, 0.5971534866126287, 0.5125, 0.025}},
      {"plateau", {1.0, 0.5, 0.5, 0.25, 0.125, 0.015625, 0.001953125}},
      {"plateau max", {1.0, 1.0, 0.3, 0.3, 0.3, 0.09, 0.01}},
  };
  return all;
}

TEST(Schedule, IsThatOfPyTorch) {
  const std::map<std::string, LearningRateSchedule> cases = {
      {"step", {"step", 0, {{"step_size", int64_t{5}}, {"gamma", 0.3}}}},
      {"exponential", {"exponential", 0, {{"gamma", 0.9}}}},
      {"one_cycle", {"one_cycle", 0, {{"total_steps", int64_t{20}}}}},
      {"one_cycle short",
       {"one_cycle",
        0,
        {{"total_steps", int64_t{20}}, {"pct_start", 0.1}, {"div_factor", 4.0}, {"final_div_factor", 10.0}}}}};
  const int64_t at[] = {0, 1, 4, 5, 9, 10, 19};
  for (const auto& [name, wanted] : cases) {
    const Schedule schedule = make(wanted);
    for (size_t i = 0; i < std::size(at); ++i)
      EXPECT_NEAR(schedule.factor(at[i]), expected().at(name)[i], 1e-14) << name << " at step " << at[i];
  }
}

TEST(Schedule, PlateausAreThoseOfPyTorch) {
  const std::map<std::string, Attributes> cases = {{"plateau", {{"factor", 0.5}, {"patience", int64_t{2}}}},
                                                   {"plateau max",
                                                    {{"factor", 0.3},
                                                     {"patience", int64_t{3}},
                                                     {"cooldown", int64_t{4}},
                                                     {"min_ratio", 0.01},
                                                     {"threshold", 0.01}}}};
  const int at[] = {0, 3, 5, 8, 12, 20, 29};
  for (const auto& [name, options] : cases) {
    const Schedule schedule = make({"plateau", 0, options});
    ASSERT_TRUE(schedule.row->watches);
    RateScale scale;
    std::vector<double> seen;
    for (int i = 0; i < 30; ++i) {
      scale.observe(schedule.options, std::round(std::sin(i) / (1 + i) * 1e6) / 1e6 + 0.5, name == "plateau max");
      seen.push_back(scale.scale);
    }
    for (size_t i = 0; i < std::size(at); ++i)
      EXPECT_NEAR(seen[static_cast<size_t>(at[i])], expected().at(name)[i], 1e-15) << name << " " << at[i];
  }
}

TEST(Schedule, NoNumberIsNeverBetter) {
  const Schedule schedule = make({"plateau", 0, {{"patience", int64_t{1}}, {"factor", 0.5}}});
  RateScale scale;
  for (int i = 0; i < 2; ++i) scale.observe(schedule.options, NAN, false);
  EXPECT_FALSE(scale.measured);
  EXPECT_EQ(scale.scale, 0.5);
}

TEST(Schedule, WarmsUpAndDecays) {
  const Schedule constant = make({.warmup_steps = 4});
  EXPECT_EQ(constant.factor(0), 0);
  EXPECT_EQ(constant.factor(1), 0.25);
  EXPECT_EQ(constant.factor(4), 1);
  EXPECT_EQ(constant.factor(1000), 1);
  const Schedule linear = make({"linear", 2, {{"total_steps", int64_t{12}}, {"final_ratio", 0.1}}});
  EXPECT_EQ(linear.factor(2), 1);
  EXPECT_DOUBLE_EQ(linear.factor(7), 0.55);
  EXPECT_DOUBLE_EQ(linear.factor(12), 0.1);
  EXPECT_DOUBLE_EQ(linear.factor(50), 0.1);
  const Schedule cosine = make({"cosine", 0, {{"total_steps", int64_t{10}}}});
  EXPECT_EQ(cosine.factor(0), 1);
  EXPECT_NEAR(cosine.factor(5), 0.5, 1e-16);
  EXPECT_NEAR(cosine.factor(2), 0.5 * (1 + std::cos(math::pi * 0.2)), 1e-15);
  EXPECT_EQ(cosine.factor(10), 0);
  const Schedule steps = make({"step", 3, {{"step_size", int64_t{2}}, {"gamma", 0.5}}});
  EXPECT_EQ(steps.factor(3), 1);
  EXPECT_EQ(steps.factor(5), 0.5);
}

TEST(Schedule, SaysWhatDoesNotFit) {
  EXPECT_NE(refused({"cosin"}).find("did you mean cosine?"), std::string::npos);
  EXPECT_NE(refused({"linear"}).find("total_steps = 0 must be more"), std::string::npos);
  EXPECT_NE(refused({"constant", 0, {{"gamma", 0.5}}}).find("no option \"gamma\""), std::string::npos);
  EXPECT_NE(refused({"step"}).find("needs option step_size"), std::string::npos);
  EXPECT_NE(refused({"step", 0, {{"step_size", int64_t{0}}}}).find("1 or more"), std::string::npos);
  EXPECT_NE(refused({"exponential", 0, {{"gamma", 1.5}}}).find("from above 0 to 1"), std::string::npos);
  EXPECT_NE(refused({"one_cycle", 5, {{"total_steps", int64_t{20}}}}).find("rises by itself"), std::string::npos);
  EXPECT_NE(refused({"one_cycle", 0, {{"total_steps", int64_t{20}}, {"pct_start", 1.0}}}).find("pct_start"),
            std::string::npos);
  EXPECT_NE(refused({"plateau", 0, {{"factor", 1.0}}}).find("between 0 and 1"), std::string::npos);
  EXPECT_NE(refused({"plateau", 0, {{"patience", int64_t{-1}}}}).find("0 or more"), std::string::npos);
}

}  // namespace
}  // namespace epl::schedule_test
