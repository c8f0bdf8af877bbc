// Every op that the device has a kernel for, run there: the bits of the CPU. On a GPU, or on whatever answers as its
// driver; without one it is skipped with the reason.
#include "tests/cuda/narrow_casts.h"
#include "tests/cuda/on_device.h"
#include "tests/cuda/without_kernel.h"
#include "tests/thirds.h"

namespace epl::cuda {
namespace {

class OnTheDeviceOp : public OnTheDevice, public testing::WithParamInterface<const OpDef*> {};

TEST_P(OnTheDeviceOp, HasTheBitsOfTheCpu) {
  EPL_ONE_OF_THREE();
  const OpDef& op = *GetParam();
  for (const std::string& text : op.samples) {
    for (const int64_t units : {1, 2}) {
      compare(op, text, *parse_sample(op, text), units);
      if (HasFailure()) return;
    }
  }
  EXPECT_EQ(compared == 0, ops_without_kernel().contains(op.name)) << compared << " launches" << why();
}

// In types that the CPU has few kernels for: the bits of the ops' meanings.
TEST_F(OnTheDevice, OtherFloatsHaveTheBitsOfTheCpu) {
  EPL_ONE_OF_THREE();
  int wanted = 0;
  for (const char* name : {"add",           "exp",           "where",           "sum",
                           "max_reduce",    "matmul",        "linear",          "linear_grad_weight",
                           "picked_linear", "conv",          "conv_grad_input", "conv_grad_weight",
                           "max_pool",      "avg_pool_grad", "gather_grad",     "scatter_elements",
                           "cum_sum",       "top_k",         "dropout",         "transpose"}) {
    const OpDef* op = op_table().find(name);
    ASSERT_NE(op, nullptr) << name;
    const std::string& text = op->samples.front();
    for (const DType type : {DType::f64, DType::f16, DType::bf16}) {
      compare(*op, cat(name, " ", text, " in ", dtype_name(type)), parse_sample(*op, text)->with_floats(type), 1);
      ASSERT_EQ(compared, ++wanted) << name << " has no kernel of " << dtype_name(type) << why();
      if (HasFailure()) return;
    }
  }
}

// Past tiles, segments and rows of several threads, some of which have nothing to do.
TEST_F(OnTheDevice, LargerSizesHaveTheBitsOfTheCpu) {
  const std::pair<const char*, const char*> larger[] = {
      {"matmul", "f32[96,128,9], f32[96,9,131]"},
      {"linear", "f32[259,21], f32[300,21], f32[300] {transpose_w=true}"},
      {"linear_grad_weight", "f32[540,70], f32[540,65]"},
      {"matmul", "bf16[96,128,9], bf16[96,9,131] {wide=true}"},
      {"linear", "f16[259,21], f16[300,21], f32[300] {transpose_w=true,wide=true}"},
      {"linear_grad_weight", "bf16[540,70], bf16[540,65] {wide=true}"},
      {"conv", "bf16[1,20,9,10], bf16[16,20,3,3], f32[16] {pads=[1,1,1,1],wide=true}"},
      {"conv_grad_weight", "f16[2,16,9,10], f16[2,16,9,10] {pads=[1,1,1,1],shape=[16,16,3,3],wide=true}"},
      {"softmax", "f32[3,1100] {axis=1}"},
      {"log_softmax_grad", "f32[3,70], f32[3,70] {axis=1}"},
      {"cross_entropy", "f32[34,1030], i64[34](-1..40) {ignore_index=-1}"},
      {"cross_entropy_grad", "f32[5,70], i64[5](-1..70), f32[](0.5..1), f32[5](7..9) {ignore_index=-1}"},
      {"layer_norm", "f32[5,1100], f32[1100], f32[1100]"},
      {"layer_norm_grad", "f32[20,40], f32[20,40], f32[20,1], f32[20,1](0.5..2), f32[40]"},
      {"attention", "f32[1,2,70,20], f32[1,1,75,20], f32[1,1,75,24] {scale=0.3}"},
      {"attention", "f32[1,1,110,16], f32[1,1,110,16], f32[1,1,110,16] {scale=0.3,causal=true}"},
      {"attention_grad",
       "f32[1,1,110,16], f32[1,1,110,16], f32[1,1,110,16], f32[1,1,110,16], f32[1,1,110,16], f32[1,1,110](4..6) "
       "{scale=0.3,causal=true}"},
      {"attention_grad",
       "f32[1,2,40,24], f32[1,2,40,20], f32[1,1,70,20], f32[1,1,70,24], f32[1,2,40,24], f32[1,2,40](4..6) "
       "{scale=0.3}"}};
  for (const auto& [name, text] : larger) {
    const OpDef* op = op_table().find(name);
    ASSERT_NE(op, nullptr) << name;
    const auto sample = parse_sample(*op, text);
    ASSERT_TRUE(sample.ok()) << name << ": " << sample.status().to_string();
    compare(*op, cat(name, " ", text), *sample, 1);
    if (HasFailure()) return;
  }
  EXPECT_EQ(compared, static_cast<int>(std::size(larger)));
}

TEST_F(OnTheDevice, CastsOf16BitsHaveTheBitsOfTheCpu) {
  for (const auto& [text, launch] : narrow_casts()) {
    SCOPED_TRACE(text);
    const std::vector<Tensor> got = run(launch), want = cpu::launch_kernel(launch);
    ASSERT_EQ(got.size(), 1u) << (refusals.empty() ? "" : refusals.back().reason);
    for (int64_t i = 0; i < want[0].elements(); ++i)
      ASSERT_TRUE(same_element(got[0], want[0], i))
          << "element " << i << ": " << got[0].get(i) << ", the CPU has " << want[0].get(i);
  }
}

std::vector<const OpDef*> ops() {
  std::vector<const OpDef*> all;
  for (const OpDef* op : op_table().all())
    if (!op->boundary) all.push_back(op);
  return all;
}

INSTANTIATE_TEST_SUITE_P(, OnTheDeviceOp, testing::ValuesIn(ops()), [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace epl::cuda
