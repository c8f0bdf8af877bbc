// Ranks of several processes, each with a GPU of its own on the machine for tests, or with the processor: they learn
// the bits of one process, and one that is killed is named (ctest cuda.processes; skipped where there is no driver).
#include <dlfcn.h>

#include "core/net/rendezvous.h"
#include "tests/runtime/rank_processes.h"

namespace epl::gpus_of_processes_test {
namespace {

constexpr int steps = 3;

struct Job {
  const char* name;
  const char* strategy;
  const char *first, *second;  // the devices of two processes
};
void PrintTo(const Job& job, std::ostream* out) { *out << job.name; }

constexpr const char* copies = R"({"reproducible.level": "exact"})";
constexpr const char* stages = R"({"reproducible.level": "exact", "pipeline.num_micro_batch": 2,
  "pipeline.strategy": "1F1B", "scopes": [{"name": "first", "replicate": 1, "match": ["h*", "a"]},
                                          {"name": "second", "replicate": 1, "match": ["*"]}]})";
constexpr const char* shards = R"({"reproducible.level": "exact", "zero.level": "v2"})";

class GpusOfProcesses : public testing::TestWithParam<Job> {
 protected:
  void SetUp() override {
    const auto opened = open_device("cuda:0", host, {});
    if (!opened.ok()) GTEST_SKIP() << opened.status().message();
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr || ::dlsym(library, "epl_test_machine_set") == nullptr)
      GTEST_SKIP() << "the driver is a real one";
    processes.new_job();
  }
  static Host gpu_host() {
    Host made = process_host();
    made.kernel_cache = EPL_TEST_KERNELS;
    return made;
  }
  void start(int rank, const Job& job, const char* device, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"strategy", job.strategy, "device", device, "kernels", EPL_TEST_KERNELS};
    words.insert(words.end(), more.begin(), more.end());
    processes.start(rank, 1, 2, steps, words);
  }

  Host host = gpu_host();
  RankProcesses processes;
};

TEST_P(GpusOfProcesses, LearnTheBitsOfOne) {
  const Job& job = GetParam();
  const auto plan = strategy_plan(host, 1, copies);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const auto alone = Session::create(host, *plan, {.seed = 7});
  ASSERT_TRUE(alone.ok()) << alone.status().to_string();
  const std::string expected = answer(**alone, train(**alone, steps));
  start(0, job, job.first);
  start(1, job, job.second);
  processes.expect_good_ends();
  for (size_t p = 0; p < 2; ++p) EXPECT_TRUE(processes.result(p) == expected) << "process " << p;
}

INSTANTIATE_TEST_SUITE_P(All, GpusOfProcesses,
                         testing::Values(Job{"copies", copies, "cuda:0", "cuda:0"},
                                         Job{"stages", stages, "cuda:0", "cuda:0"},
                                         Job{"shards", shards, "cuda:0", "cuda:0"},
                                         Job{"a_stage_of_the_processor", stages, "cpu", "cuda:0"},
                                         Job{"a_copy_of_the_processor", copies, "cuda:0", "cpu"}),
                         [](const auto& info) { return std::string(info.param.name); });

class GpusOfProcessesOne : public GpusOfProcesses {};
TEST_P(GpusOfProcessesOne, ThatIsKilledIsNamed) {
  const Job& job = GetParam();
  start(1, job, job.second, {"die_in", "1"});
  const auto plan = strategy_plan(host, 2, job.strategy, job.first);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const auto session = Session::create(
      host, *plan,
      {.seed = 7, .ranks = 1, .rendezvous = folder_rendezvous(processes.rendezvous()).value(), .join_seconds = 60});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  StepMetrics metrics;
  ASSERT_TRUE((*session)->step(mlp_batch(0), metrics).ok());
  const double began = seconds_now();
  const Status lost = (*session)->step(mlp_batch(1), metrics);
  EXPECT_EQ(lost.code(), Code::peer_failed) << lost.to_string();
  EXPECT_EQ(lost.rank(), 1) << lost.to_string();
  EXPECT_NE(lost.message().find("rank 1 of 2 is missing"), std::string::npos) << lost.to_string();
  EXPECT_LT(seconds_now() - began, 20);
  EXPECT_EQ(processes.end_of(0), SIGKILL);
  EXPECT_EQ((*session)->host_state().steps_done(), 1);
}

INSTANTIATE_TEST_SUITE_P(All, GpusOfProcessesOne,
                         testing::Values(Job{"copy", copies, "cuda:0", "cuda:0"},
                                         Job{"stage", stages, "cuda:0", "cuda:0"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace epl::gpus_of_processes_test
