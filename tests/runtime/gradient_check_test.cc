// gradient_checkpoint.check_gradients finds a kernel that gives other bits when it runs again: the step is an error
// that names the first parameter whose gradient differs, and changes nothing.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/runtime/session.h"
#include "tests/runtime/trained.h"

namespace epl::gradient_check_test {
namespace {

// What is computed again is the softmax. Gradients of `last` do not depend on it but by what the forward pass gave.
constexpr std::string_view model = R"(graph small(x: f32[8,4] batch 0) {
  last: f32[8,4] = param
  inner: f32[8,8] = param
  first: f32[4,8] = param
  forward:
  h: f32[8,8] = matmul(x, first)
  s: f32[8,8] = softmax(h) {axis=1}
  m: f32[8,8] = matmul(s, inner)
  g: f32[8,8] = gelu(m)
  y: f32[8,4] = matmul(g, last)
  output y = y
}
)";

int calls = 0;
bool forgets = false;

// The processor, whose softmax is another one each second time.
class Forgetful final : public Device {
 public:
  explicit Forgetful(std::shared_ptr<Device> cpu) : cpu_(std::move(cpu)) {
    for (KernelRow row : cpu_->kernels().rows("softmax")) {
      row.launch = [launch = row.launch](const KernelCall& call) {
        launch(call);
        if (forgets && ++calls % 2 == 0) *call.out<float>(0) += 0.5F;
      };
      table_.add(std::move(row));
    }
    table_.add(cpu_->kernels());
  }
  std::string description() const override { return "forgetful"; }
  const KernelTable& kernels() const override { return table_; }
  bool shares_host_memory() const override { return true; }
  Result<std::unique_ptr<Buffer>> allocate(int64_t bytes) override { return cpu_->allocate(bytes); }
  Result<std::unique_ptr<Stream>> create_stream(int threads) override { return cpu_->create_stream(threads); }
  std::unique_ptr<Event> create_event() override { return cpu_->create_event(); }
  Result<std::vector<std::unique_ptr<Communicator>>> create_group(const std::string& name, int ranks) override {
    return cpu_->create_group(name, ranks);
  }

 private:
  const std::shared_ptr<Device> cpu_;
  KernelTable table_;
};

std::vector<Tensor> batch() {
  Tensor x(TensorType{DType::f32, {8, 4}}), target(TensorType{DType::i64, {8}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>((i * 37) % 101) / 50 - 1);
  for (int64_t i = 0; i < target.elements(); ++i) target.set_int(i, i % 4);
  return {x, target};
}

std::unique_ptr<Session> session_of(const std::string& more) {
  add_backend({.name = "forgetful",
               .doc = "",
               .open = [](const Host& host, const DeviceOptions& options) -> Result<std::shared_ptr<Device>> {
                 EPL_ASSIGN(std::shared_ptr<Device> cpu, open_device("cpu", host, options));
                 return std::shared_ptr<Device>(std::make_shared<Forgetful>(std::move(cpu)));
               }});
  auto options = layout_options(
      GraphModel::parse(model), 1,
      cat(R"({"gradient_checkpoint.type": "collection", "gradient_checkpoint.tensors": "m")", more, "}"));
  EXPECT_TRUE(options.ok()) << options.status().to_string();
  options->device = "forgetful";
  const auto plan = layout_plan(options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  auto session = Session::create(test_host(1), *plan, {.seed = 7});
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  calls = 0;
  return std::move(*session);
}

TEST(CheckGradients, NamesTheFirstParameterThatDiffers) {
  const auto session = session_of(R"(, "gradient_checkpoint.check_gradients": true)");
  const Tensor before = session->state().get("inner")->clone();
  StepMetrics metrics;
  forgets = true;
  const Status refused = session->step(batch(), metrics);
  forgets = false;
  EXPECT_EQ(calls, 3) << "once in the forward pass, once again, and once where nothing is computed again";
  EXPECT_EQ(refused.code(), Code::internal);
  EXPECT_EQ(refused.where(), "inner");
  EXPECT_EQ(refused.message(),
            "gradient_checkpoint.check_gradients: the gradient of inner has other bits where nothing is computed "
            "again; the step was not applied");
  EXPECT_EQ(session->host_state().steps_done(), 0);
  EXPECT_TRUE(identical(*session->state().get("inner"), before));
  // The same step again, of a kernel that has been mended; later ones are not compared.
  ASSERT_TRUE(session->step(batch(), metrics).ok());
  EXPECT_FALSE(identical(*session->state().get("inner"), before));
  forgets = true;
  EXPECT_TRUE(session->step(batch(), metrics).ok());
  forgets = false;
}

TEST(CheckGradients, IsNotMadeWhereNobodyAsks) {
  const auto session = session_of("");
  StepMetrics metrics;
  forgets = true;
  EXPECT_TRUE(session->step(batch(), metrics).ok());
  forgets = false;
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace epl::gradient_check_test
