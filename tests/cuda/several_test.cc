// Several GPUs in one process, on the machine for tests: what they train has the bits of one, each has the memory that
// is planned for its ranks, and one that is lost takes its session and no more. Run with EPL_TEST_MACHINE =
// devices=h100,h100,h100,h100,a100 in the environment (ctest cuda.several); skipped elsewhere.
#include <dlfcn.h>

#include <thread>

#include "core/net/rendezvous.h"
#include "core/runtime/predictor.h"
#include "tests/runtime/pipeline_job.h"

namespace epl::cuda {
namespace {

constexpr int gpus = 5;

class SeveralGpus : public testing::Test {
 protected:
  void SetUp() override {
    const Status missing = open("cuda:0,4", 2).status();
    if (!missing.ok()) GTEST_SKIP() << missing.message();
    library_ = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library_ == nullptr || ::dlsym(library_, "epl_test_machine_set") == nullptr)
      GTEST_SKIP() << "the driver is a real one";
  }

  static Host host() {
    Host made = test_host(2);
    made.packs = EPL_PACK_FOLDER;
    return made;
  }
  static Result<std::shared_ptr<Device>> open(const std::string& name, int ranks) {
    return open_device(name, host(), {.ranks = ranks});
  }
  // A plan of the same small model, with whatever else the strategy says.
  static Result<std::shared_ptr<const CompiledPlan>> plan_on(const std::string& device, int64_t ranks,
                                                             const std::string& keys = "",
                                                             const char* level = "exact") {
    EPL_ASSIGN(PlanOptions options, layout_options(GraphModel::parse(skip_mlp), ranks, at_level(level, keys)));
    options.device = device;
    return CompiledPlan::create(host(), options);
  }
  static Trained trained_on(const std::string& device, int64_t ranks, const std::string& keys = "",
                            const char* level = "exact") {
    return train(plan_on(device, ranks, keys, level), cat(device, " with ", ranks, " ranks ", keys), 2, skip_mlp_batch);
  }

  void set(const char* words) {
    ASSERT_EQ(reinterpret_cast<int (*)(const char*)>(::dlsym(library_, "epl_test_machine_set"))(words), 0);
  }
  uint64_t count(const std::string& what) {
    return reinterpret_cast<uint64_t (*)(const char*)>(::dlsym(library_, "epl_test_machine_count"))(what.c_str());
  }
  std::vector<int64_t> used() {
    std::vector<int64_t> bytes;
    for (int gpu = 0; gpu < gpus; ++gpu) bytes.push_back(static_cast<int64_t>(count(cat("used_", gpu))));
    return bytes;
  }

 private:
  void* library_ = nullptr;
};

bool says(const Status& status, std::string_view part) { return status.message().find(part) != std::string::npos; }

TEST_F(SeveralGpus, TrainWithTheBitsOfOne) {
  const Trained one = trained_on("cpu", 1);
  for (const auto& [device, ranks] : {std::pair("cuda:0", 1), {"cuda:0,1", 2}, {"cuda:1,0,1", 4}, {"cuda", 4}})
    expect_same(trained_on(device, ranks), one, cat(device, " with ", ranks, " ranks"));
  expect_same(trained_on("cuda:0,2", 4, R"("zero.level": "v2")"), one, "shared-out states on two GPUs");
}

TEST_F(SeveralGpus, LevelDataHasTheBitsOfOneGpu) {
  const Trained one = trained_on("cuda:0", 1, "", "data");
  expect_same(trained_on("cuda:0,1", 2, "", "data"), one, "two GPUs");
  expect_same(trained_on("cuda", 4, "", "data"), one, "four GPUs");
}

// There sums are NCCL's: in another order, and in the same one from run to run.
TEST_F(SeveralGpus, LevelRunAddsUpByTheLibrary) {
  const auto copies_of = [&](const char* level, Trained& made) {
    const uint64_t before = count("peer_copies");
    made = trained_on("cuda:0,1", 2, "", level);
    return count("peer_copies") - before;
  };
  const Trained one = trained_on("cpu", 1);
  Trained two, ordered;
  EXPECT_LT(copies_of("run", two), copies_of("data", ordered)) << "what NCCL adds up is not copied";
  expect_near(two, one, "NCCL", 1e-3, 0.05, 0.05);
  expect_same(trained_on("cuda:0,1", 2, "", "run"), two, "again");
  // Ranks that share a GPU have no end of their own.
  expect_near(trained_on("cuda:0,1", 4, "", "run"), one, "two ranks on each", 1e-3, 0.05, 0.05);
}

// A program is of one kind of device; stages may be of two.
TEST_F(SeveralGpus, StagesMayBeOnTwoKinds) {
  const std::string stages = cat(R"("pipeline.num_micro_batch": 2, "pipeline.strategy": "1F1B", )", mlp_job(0).two);
  expect_same(trained_on("cuda:0,4", 2, stages), trained_on("cpu", 1), "an H100 and an A100");
  const Status refused = plan_on("cuda:0,4", 2).status();
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_TRUE(says(refused, "ranks 0 and 1 run one program and have devices of two kinds")) << refused.message();
}

TEST_F(SeveralGpus, CopiesGoThroughTheHostWhereTheyMust) {
  const auto joined = open("cuda:0,1", 2), apart = open("cuda:0,4", 2);
  ASSERT_TRUE(joined.ok() && apart.ok()) << joined.status().to_string() << apart.status().to_string();
  ASSERT_EQ((*joined)->notes().size(), 2u);
  EXPECT_NE((*joined)->notes()[1].find("go by NCCL 2.32"), std::string::npos) << (*joined)->notes()[1];
  ASSERT_EQ((*apart)->notes().size(), 3u);
  EXPECT_NE((*apart)->notes()[2].find("copies between cuda:0 and cuda:4 go through the memory of the host"),
            std::string::npos)
      << (*apart)->notes()[2];
  EXPECT_NE((*joined)->description().find("2 devices: cuda:0: NVIDIA H100"), std::string::npos)
      << (*joined)->description();
}

// What ranks need, the room for sums, and at most the blocks of a few streams; nothing on a GPU without ranks.
TEST_F(SeveralGpus, EachHasTheMemoryThatIsPlanned) {
  const auto plan = plan_on("cuda:1,2", 2);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const std::vector<int64_t> before = used();
  const uint64_t copies = count("peer_copies"), staged = count("staged_copies");
  const auto session = Session::create(host(), *plan, {.seed = 7});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  StepMetrics metrics;
  ASSERT_TRUE((*session)->step(skip_mlp_batch(0), metrics).ok());
  const std::vector<int64_t> during = used();
  const int64_t planned = PlanMemory(**plan).peak() + DeviceOptions().room_bytes;
  for (const size_t gpu : {1u, 2u}) {
    EXPECT_GE(during[gpu] - before[gpu], planned) << gpu;
    EXPECT_LE(during[gpu] - before[gpu], planned + (int64_t{64} << 10)) << gpu;
  }
  for (const size_t gpu : {0u, 3u, 4u}) EXPECT_EQ(during[gpu], before[gpu]) << gpu;
  EXPECT_GT(count("peer_copies"), copies);
  EXPECT_EQ(count("staged_copies"), staged) << "GPUs of one kind have a way of their own";
}

TEST_F(SeveralGpus, APredictorCopiesOnEach) {
  auto plan = plan_on("cuda:0,1", 2);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  auto made = Session::create(host(), *plan, {.seed = 7});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const std::shared_ptr<Session> session = std::move(*made);
  StepMetrics metrics;
  ASSERT_TRUE(session->step(skip_mlp_batch(0), metrics).ok());
  const auto predictor = Predictor::create(session, nullptr);
  ASSERT_TRUE(predictor.ok()) << predictor.status().to_string();
  const Entry& entry = *(*plan)->entry(EntryKind::predict);
  std::vector<Tensor> inputs = skip_mlp_batch(0), here, there;
  inputs.resize(entry.inputs.size());
  for (const Port& port : entry.outputs) {
    here.emplace_back(port.global_type);
    there.emplace_back(port.global_type);
  }
  ASSERT_TRUE(session->predict(inputs, here).ok());
  const Status predicted = (**(*predictor)->session()).predict(inputs, there);
  ASSERT_TRUE(predicted.ok()) << predicted.to_string();
  EXPECT_TRUE(identical(here[0], there[0]));
}

// As over processes: a session for each rank, with a GPU of its own, that meet at a rendezvous.
TEST_F(SeveralGpus, RanksOfOtherProcessesMeetThroughTheHost) {
  const Trained one = trained_on("cpu", 1);
  const auto rendezvous = memory_rendezvous();
  std::vector<std::vector<double>> losses(2);
  std::vector<std::thread> processes;
  for (int r = 0; r < 2; ++r) {
    processes.emplace_back([&, r] {
      const auto plan = plan_on(cat("cuda:", r), 2);
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      const auto session = Session::create(
          host(), *plan, {.seed = 7, .first_rank = r, .ranks = 1, .rendezvous = rendezvous, .join_seconds = 60});
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      for (int s = 0; s < 2; ++s) {
        StepMetrics metrics;
        const Status status = (*session)->step(skip_mlp_batch(s), metrics);
        ASSERT_TRUE(status.ok()) << status.to_string();
        losses[static_cast<size_t>(r)].push_back(metrics.loss);
      }
    });
  }
  for (std::thread& process : processes) process.join();
  for (const std::vector<double>& seen : losses) EXPECT_EQ(seen, one.losses);
}

TEST_F(SeveralGpus, NamesThatMeanNoneSaySo) {
  const Status none = open("cuda:0,9", 2).status();
  EXPECT_EQ(none.code(), Code::unsupported);
  EXPECT_TRUE(says(none, "device cuda:9 cannot be opened: there is no GPU 9; this process sees 5")) << none.message();
  EXPECT_TRUE(open("cuda:0,9", 1).ok()) << "one rank uses one of them";
}

// The last one: the machine keeps a device that is lost.
TEST_F(SeveralGpus, OneThatIsLostFailsItsSessionAndNotTheProcess) {
  const Trained one = trained_on("cuda:0", 1);
  {
    const auto plan = plan_on("cuda:0,1", 2);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const auto session = Session::create(host(), *plan, {.seed = 7});
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    StepMetrics metrics;
    ASSERT_TRUE((*session)->step(skip_mlp_batch(0), metrics).ok());
    set("device_lost=20 lost_device=1");
    const Status lost = (*session)->step(skip_mlp_batch(1), metrics);
    EXPECT_FALSE(lost.ok());
    EXPECT_TRUE(says(lost, "device cuda:")) << lost.to_string();
    EXPECT_FALSE((*session)->step(skip_mlp_batch(2), metrics).ok());
  }
  const Status gone = open("cuda:1", 1).status();
  EXPECT_TRUE(says(gone, "device cuda:1 cannot be opened")) << gone.message();
  expect_same(trained_on("cuda:0,2", 2), one, "the others, and one that has met the lost one");
}

}  // namespace
}  // namespace epl::cuda
