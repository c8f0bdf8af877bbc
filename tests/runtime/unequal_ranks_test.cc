// Ranks of unequal speed, from the file that describes the machine to a step in virtual time: stages of faster ranks
// have more layers, and each rank keeps to its own memory.
#include <gtest/gtest.h>

#include <fstream>

#include "core/compile/search_keys.h"
#include "core/compile/search_model.h"
#include "core/runtime/auto_parallel.h"
#include "core/runtime/rehearsal.h"
#include "tests/runtime/trained.h"
#include "tests/temporary_folder.h"

namespace epl::unequal_ranks_test {
namespace {

constexpr int layers = 12;

std::string model() {
  const std::string wide = "f32[4096,512]";
  std::string text = "graph layers(x: f32[4096,512] batch 0) {\n  last: f32[512,4] = param\n", from = "x";
  for (int i = 0; i < layers; ++i) text += cat("  h.", i, ".w: f32[512,512] = param\n");
  text += "  forward:\n";
  for (int i = 0; i < layers; ++i) {
    const std::string b = cat("h.", i, ".");
    text += cat("  ", b, "fc: ", wide, " = matmul(", from, ", ", b, "w)\n  ", b, "act: ", wide, " = gelu(", b, "fc)\n");
    from = b + "act";
  }
  return text + cat("  y: f32[4096,4] = matmul(", from, ", last)\n  output y = y\n}\n");
}

// Operations per second in float32 and bytes of memory per second, as the data sheets of NVIDIA say: "Tesla V100 GPU
// accelerator" (SXM2, 2018), of which "Tesla P100 PCIe GPU accelerator" (2016) has 9.3e12.
class UnequalMachine : public testing::Test {
 protected:
  Result<PlanOptions> options(const std::string& kinds, const std::string& keys) {
    const std::string path = folder_ / cat("machine", ++files_, ".json");
    std::ofstream(path) << R"({"measured": {"device": "V100 and P100", "version": "0", "error": 0.1, "error_90th": 0.2},
      "bandwidth": 900e9, "host_bandwidth": 12e9, "products": {"f32": 15.7e12}, "elementwise": {"f32": 15.7e12},
      "links": [{"bandwidth": 1e12, "seconds": 1e-7}], "launch_seconds": 1e-7)"
                        << (kinds.empty() ? "" : ", \"kinds\": ") << kinds << "}";
    auto made = layout_options(GraphModel::parse(model()), 8, at_level("run", keys));
    if (made.ok()) made->device = cat("cpu@", path);
    return made;
  }

  // On the machine that the second plan was decided for.
  static double seconds(const std::shared_ptr<const CompiledPlan>& plan, const CompiledPlan& on) {
    const auto device = open_device("sim", test_host(2), {.stands_for = on.device()});
    const auto session = Session::create(test_host(2), plan, {.device = *device});
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    const Entry& entry = plan->entries().front();
    std::vector<Tensor> inputs;
    for (const Port& port : entry.inputs) inputs.emplace_back(port.global_type);
    StepMetrics metrics;
    (*session)->record(1, 0);
    EXPECT_TRUE((*session)->step(inputs, metrics).ok());
    const StepTrace trace = (*session)->trace();
    return trace.end() - trace.begin();
  }

  TemporaryFolder folder_;
  int files_ = 0;
};

constexpr const char* fast_first = R"([{"devices": 4}, {"devices": 4, "speed": 0.592}])";
constexpr const char* two_stages = R"("pipeline.num_stages": 2, "pipeline.num_micro_batch": 8)";

// Jia et al., "Whale: Efficient Giant Model Training over Heterogeneous GPUs" (USENIX ATC 2022): on V100 and P100, load
// by speed makes training 1.2 to 1.45 times as fast as the same load for all.
TEST_F(UnequalMachine, GainsWhatIsPublished) {
  const auto even = layout_plan(options("", two_stages)), uneven = layout_plan(options(fast_first, two_stages));
  ASSERT_TRUE(even.ok()) << even.status().to_string();
  ASSERT_TRUE(uneven.ok()) << uneven.status().to_string();
  const double gain = seconds(*even, **uneven) / seconds(*uneven, **uneven);
  EXPECT_GE(gain, 1.2);
  EXPECT_LE(gain, 1.45);
  // Of the faster ranks' own step the slower ones are the cause.
  EXPECT_GT(seconds(*even, **uneven), 1.3 * seconds(*even, **even));
}

TEST_F(UnequalMachine, IsWhatASearchIsAskedFor) {
  const auto made = options(R"([{"devices": 3}, {"devices": 2, "speed": 0.5, "memory": 0.25}])", "");
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  PlanOptions one = *made;
  one.ranks = 1;
  one.strategy = of_one_copy(one.strategy, 1);
  const auto plan = layout_plan(one);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const auto rehearsal = rehearse(test_host(2), *plan);
  ASSERT_TRUE(rehearsal.ok()) << rehearsal.status().to_string();
  const auto problem = search_problem_of({{.plan = *plan, .trace = rehearsal->trace}}, 9);
  ASSERT_TRUE(problem.ok()) << problem.status().to_string();
  // Hosts of five, over and over.
  std::vector<int64_t> ranks;
  for (const SearchDevices& kind : problem->devices) ranks.push_back(kind.ranks);
  EXPECT_EQ(ranks, (std::vector<int64_t>{3, 2, 3, 1}));
  EXPECT_EQ(problem->devices[1].speed, 0.5);
  EXPECT_EQ(problem->devices[3].memory, 0.25);
}

TEST_F(UnequalMachine, FindsPlansThatAreNotSlower) {
  const auto plain = options(fast_first, ""), searched = options(fast_first, R"("auto.auto_parallel": true)");
  const auto copies = layout_plan(plain);
  ASSERT_TRUE(copies.ok()) << copies.status().to_string();
  ASSERT_TRUE(searched.ok()) << searched.status().to_string();
  const auto found = plan_in_parallel(test_host(2), *searched);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_LE(seconds(*found, **found), seconds(*copies, **copies) * (1 + 1e-9));
}

}  // namespace
}  // namespace epl::unequal_ranks_test
