// docs/training.md lists what there is to choose from: a row without its line in the page is a row that nobody finds.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "core/train/loss.h"
#include "core/train/metric.h"
#include "core/train/schedule.h"

namespace epl::page_test {
namespace {

TEST(TrainingPage, ListsEveryRow) {
  std::ifstream in(std::string(EPL_SOURCE_DIR) + "/docs/training.md");
  std::stringstream read;
  read << in.rdbuf();
  const std::string page = read.str();
  ASSERT_GT(page.size(), 1000u);
  const auto listed = [&](const std::string& name, const char* what) {
    EXPECT_NE(page.find("\n| `" + name + "` |"), std::string::npos)
        << "docs/training.md: the table of " << what << " lacks " << name;
  };
  for (const LossRow& row : loss_table().rows) listed(row.name, "losses");
  for (const MetricRow& row : metric_table().rows) listed(row.name, "metrics");
  for (const ScheduleRow& row : schedule_table().rows) listed(row.name, "schedules");
}

}  // namespace
}  // namespace epl::page_test
