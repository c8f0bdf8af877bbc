// Convolutions by cuDNN on the device, at the level of bits that allows it: near the CPU's numbers. On the machine for
// tests engines that narrow float32 or give other bits each time are suggested first, so that one that was taken is
// found.
#include "tests/cuda/on_device.h"

namespace epl::cuda {
namespace {

class OnTheDeviceConvolutions : public OnTheDevice {
 protected:
  cpu::Launch launch_of(const char* name, const std::string& text) {
    const OpDef* op = op_table().find(name);
    auto sample = parse_sample(*op, text);
    EXPECT_TRUE(sample.ok()) << sample.status().to_string();
    return lowered(*op, *sample);
  }
};

struct ConvolutionCase {
  const char* op;
  const char* sample;
};
constexpr ConvolutionCase convolutions[] = {
    {"conv", "f32[2,3,6,7], f32[4,3,3,3], f32[4] {pads=[1,1,1,1]}"},
    {"conv", "f32[2,4,7,5], f32[6,4,3,2] {strides=[2,1]}"},
    {"conv", "f32[2,4,6,6], f32[4,1,3,3] {groups=4,pads=[1,1,1,1],strides=[2,2]}"},
    {"conv", "f32[2,4,9,8], f32[6,2,3,3], f32[6] {groups=2,dilations=[2,1],pads=[2,1,2,1]}"},
    {"conv", "f32[2,3,5,6], f32[4,3,3,3] {pads=[0,1,1,0]}"},
    {"conv", "f32[2,2,9], f32[2,2,3], f32[2] {dilations=[2],pads=[2,2]}"},
    {"conv", "f32[2,2,4,4,3], f32[2,2,2,2,2]"},
    {"conv", "bf16[2,4,6,5], bf16[6,4,3,3], f32[6] {pads=[1,1,1,1],wide=true}"},
    {"conv", "f16[2,4,6,5], f16[6,2,3,3] {groups=2,strides=[2,1],wide=true}"},
    {"conv_grad_input", "f32[2,4,5,6], f32[4,2,3,3] {pads=[1,1,1,1],shape=[2,2,5,6]}"},
    {"conv_grad_input", "f32[2,6,3,4], f32[6,4,3,2] {strides=[2,1],shape=[2,4,8,5]}"},
    {"conv_grad_input", "f32[2,6,7], f32[6,2,3] {groups=2,pads=[1,0],shape=[2,4,8]}"},
    {"conv_grad_input", "f32[2,4,5,6], f32[4,2,3,3] {dilations=[2,2],pads=[2,2,2,2],shape=[2,2,5,6]}"},
    {"conv_grad_input", "bf16[2,4,4,4], bf16[4,2,3,3] {pads=[1,1,1,1],shape=[2,2,4,4],wide=true}"},
    {"conv_grad_weight", "f32[4,2,5,6], f32[4,4,5,6] {pads=[1,1,1,1],shape=[4,2,3,3]}"},
    {"conv_grad_weight", "f32[2,4,8,5], f32[2,6,3,4] {strides=[2,1],shape=[6,4,3,2]}"},
    {"conv_grad_weight", "f32[2,4,8], f32[2,6,7] {groups=2,pads=[1,0],shape=[6,2,3]}"},
    {"conv_grad_weight", "f16[2,2,4,4], f16[2,4,4,4] {pads=[1,1,1,1],shape=[4,2,3,3],wide=true}"},
};

TEST_F(OnTheDeviceConvolutions, AreNearTheCpus) {
  level = BitsLevel::run;
  for (const ConvolutionCase& one : convolutions) {
    SCOPED_TRACE(cat(one.op, " ", one.sample));
    refusals.clear();
    const cpu::Launch launch = launch_of(one.op, one.sample);
    const std::vector<Tensor> got = run(launch);
    if (!refusals.empty() && refusals[0].reason.find("cannot be opened") != std::string::npos) {
      EXPECT_FALSE(got.empty()) << "the kernels of EPL go on";
      GTEST_SKIP() << refusals[0].reason;
    }
    EXPECT_TRUE(chosen.ends_with("_dnn")) << chosen << (refusals.empty() ? "" : ": " + refusals[0].reason);
    const std::vector<Tensor> want =
        on_cpu(*op_table().find(one.op), *parse_sample(*op_table().find(one.op), one.sample), launch);
    ASSERT_EQ(got.size(), 1u);
    for (int64_t i = 0; i < want[0].elements(); ++i)
      ASSERT_NEAR(got[0].get(i), want[0].get(i), 2e-5 * (1 + std::abs(want[0].get(i)))) << "element " << i;
    // The same call has the same bits.
    const std::vector<Tensor> again = run(launch);
    ASSERT_EQ(again.size(), 1u);
    for (int64_t i = 0; i < again[0].elements(); ++i) ASSERT_TRUE(same_element(again[0], got[0], i)) << "element " << i;
  }
}

TEST_F(OnTheDeviceConvolutions, WhereBitsAreKeptTheLibraryIsRefusedWithTheReason) {
  const cpu::Launch launch = launch_of("conv", "f32[2,3,6,7], f32[4,3,3,3] {pads=[1,1,1,1]}");
  for (const BitsLevel kept : {BitsLevel::exact, BitsLevel::data, BitsLevel::run}) {
    level = kept;
    splits_keep_bits = kept == BitsLevel::run;
    refusals.clear();
    run(launch);
    EXPECT_FALSE(chosen.ends_with("_dnn")) << chosen;
    ASSERT_FALSE(refusals.empty());
    EXPECT_NE(refusals[0].reason.find("reproducible.level"), std::string::npos) << refusals[0].reason;
  }
}

}  // namespace
}  // namespace epl::cuda
