// A machine with several devices: a rank runs on its own one, and a virtual device has the kernels of its kind.
#include <gtest/gtest.h>

#include <set>

#include "tests/backend/far_device.h"
#include "tests/runtime/pipeline_job.h"

namespace epl::rank_devices_test {
namespace {

const char* two_devices() {
  static const bool added = (add_backend(far_backend_of_two("far_two", 3, "matmul")), true);
  return added ? "far_two" : "";
}

std::set<std::string> kernels_of(const Program& program, std::string_view op) {
  std::set<std::string> names;
  for (const Instruction& in : program.instructions)
    if (in.row && in.query->op == op) names.insert(in.row->name);
  return names;
}

TEST(RankDevices, StagesRunOnDevicesOfTwoKinds) {
  const Job work = skipping_job();
  const Trained here = train(work, {}, 3);
  for (const char* schedule : {"GPipe", "1F1B", "ZB-H1"}) {
    const Layout layout{schedule, 2, 4, two_devices()};
    auto plan = plan_of(work, layout);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    Device& device = *(*plan)->device();
    ASSERT_NE(&device.of_rank(0).kernels(), &device.of_rank(1).kernels());
    const Entry& entry = *(*plan)->entry(EntryKind::train);
    ASSERT_EQ(entry.programs.size(), 2U);
    EXPECT_FALSE(kernels_of(entry.programs[0], "matmul").contains("own")) << layout.text();
    EXPECT_EQ(kernels_of(entry.programs[1], "matmul"), std::set<std::string>{"own"}) << layout.text();
    for (size_t c = 0; c < 2; ++c) {
      for (const Instruction& in : entry.programs[c].instructions) {
        if (!in.row || in.query->op != "matmul") continue;
        EXPECT_EQ(in.query->device, &device.of_rank(static_cast<int>(c))) << in.name;
      }
    }
    const Trained there = train(plan, layout.text(), 3, [&](int step) { return work.batch(step); });
    EXPECT_EQ(there.losses, here.losses) << layout.text();
    for (const auto& [name, value] : here.state) EXPECT_TRUE(identical(there.state.at(name), value)) << name;
  }
}

// Two copies of a model run one program.
TEST(RankDevices, OneClassHasOneKind) {
  auto plan = plan_of(skipping_job(), {"", 2, 1, two_devices()});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), Code::unsupported) << plan.status().to_string();
  EXPECT_NE(plan.status().message().find("ranks 0 and 1 run one program and have devices of two kinds"),
            std::string::npos)
      << plan.status().to_string();
}

}  // namespace
}  // namespace epl::rank_devices_test
