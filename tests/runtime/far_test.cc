// Training on a device whose memory the host cannot touch and whose work waits until it must be done: the same bits as
// on the processor, and a sentence where that cannot be.
#include <gtest/gtest.h>

#include "tests/backend/far_device.h"
#include "tests/runtime/trained.h"
#include "tests/temporary_folder.h"

namespace epl::far_test {
namespace {

// Samples are in dimension 0 of one input and in dimension 1 of the other; one input is the same for all of them.
constexpr std::string_view model = R"(graph mixed(x: f32[8,12] batch 0, z: f32[3,8] batch 1, c: f32[16]) {
  w1: f32[12,16] = param
  w2: f32[16,4] = param
  w3: f32[3,4] = param
  forward:
  h: f32[8,16] = linear(x, w1, c)
  a: f32[8,16] = relu(h)
  y: f32[8,4] = linear(a, w2)
  t: f32[8,3] = transpose(z) {perm=[1,0]}
  s: f32[8,4] = linear(t, w3)
  v: f32[8,4] = add(y, s)
  output y = v
}
)";

const char* far_name() {
  static const bool added = (add_backend(far_backend("far_test", 11)), true);
  return added ? "far_test" : "";
}

Result<std::shared_ptr<const CompiledPlan>> plan_on(const std::string& device, const char* micro_batches,
                                                    std::string_view text = model, int64_t ranks = 1) {
  auto options =
      layout_options(GraphModel::parse(text), ranks, cat("{\"pipeline.num_micro_batch\": ", micro_batches, "}"));
  if (options.ok()) options->device = device;
  return layout_plan(options);
}

std::vector<Tensor> batch(int step) {
  std::vector<Tensor> inputs = {Tensor({DType::f32, {8, 12}}), Tensor({DType::f32, {3, 8}}), Tensor({DType::f32, {16}}),
                                Tensor({DType::i64, {8}})};
  for (size_t i = 0; i < 3; ++i)
    for (int64_t e = 0; e < inputs[i].elements(); ++e) inputs[i].set(e, philox_uniform(100 * step + i, e) - 0.5);
  for (int i = 0; i < 8; ++i) inputs[3].set_int(i, (i + step) % 4);
  return inputs;
}

TEST(Far, LearnsTheSameBits) {
  const Trained here = train(plan_on("cpu", "1"), "cpu", 5, batch);
  for (const auto& [micro_batches, ranks] : {std::pair("1", 1), {"2", 1}, {"4", 1}, {"1", 2}, {"2", 2}, {"1", 4}}) {
    const std::string layout = cat(micro_batches, " micro-batches on ", ranks, " ranks");
    expect_same(train(plan_on(far_name(), micro_batches, model, ranks), layout, 5, batch), here, layout);
  }
}

// What is used is uploaded, shard by shard where it is cut, and programs of the processor know nothing of it.
TEST(Far, InputsAreUploaded) {
  const auto program = [](const std::string& device) {
    auto plan = plan_on(device, "2");
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    return plan.ok() ? *(*plan)->text(EntryKind::train, "program") : std::string();
  };
  const std::string there = program(far_name());
  for (const char* line : {"upload x.uploaded", "upload c.uploaded", "slice z.shard"})
    EXPECT_NE(there.find(line), std::string::npos) << line << "\n" << there;
  EXPECT_EQ(there.find("z.uploaded"), std::string::npos) << "a slice brings its shard itself";
  EXPECT_EQ(program("cpu").find("upload"), std::string::npos);
}

// What lies there in shards is saved from there, and what is loaded goes there, in full or in shards.
TEST(Far, SavesAndLoadsUnderAnotherLayout) {
  const TemporaryFolder folder;
  const auto session_of = [](const std::string& device, int64_t ranks, std::string_view keys) {
    auto options = layout_options(GraphModel::parse(model), ranks, keys);
    options->device = device;
    return Session::create(test_host(2), layout_plan(options).value(), {.seed = 7}).value();
  };
  constexpr std::string_view split = R"({"default": {"split": 2}})";
  const auto here = session_of("cpu", 1, "{}");
  StepMetrics metrics;
  ASSERT_TRUE(here->step(batch(0), metrics).ok());
  std::string last = folder / "here";
  ASSERT_TRUE(save_session(*here, last).ok());
  for (const auto& [ranks, keys] : {std::pair(1, std::string_view("{}")), {2, split}, {1, "{}"}}) {
    const auto there = session_of(far_name(), ranks, keys);
    const Status loaded = load_session(*there, last);
    ASSERT_TRUE(loaded.ok()) << loaded.to_string();
    for (const StateSlot& slot : here->plan().state().slots())
      EXPECT_TRUE(identical(*there->state().get(slot.name), *here->state().get(slot.name))) << slot.name;
    last += "+";
    ASSERT_TRUE(save_session(*there, last).ok());
  }
  const auto again = session_of("cpu", 1, "{}");
  ASSERT_TRUE(load_session(*again, last).ok());
  for (const StateSlot& slot : here->plan().state().slots())
    EXPECT_TRUE(identical(*again->state().get(slot.name), *here->state().get(slot.name))) << slot.name;
}

// A reference runs on the host.
TEST(Far, ReferencesAreRefused) {
  constexpr std::string_view text = R"(graph triangle(x: f32[8,12] batch 0) {
  w: f32[12,4] = param
  forward:
  y: f32[8,4] = linear(x, w)
  z: f32[8,4] = trilu(y) {upper=true}
  output y = z
}
)";
  auto here = plan_on("cpu", "1", text);
  ASSERT_TRUE(here.ok()) << here.status().to_string();
  ASSERT_NE((*here)->text(EntryKind::train, "kernels")->find("trilu: reference"), std::string::npos)
      << "needs another op";
  const Status refused = plan_on(far_name(), "1", text).status();
  EXPECT_EQ(refused.code(), Code::unsupported) << refused.to_string();
  EXPECT_EQ(refused.where(), "z");
  for (const char* part : {"no kernel for trilu", "the host", "far away"})
    EXPECT_NE(refused.message().find(part), std::string::npos) << refused.to_string();
}

}  // namespace
}  // namespace epl::far_test
