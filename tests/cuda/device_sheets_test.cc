// A plan by a sheet is the plan of the GPU that the sheet is of: the same program with the same memory, decided by the
// same numbers. On a GPU, or on whatever answers as its driver; without one it is skipped with the reason.
#include "backends/cuda/sheets/sheets.h"
#include "core/compile/plan_memory.h"
#include "tests/cuda/on_device.h"
#include "tests/runtime/graph_model.h"

namespace epl::cuda {
namespace {

constexpr std::string_view two_layers = R"(graph two_layers(x: f32[16,24] batch 0) {
  w: f32[24,40] = param
  b: f32[40] = param
  v: f32[40,10] = param
  forward:
  h: f32[16,40] = linear(x, w, b)
  a: f32[16,40] = gelu(h)
  y: f32[16,10] = linear(a, v)
  output y = y
}
)";

class OnTheDeviceSheets : public OnTheDevice {
 protected:
  std::shared_ptr<const CompiledPlan> plan_on(const std::string& name, const char* bits, int64_t micro_batches) {
    PlanOptions options;
    options.model = GraphModel::parse(two_layers);
    options.train.loss.name = "softmax_cross_entropy";
    options.train.optimizer = "adamw";
    options.device = name;
    EXPECT_TRUE(set_config(options.strategy, "reproducible.level", bits).ok());
    EXPECT_TRUE(set_config(options.strategy, "pipeline.num_micro_batch", cat(micro_batches)).ok());
    auto plan = CompiledPlan::create(memory.host(), options);
    EXPECT_TRUE(plan.ok()) << name << ": " << plan.status().to_string();
    return plan.ok() ? *plan : nullptr;
  }
  TestHost memory;
};

TEST_F(OnTheDeviceSheets, APlanIsTheSameWithAndWithoutTheGpu) {
  const DeviceSheet* sheet = nullptr;
  for (const DeviceSheet& one : device_sheets())
    if (device->description().starts_with(one.product + ",")) sheet = &one;
  if (sheet == nullptr) GTEST_SKIP() << "there is no sheet of " << device->description();
  EXPECT_EQ(device->machine().name, sheet->machine.name);
  for (const char* bits : {"exact", "data", "run"}) {
    for (const int64_t micro_batches : {1, 4}) {
      SCOPED_TRACE(cat(bits, ", micro-batches ", micro_batches));
      const auto here = plan_on("cuda", bits, micro_batches);
      const auto planned = plan_on(cat("cuda:", sheet->name), bits, micro_batches);
      ASSERT_TRUE(here && planned);
      EXPECT_EQ(PlanMemory(*planned).peak(), PlanMemory(*here).peak());
      EXPECT_EQ(*planned->text(EntryKind::train, "program"), *here->text(EntryKind::train, "program"));
    }
  }
}

}  // namespace
}  // namespace epl::cuda
