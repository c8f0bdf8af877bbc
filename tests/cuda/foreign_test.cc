// Tensors of the program beside the library, in memory of its own on a GPU, on the machine for tests: the host cannot
// read that memory, and a stream that nobody waits for is a fault. Run with EPL_TEST_MACHINE = devices=h100,h100,h100
// in the environment (ctest cuda.foreign); skipped elsewhere.
#include <dlfcn.h>

#include <algorithm>
#include <limits>

#include "core/base/device_memory.h"
#include "tests/runtime/skip_mlp.h"
#include "tests/runtime/trained.h"

namespace epl::foreign_test {
namespace {

// What a program does with CUDA itself, by the driver, on one GPU.
class HostProgram {
 public:
  HostProgram(void* library, int gpu) : library_(library), gpu_(gpu) {
    must("cuDevicePrimaryCtxRetain", &context_, gpu);
    here([&] { must("cuStreamCreate", &stream_, 1u); });
  }
  ~HostProgram() {
    here([&] { must("cuStreamDestroy_v2", stream_); });
    must("cuDevicePrimaryCtxRelease_v2", gpu_);
  }
  HostProgram(const HostProgram&) = delete;

  int64_t stream() const { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(stream_)); }
  void synchronize() {
    here([&] { must("cuStreamSynchronize", stream_); });
  }
  // Room on the GPU that its stream fills; `shift`: so many bytes behind the beginning of an allocation.
  Tensor room(const TensorType& type, int shift = 0) {
    uint64_t address = 0;
    const auto bytes = static_cast<size_t>(type.bytes() + shift);
    here([&] {
      must("cuMemAlloc_v2", &address, bytes);
      must("cuMemsetD8Async", address, static_cast<unsigned char>(0xc5), bytes, stream_);
    });
    const auto release = [this, address](const void*) { here([&] { must("cuMemFree_v2", address); }); };
    void* const begin = reinterpret_cast<void*>(address);
    auto memory = std::make_shared<const DeviceMemory>(cat("cuda:", gpu_), gpu_, static_cast<std::byte*>(begin) + shift,
                                                       std::shared_ptr<const void>(begin, release));
    return {type, std::move(memory)};
  }
  // The same, with these elements. Nobody waits for the stream.
  Tensor put(const Tensor& values, int shift = 0) {
    Tensor there = room(values.type(), shift);
    here([&] {
      must("cuMemcpyHtoDAsync_v2", address(there), values.data(), static_cast<size_t>(values.bytes()), stream_);
    });
    return there;
  }
  std::vector<Tensor> put(const std::vector<Tensor>& all, int shift = 0) {
    std::vector<Tensor> there;
    for (const Tensor& values : all) there.push_back(put(values, shift));
    return there;
  }
  Tensor get(const Tensor& there) {
    Tensor values(there.type());
    here([&] {
      must("cuMemcpyDtoHAsync_v2", values.data(), address(there), static_cast<size_t>(values.bytes()), stream_);
      must("cuStreamSynchronize", stream_);
    });
    return values;
  }
  // By the context's own stream.
  Tensor put_by_default(const Tensor& values) {
    Tensor there = room(values.type());
    synchronize();
    void* const legacy = nullptr;
    here([&] {
      must("cuMemcpyHtoDAsync_v2", address(there), values.data(), static_cast<size_t>(values.bytes()), legacy);
    });
    return there;
  }

 private:
  static uint64_t address(const Tensor& there) { return reinterpret_cast<uint64_t>(address_of(there)); }
  template <class... Arguments> void must(const char* name, Arguments... arguments) {
    auto* function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library_, name));
    ASSERT_NE(function, nullptr) << name;
    EXPECT_EQ(function(arguments...), 0) << name;
  }
  template <class F> void here(const F& f) {
    must("cuCtxPushCurrent_v2", context_);
    f();
    void* popped = nullptr;
    must("cuCtxPopCurrent_v2", &popped);
  }

  void* const library_;
  const int gpu_;
  void *context_ = nullptr, *stream_ = nullptr;
};

class ForeignTensorsOnGpus : public testing::Test {
 protected:
  using Plan = std::shared_ptr<const CompiledPlan>;

  void SetUp() override {
    const auto opened = open_device("cuda:0", host(), {});
    if (!opened.ok()) GTEST_SKIP() << opened.status().message();
    library_ = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library_ == nullptr || ::dlsym(library_, "epl_test_machine_set") == nullptr)
      GTEST_SKIP() << "the driver is a real one";
  }

  static Host host() {
    Host made = test_host(2);
    made.packs = EPL_PACK_FOLDER;
    made.kernel_cache = EPL_TEST_KERNELS;
    return made;
  }
  static Plan plan_on(const std::string& device, const std::string& keys = "", int64_t ranks = 1) {
    auto options = layout_options(GraphModel::parse(dropout_mlp), ranks, at_level("exact", keys));
    EXPECT_TRUE(options.ok()) << options.status().to_string();
    options->device = device;
    auto plan = CompiledPlan::create(host(), *options);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    return plan.ok() ? *plan : nullptr;
  }
  static std::unique_ptr<Session> session_of(const Plan& plan) {
    auto session = Session::create(host(), plan, {.seed = 7});
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    return session.ok() ? std::move(*session) : nullptr;
  }
  static double step(Session& session, const std::vector<Tensor>& batch, int64_t stream = 0) {
    StepMetrics metrics;
    const Status status = session.step(batch, metrics, {.stop = {}, .stream = stream});
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(metrics.skipped.ok()) << metrics.skipped.to_string();
    return metrics.loss;
  }
  static void expect_same_state(Session& a, Session& b) {
    for (const StateSlot& slot : a.plan().state().slots())
      EXPECT_TRUE(identical(*a.state().get(slot.name), *b.state().get(slot.name))) << slot.name;
  }
  uint64_t count(const char* what) {
    return reinterpret_cast<uint64_t (*)(const char*)>(::dlsym(library_, "epl_test_machine_count"))(what);
  }

  void* library_ = nullptr;
};

// Each step has tensors of its own, at other addresses, and goes on being replayed.
TEST_F(ForeignTensorsOnGpus, HaveTheBitsOfTheHosts) {
  for (const int parts : {1, 2}) {
    const Plan plan = plan_on("cuda:0", cat("\"pipeline.num_micro_batch\": ", parts));
    ASSERT_NE(plan, nullptr);
    const auto given = session_of(plan), taken = session_of(plan);
    ASSERT_TRUE(given && taken);
    HostProgram program(library_, 0);
    std::vector<Tensor> kept;  // so that no address comes again
    uint64_t nodes = 0;
    for (int s = 0; s < 5; ++s) {
      const double wanted = step(*given, skip_mlp_batch(s));
      const std::vector<Tensor> batch = program.put(skip_mlp_batch(s), s % 2 == 0 ? 0 : 8);
      kept.insert(kept.end(), batch.begin(), batch.end());
      const uint64_t graphs = count("graphs");
      EXPECT_EQ(step(*taken, batch, program.stream()), wanted) << "step " << s << ", " << parts << " micro-batches";
      EXPECT_EQ(count("graphs") - graphs, s == 0 ? 0u : 2u) << "step " << s;
      if (s == 1) nodes = count("recorded");
      if (s > 1) {
        EXPECT_EQ(count("recorded"), nodes) << "it is recorded once";
      }
    }
    expect_same_state(*given, *taken);
  }
}

TEST_F(ForeignTensorsOnGpus, MayStandBesideTensorsOfTheHost) {
  const Plan plan = plan_on("cuda:0");
  ASSERT_NE(plan, nullptr);
  const auto given = session_of(plan), taken = session_of(plan);
  ASSERT_TRUE(given && taken);
  HostProgram program(library_, 0);
  for (int s = 0; s < 6; ++s) {
    std::vector<Tensor> batch = skip_mlp_batch(s);
    const double wanted = step(*given, batch);
    if (s % 3 != 0) batch[0] = program.put(batch[0]);
    if (s % 3 == 2) batch[1] = program.put(batch[1]);
    EXPECT_EQ(step(*taken, batch, program.stream()), wanted) << s;
  }
  expect_same_state(*given, *taken);
}

TEST_F(ForeignTensorsOnGpus, OfTheDefaultStreamNeedNoWord) {
  const Plan plan = plan_on("cuda:0");
  ASSERT_NE(plan, nullptr);
  const auto given = session_of(plan), taken = session_of(plan);
  ASSERT_TRUE(given && taken);
  HostProgram program(library_, 0);
  for (int s = 0; s < 3; ++s) {
    std::vector<Tensor> batch = skip_mlp_batch(s);
    const double wanted = step(*given, batch);
    for (Tensor& one : batch) one = program.put_by_default(one);
    EXPECT_EQ(step(*taken, batch), wanted) << s;
  }
  std::vector<Tensor> waited = program.put(skip_mlp_batch(3));
  program.synchronize();
  EXPECT_EQ(step(*taken, waited, -1), step(*given, skip_mlp_batch(3))) << "the program has waited itself";
}

// The program's stream writes the room before it, and reads it behind it.
TEST_F(ForeignTensorsOnGpus, AreOutputsOfPredictions) {
  const Plan plan = plan_on("cuda:0");
  ASSERT_NE(plan, nullptr);
  const auto session = session_of(plan);
  ASSERT_NE(session, nullptr);
  const Entry& entry = *plan->entry(EntryKind::predict);
  HostProgram program(library_, 0);
  for (int s = 0; s < 8; ++s) {
    const std::vector<Tensor> x = {skip_mlp_batch(s)[0]};
    std::vector<Tensor> wanted = {Tensor(entry.outputs[0].global_type)}, there = {program.room(wanted[0].type())};
    ASSERT_TRUE(session->predict(x, wanted).ok());
    if (s % 4 == 3) there[0] = Tensor(wanted[0].type());  // now and then one of the host
    const std::vector<Tensor> from = s % 2 == 0 ? x : program.put(x);
    const Status status = session->predict_into(from, there, {.stop = {}, .stream = program.stream()});
    ASSERT_TRUE(status.ok()) << s << ": " << status.to_string();
    EXPECT_TRUE(identical(s % 4 == 3 ? there[0] : program.get(there[0]), wanted[0])) << s;
  }
}

TEST_F(ForeignTensorsOnGpus, OfFewerSamplesAreTakenToo) {
  const Plan plan = plan_on("cuda:0");
  ASSERT_NE(plan, nullptr);
  const auto session = session_of(plan);
  ASSERT_NE(session, nullptr);
  HostProgram program(library_, 0);
  const std::vector<Tensor> batch = skip_mlp_samples(0, 5);
  std::vector<Tensor> wanted = {Tensor(TensorType{DType::f32, {5, 4}})}, there = {program.room(wanted[0].type())};
  ASSERT_TRUE(session->predict_into(std::span(batch).first(1), wanted).ok());
  const CallOptions options{.stop = {}, .stream = program.stream()};
  const std::vector<Tensor> from = program.put(batch);
  const Status status = session->predict_into(std::span(from).first(1), there, options);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(identical(program.get(there[0]), wanted[0]));
  double loss = 0, loss_there = 1;
  ASSERT_TRUE(session->evaluate(batch, loss).ok());
  ASSERT_TRUE(session->evaluate(from, loss_there, options).ok());
  EXPECT_EQ(loss, loss_there);
}

TEST_F(ForeignTensorsOnGpus, OfOneGpuAreForRanksOfAll) {
  const Plan plan = plan_on("cuda:0,1", "", 2);
  ASSERT_NE(plan, nullptr);
  const auto given = session_of(plan), taken = session_of(plan);
  ASSERT_TRUE(given && taken);
  HostProgram first(library_, 0), second(library_, 1);
  for (int s = 0; s < 3; ++s) {
    const double wanted = step(*given, skip_mlp_batch(s));
    EXPECT_EQ(step(*taken, second.put(skip_mlp_batch(s)), second.stream()), wanted) << s;
  }
  expect_same_state(*given, *taken);
  std::vector<Tensor> batch = skip_mlp_batch(3);
  batch = {first.put(batch[0]), second.put(batch[1])};
  StepMetrics metrics;
  const Status two = taken->step(batch, metrics, {.stop = {}, .stream = second.stream()});
  EXPECT_NE(two.message().find("several devices, and a stream is of one"), std::string::npos) << two.to_string();
  first.synchronize(), second.synchronize();
  EXPECT_EQ(step(*taken, batch, -1), step(*given, skip_mlp_batch(3)));
}

// What is looked at on the host is said as of tensors of the host.
TEST_F(ForeignTensorsOnGpus, AreCheckedAsAllOthers) {
  const Plan plan = plan_on("cuda:0");
  ASSERT_NE(plan, nullptr);
  const auto session = session_of(plan);
  ASSERT_NE(session, nullptr);
  HostProgram program(library_, 0);
  const CallOptions options{.stop = {}, .stream = program.stream()};
  StepMetrics metrics;
  std::vector<Tensor> batch = skip_mlp_batch(0);
  batch[1].set_int(2, 4);
  const Status wrong = session->step(program.put(batch), metrics, options);
  EXPECT_EQ(wrong.code(), Code::invalid_argument);
  EXPECT_NE(wrong.message().find("input target"), std::string::npos) << wrong.to_string();
  batch = skip_mlp_batch(0);
  batch[0].set(13, std::numeric_limits<double>::quiet_NaN());
  const Status spoilt = session->step(program.put(batch), metrics, options);
  ASSERT_TRUE(spoilt.ok()) << spoilt.to_string();
  EXPECT_NE(metrics.skipped.message().find("input x holds nan at [1, 1]"), std::string::npos)
      << metrics.skipped.to_string();
  const Status type = session->step(program.put(skip_mlp_samples(0, 8, 11)), metrics, options);
  EXPECT_NE(type.message().find("input x is f32[8,12] in the plan, got f32[8,11]"), std::string::npos)
      << type.to_string();
  step(*session, program.put(skip_mlp_batch(0)), program.stream());
}

TEST_F(ForeignTensorsOnGpus, OfAnotherDeviceAreRefused) {
  HostProgram program(library_, 1);
  const std::vector<Tensor> batch = program.put(skip_mlp_batch(0));
  const auto here = session_of(plan_on("cuda:0")), cpu = session_of(plan_on("cpu"));
  ASSERT_TRUE(here && cpu);
  for (Session* session : {here.get(), cpu.get()}) {
    StepMetrics metrics;
    const Status refused = session->step(batch, metrics);
    EXPECT_EQ(refused.code(), Code::invalid_argument);
    EXPECT_NE(refused.message().find(session == cpu.get() ? "input x lies on cuda:1, and the session is on cpu"
                                                          : "input x lies on cuda:1, and the session is on cuda:0"),
              std::string::npos)
        << refused.to_string();
    std::vector<Tensor> room = {program.room(TensorType{DType::f32, {8, 4}})};
    const Status output = session->predict_into(std::vector<Tensor>{skip_mlp_batch(0)[0]}, room);
    EXPECT_NE(output.message().find("output y lies on cuda:1"), std::string::npos) << output.to_string();
    step(*session, skip_mlp_batch(0));
  }
  program.synchronize();
}

// The last one: a GPU is of no use behind a fault, and no other test has this one.
TEST_F(ForeignTensorsOnGpus, WithoutAWordOfTheirStreamAreFound) {
  const Plan plan = plan_on("cuda:2");
  ASSERT_NE(plan, nullptr);
  const auto session = session_of(plan);
  ASSERT_NE(session, nullptr);
  step(*session, skip_mlp_batch(0));
  auto* const program = new HostProgram(library_, 2);  // behind the fault nothing of it can be given back
  auto* const batch = new std::vector<Tensor>(program->put(skip_mlp_batch(1)));
  StepMetrics metrics;
  const Status status = session->step(*batch, metrics, {.stop = {}, .stream = -1});
  EXPECT_FALSE(status.ok()) << "nothing says that the copies come behind what the program's stream writes";
}

}  // namespace
}  // namespace epl::foreign_test
