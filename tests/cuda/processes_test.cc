// Ranks of several processes, each with a GPU of its own on the machine for tests, or with the processor: they learn
// the bits of one process, and one that is killed is named. Where each has a GPU of another number they meet by NCCL;
// cuda:0 of two processes is one GPU, which they share. Run with EPL_TEST_MACHINE = devices=h100,h100 in the
// environment (ctest cuda.processes); skipped where there is no driver.
#include <dlfcn.h>

#include "core/net/rendezvous.h"
#include "tests/cuda/planted_pack.h"
#include "tests/runtime/rank_processes.h"

namespace epl::gpus_of_processes_test {
namespace {

constexpr int steps = 3;

struct Job {
  const char* name;
  const char* strategy;
  const char *first, *second;  // the devices of two processes
  // Whose bits they are to have: of one process.
  const char* alone = "cpu";
  int ranks_alone = 1;
};
void PrintTo(const Job& job, std::ostream* out) { *out << job.name; }

constexpr const char* copies = R"({"reproducible.level": "exact"})";
constexpr const char* stages = R"({"reproducible.level": "exact", "pipeline.num_micro_batch": 2,
  "pipeline.strategy": "1F1B", "scopes": [{"name": "first", "replicate": 1, "match": ["h*", "a"]},
                                          {"name": "second", "replicate": 1, "match": ["*"]}]})";
constexpr const char* shards = R"({"reproducible.level": "exact", "zero.level": "v2"})";
constexpr const char* data = R"({"reproducible.level": "data"})";
constexpr const char* run = R"({"reproducible.level": "run"})";

class GpusOfProcessesRig : public testing::Test {
 protected:
  void SetUp() override {
    const auto opened = open_device("cuda:1", host, {});
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

class GpusOfProcesses : public GpusOfProcessesRig, public testing::WithParamInterface<Job> {};

TEST_P(GpusOfProcesses, LearnTheBitsOfOne) {
  const Job& job = GetParam();
  const bool on_cpu = std::string_view(job.alone) == "cpu";
  const auto plan = strategy_plan(host, job.ranks_alone, on_cpu ? copies : job.strategy, job.alone);
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
                                         Job{"copies_by_nccl", copies, "cuda:0", "cuda:1"},
                                         Job{"stages_by_nccl", stages, "cuda:0", "cuda:1"},
                                         Job{"shards_by_nccl", shards, "cuda:0", "cuda:1"},
                                         Job{"data_by_nccl", data, "cuda:0", "cuda:1", "cuda:0"},
                                         Job{"run_by_nccl", run, "cuda:0", "cuda:1", "cuda:0,1", 2},
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
                                         Job{"copy_by_nccl", copies, "cuda:0", "cuda:1"},
                                         Job{"shard_by_nccl", shards, "cuda:0", "cuda:1"},
                                         Job{"stage", stages, "cuda:0", "cuda:0"}),
                         [](const auto& info) { return std::string(info.param.name); });

// What rank 0, in this process, says in its log of how they meet. All learn the same all the same.
class GpusOfProcessesSay : public GpusOfProcessesRig {
 protected:
  std::string said(const Job& job) {
    std::string lines;
    host.least_logged = LogLevel::info;
    host.log = [&](LogLevel, std::string_view line) { lines += cat(line, "\n"); };
    start(1, job, job.second);
    const auto plan = strategy_plan(host, 2, job.strategy, job.first);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    if (!plan.ok()) return "";
    const auto session = Session::create(
        host, *plan,
        {.seed = 7, .ranks = 1, .rendezvous = folder_rendezvous(processes.rendezvous()).value(), .join_seconds = 60});
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    if (!session.ok()) return "";
    const std::string own = answer(**session, train(**session, steps));
    processes.expect_good_ends();
    EXPECT_TRUE(own == processes.result(0));
    return lines;
  }
};

TEST_F(GpusOfProcessesSay, ThatTheyMeetByNccl) {
  const std::string lines = said({"copies", copies, "cuda:0", "cuda:1"});
  EXPECT_NE(lines.find("meet by NCCL"), std::string::npos) << lines;
}

TEST_F(GpusOfProcessesSay, NothingWhereOneIsSharedOrIsNone) {
  for (const char* second : {"cuda:0", "cpu"}) {
    processes.new_job();
    const std::string lines = said({"copies", copies, "cuda:0", second});
    EXPECT_EQ(lines.find("meet"), std::string::npos) << second << ": " << lines;
  }
}

// A GPU gathers weights a layer ahead and the processor does not, so that they would come to other calls.
TEST_F(GpusOfProcessesSay, ThatShardsOfWeightsAreOfDevicesThatAreAlike) {
  const Job job = {"shards", shards, "cuda:0", "cpu"};
  start(1, job, job.second);
  const auto plan = strategy_plan(host, 2, job.strategy, job.first);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const Status refused =
      Session::create(
          host, *plan,
          {.seed = 7, .ranks = 1, .rendezvous = folder_rendezvous(processes.rendezvous()).value(), .join_seconds = 60})
          .status();
  EXPECT_NE(refused.message().find("does not do the same job: its gathers of weights is"), std::string::npos)
      << refused.to_string();
  EXPECT_NE(processes.end_of(0), 0);
}

#ifdef EPL_TEST_PLANTED
// The library of rank 0 refuses. Both go through the host then, and rank 0 says why.
TEST_F(GpusOfProcessesSay, WhyTheyDoNotMeet) {
  void* library = ::dlopen(EPL_TEST_PLANTED "/libepl_cuda.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
  auto* const tables =
      reinterpret_cast<const char* (*)(const char*, cuda::PackTables*)>(::dlsym(library, "epl_planted_tables"));
  cuda::PackTables pack;
  const char* const missing = tables(EPL_TEST_PLANTED, &pack);
  ASSERT_EQ(missing, nullptr) << missing;
  const cuda::Nccl whole = *pack.nccl;
  pack.nccl->begin_rank = [](cuda::NcclEnd*, int, cuda::NcclId, int, cuda::NcclSettings*) { return 5; };
  host.packs = EPL_TEST_PLANTED;
  const std::string lines = said({"copies", copies, "cuda:0", "cuda:1"});
  *pack.nccl = whole;
  EXPECT_NE(lines.find("do not meet"), std::string::npos) << lines;
  EXPECT_NE(lines.find("ncclCommInitRankConfig gave"), std::string::npos) << lines;
}
#endif

}  // namespace
}  // namespace epl::gpus_of_processes_test
