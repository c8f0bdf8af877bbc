// Every op that the device has a kernel for, run there: the bits of the CPU. On a GPU, or on whatever answers as its
// driver; without one it is skipped with the reason.
#include <cmath>
#include <cstring>

#include "tests/backend/conformance.h"
#include "tests/cuda/on_cpu.h"

namespace epl::cuda {
namespace {

// Equal bits; which NaN it is, processors choose for themselves.
bool same_element(const Tensor& a, const Tensor& b, int64_t i) {
  const auto bytes = static_cast<int64_t>(dtype_bytes(a.dtype()));
  const auto* p = static_cast<const std::byte*>(a.data()) + i * bytes;
  const auto* q = static_cast<const std::byte*>(b.data()) + i * bytes;
  if (std::memcmp(p, q, static_cast<size_t>(bytes)) == 0) return true;
  return is_float(a.dtype()) && std::isnan(a.get(i)) && std::isnan(b.get(i));
}

class OnTheDevice : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    static TestHost memory;
    auto opened = open_device("cuda", memory.host());
    reason = opened.ok() ? "" : opened.status().message();
    if (opened.ok()) device = *std::move(opened);
  }
  static void TearDownTestSuite() { device.reset(); }
  void SetUp() override {
    if (!device) GTEST_SKIP() << reason;
    stream = device->create_stream(1).value();
  }

  // Uploads, launches and downloads; empty where the device has no kernel for it.
  std::vector<Tensor> run(const cpu::Launch& launch) {
    KernelQuery query = cpu::query_of(launch);
    query.device = device.get();
    const ChosenKernel kernel = device->kernels().choose(query, &refusals);
    if (!kernel.row) return {};
    std::vector<std::unique_ptr<Buffer>> memory;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const Tensor& in : launch.inputs) {
      inputs.push_back(nullptr);
      if (in.empty()) continue;
      memory.push_back(device->allocate(in.bytes()).value());
      stream->upload(memory.back()->data(), in.data(), in.bytes());
      inputs.back() = memory.back()->data();
    }
    for (const TensorType& type : launch.outputs) {
      memory.push_back(device->allocate(type.bytes()).value());
      stream->fill(memory.back()->data(), type.bytes(), 0xc5);
      outputs.push_back(memory.back()->data());
    }
    const auto workspace = device->allocate(kernel.prepared.workspace_bytes).value();
    stream->fill(workspace->data(), kernel.prepared.workspace_bytes, 0xc5);
    stream->launch(*kernel.row, query, kernel.prepared.state.get(), inputs.data(), outputs.data(), workspace->data(),
                   launch.context);
    std::vector<Tensor> results;
    for (size_t o = 0; o < outputs.size(); ++o) {
      results.emplace_back(launch.outputs[o]);
      stream->download(results.back().data(), outputs[o], results.back().bytes());
    }
    const Status status = stream->synchronize();
    EXPECT_TRUE(status.ok()) << status.to_string();
    return status.ok() ? results : std::vector<Tensor>();
  }

  void compare(const OpDef& op, const std::string& text, const Sample& sample, Units units) {
    SCOPED_TRACE(cat(text, " units ", units.count));
    const cpu::Launch launch = lowered(op, sample, units);
    const std::vector<Tensor> got = run(launch);
    if (got.empty()) return;
    ++compared;
    const std::vector<Tensor> want = on_cpu(op, sample, launch);
    for (size_t o = 0; o < want.size(); ++o) {
      if (want[o].empty()) continue;
      for (int64_t i = 0; i < want[o].elements(); ++i) {
        if (same_element(want[o], got[o], i)) continue;
        ADD_FAILURE() << "output " << o << " element " << i << ": " << got[o].get(i) << ", the CPU has "
                      << want[o].get(i);
        break;
      }
    }
  }

  static std::shared_ptr<Device> device;
  static std::string reason;
  std::unique_ptr<Stream> stream;
  std::vector<Refusal> refusals;
  int compared = 0;
};
std::shared_ptr<Device> OnTheDevice::device;
std::string OnTheDevice::reason;

class OnTheDeviceOp : public OnTheDevice, public testing::WithParamInterface<const OpDef*> {};

TEST_P(OnTheDeviceOp, HasTheBitsOfTheCpu) {
  const OpDef& op = *GetParam();
  for (const std::string& text : op.samples) {
    for (const int64_t units : {1, 2}) {
      compare(op, text, *parse_sample(op, text), units);
      if (HasFailure()) return;
    }
  }
  if (compared == 0) GTEST_SKIP() << "no kernel" << (refusals.empty() ? "" : ": " + refusals.back().reason);
}

// Past tiles, segments and rows of several threads, some of which have nothing to do.
TEST_F(OnTheDevice, LargerSizesHaveTheBitsOfTheCpu) {
  const std::pair<const char*, const char*> larger[] = {
      {"matmul", "f32[96,128,9], f32[96,9,131]"},
      {"linear", "f32[259,21], f32[300,21], f32[300] {transpose_w=true}"},
      {"linear_grad_weight", "f32[540,70], f32[540,65]"},
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

std::vector<const OpDef*> ops() {
  std::vector<const OpDef*> all;
  for (const OpDef* op : op_table().all())
    if (!op->boundary) all.push_back(op);
  return all;
}

INSTANTIATE_TEST_SUITE_P(, OnTheDeviceOp, testing::ValuesIn(ops()), [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace epl::cuda
