// The rows of the oneDNN pack against the meaning of their ops, cut over threads and alone; and when they are used.
#include <array>
#include <cmath>
#include <map>
#include <thread>

#include "core/backend/device.h"
#include "core/backend/pack.h"
#include "core/ir/evaluate.h"
#include "core/ops/sample.h"
#include "core/runtime/session.h"
#include "tests/kernels/kernel_harness.h"
#include "tests/runtime/graph_model.h"

// The leak checker's own tracer falls over threads of oneDNN's OpenMP now and then, when the tests are through. The
// address sanitizer asks for this function; elsewhere nobody does.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options();
const char* __asan_default_options() { return "detect_leaks=0"; }

namespace epl::onednn_test {
namespace {

constexpr std::string_view missing = EPL_ONEDNN_MISSING;
#define SKIP_WITHOUT_ONEDNN() \
  if (!missing.empty()) GTEST_SKIP() << "pack onednn is not built: " << missing

// The pack's rows alone.
const KernelTable& pack_table() {
  static const KernelTable table = [] {
    KernelTable made;
    auto pack = open_pack(EPL_PACK_FOLDER, "onednn");
    EXPECT_TRUE(pack.ok()) << pack.status().to_string();
    if (pack.ok()) add_pack_kernels(**pack, "cpu", made);
    return made;
  }();
  return table;
}

struct Case {
  cpu::Launch launch;
  std::vector<Tensor> want;
};

Case case_of(const OpDef& op, std::string_view text) {
  auto sample = parse_sample(op, text);
  EXPECT_TRUE(sample.ok()) << sample.status().to_string();
  auto types = infer_types(op, sample->attributes, sample->types());
  EXPECT_TRUE(types.ok()) << types.status().to_string();
  Case made{.launch = {.op = op.name, .attributes = sample->attributes, .inputs = sample->values(3), .outputs = *types},
            .want = {}};
  auto want = evaluate_op(op, sample->attributes, made.launch.inputs, 1, 0);
  EXPECT_TRUE(want.ok()) << want.status().to_string();
  made.want = *std::move(want);
  return made;
}

// Rounding grows with the length of the sums: 2e-6 of the largest result, which is far above float32's 6e-8.
void expect_near(const Tensor& got, const Tensor& want, double relative) {
  double largest = 0;
  for (int64_t i = 0; i < want.elements(); ++i) largest = std::max(largest, std::abs(want.get(i)));
  ASSERT_EQ(got.type(), want.type());
  for (int64_t i = 0; i < want.elements(); ++i) {
    ASSERT_TRUE(cpu::near(got.get(i), want.get(i), relative, relative * largest))
        << "element " << i << ": " << got.get(i) << ", expected " << want.get(i);
  }
}

// Beyond the samples of the records, which fit one thread: large enough to be cut, along every dimension that is cut.
const std::vector<std::pair<const char*, const char*>> large = {
    {"matmul", "f32[200,70], f32[70,90]"},
    {"matmul", "f32[70,200], f32[70,90] {transpose_a=true}"},
    {"matmul", "f32[33,140], f32[410,140] {transpose_b=true}"},
    {"matmul", "f32[7,60,50], f32[7,50,70]"},
    {"matmul", "f32[2,3,50,60], f32[3,70,60] {transpose_b=true}"},
    {"matmul", "f32[5,1,40,60], f32[4,60,30]"},
    {"matmul", "f32[6,60,50], f32[60,90] {transpose_a=true}"},
    {"linear", "f32[5,61,70], f32[70,90], f32[90]"},
    {"linear", "f32[9,100], f32[1100,100], f32[1100] {transpose_w=true}"},
    {"linear_grad_weight", "f32[4,50,70], f32[4,50,90]"},
    {"linear_grad_weight", "f32[300,40], f32[300,90] {transpose_w=true}"},
    {"conv", "f32[3,16,14,15], f32[40,16,3,3], f32[40] {pads=[1,1,1,1]}"},
    {"conv", "f32[1,16,20,21], f32[56,16,3,3], f32[56] {pads=[1,1,1,1]}"},
    {"conv", "f32[1,24,24,24], f32[48,8,3,3], f32[48] {groups=3,pads=[1,1,1,1]}"},
    {"conv", "f32[8,32,16,16], f32[32,1,3,3] {groups=32,pads=[1,1,1,1]}"},
    {"conv", "f32[4,3,32,32], f32[32,3,7,7] {strides=[2,2],pads=[3,3,3,3]}"},
    {"conv", "f32[4,20,40], f32[40,20,5] {dilations=[2],pads=[4,4]}"},
    {"conv", "f32[2,8,6,7,8], f32[24,8,2,3,3] {pads=[0,1,1,1,1,1]}"},
    {"conv_grad_input", "f32[3,40,14,15], f32[40,16,3,3] {pads=[1,1,1,1],shape=[3,16,14,15]}"},
    {"conv_grad_input", "f32[1,16,20,21], f32[16,56,3,3] {pads=[1,1,1,1],shape=[1,56,20,21]}"},
    {"conv_grad_input", "f32[1,48,24,24], f32[48,8,3,3] {groups=3,pads=[1,1,1,1],shape=[1,24,24,24]}"},
    {"conv_grad_input", "f32[4,32,16,16], f32[32,16,3,3] {strides=[2,2],pads=[1,1,1,1],shape=[4,16,32,32]}"},
    {"conv_grad_weight", "f32[3,16,14,15], f32[3,40,14,15] {pads=[1,1,1,1],shape=[40,16,3,3]}"},
    {"conv_grad_weight", "f32[2,24,24,24], f32[2,48,24,24] {groups=3,pads=[1,1,1,1],shape=[48,8,3,3]}"},
    {"conv_grad_weight", "f32[4,3,32,32], f32[4,32,16,16] {strides=[2,2],pads=[3,3,3,3],shape=[32,3,7,7]}"},
};

class OneDnn : public testing::TestWithParam<const char*> {};

TEST_P(OneDnn, AgreesWithTheMeaning) {
  SKIP_WITHOUT_ONEDNN();
  const OpDef& op = *op_table().find(GetParam());
  std::vector<std::string> samples = op.samples;
  for (const auto& [name, sample] : large) {
    if (op.name == name) samples.push_back(sample);
  }
  int compared = 0;
  for (const std::string& text : samples) {
    SCOPED_TRACE(text);
    Case p = case_of(op, text);
    for (int threads : {1, 2, 3}) {
      p.launch.threads = threads;
      std::vector<Refusal> refusals;
      if (!pack_table().choose(cpu::query_of(p.launch), &refusals).row) continue;
      const Tensor got = cpu::launch_kernel(p.launch, "", pack_table())[0];
      expect_near(got, p.want[0], 2e-6);
      EXPECT_TRUE(identical(got, cpu::launch_kernel(p.launch, "", pack_table())[0])) << "another run has other bits";
      ++compared;
    }
  }
  // Which few it refuses is oneDNN's affair, but most must be taken.
  EXPECT_GT(compared, static_cast<int>(samples.size()) * 2);
}
INSTANTIATE_TEST_SUITE_P(Ops, OneDnn,
                         testing::Values("matmul", "linear", "linear_grad_weight", "conv", "conv_grad_input",
                                         "conv_grad_weight"),
                         [](const auto& info) { return info.param; });

// Operands in bf16; results in bf16, or in f32 as of products of mixed precision, whose biases are f32 too.
TEST(OneDnnBf16, ProductsAndConvolutionsWhereTheProcessorHasThem) {
  SKIP_WITHOUT_ONEDNN();
  std::map<DType, int> compared;
  std::string reason;
  for (const auto& [name, text] : large) {
    for (const DType result : {DType::bf16, DType::f32}) {
      SCOPED_TRACE(cat(text, " to ", dtype_name(result)));
      const OpDef& op = *op_table().find(name);
      Case p = case_of(op, text);
      const auto round = [](Tensor& values) {
        Tensor half(TensorType{DType::bf16, values.shape()});
        for (int64_t i = 0; i < values.elements(); ++i) half.set(i, values.get(i));
        values = half;
      };
      for (size_t i = 0; i < p.launch.inputs.size(); ++i) {
        Tensor& in = p.launch.inputs[i];
        if (!in.empty() && (i < 2 || result == DType::bf16)) round(in);
      }
      for (TensorType& type : p.launch.outputs) type.dtype = result;
      std::vector<Refusal> refusals;
      if (!pack_table().choose(cpu::query_of(p.launch), &refusals).row) {
        reason = refusals[0].reason;
        continue;
      }
      const Tensor got = cpu::launch_kernel(p.launch, "", pack_table())[0];
      ASSERT_EQ(got.type().dtype, result);
      // The operands were rounded to 8 bits, and in bf16 so are the results; both by their size.
      for (int64_t i = 0; i < got.elements(); ++i) {
        ASSERT_TRUE(cpu::near(got.get(i), p.want[0].get(i), 0.02, 0.5))
            << i << ": " << got.get(i) << ", not " << p.want[0].get(i);
      }
      ++compared[result];
    }
  }
  if (compared.empty()) GTEST_SKIP() << reason;
  EXPECT_EQ(compared[DType::f32], compared[DType::bf16]);
}

TEST(OneDnnRefusals, SayWhy) {
  SKIP_WITHOUT_ONEDNN();
  const auto reason = [](const char* op, const char* text, DType dtype = DType::f32) {
    Case p = case_of(*op_table().find(op), text);
    KernelQuery q = cpu::query_of(p.launch);
    q.input_types[0].dtype = dtype;
    std::vector<Refusal> refusals;
    EXPECT_EQ(pack_table().choose(q, &refusals).row, nullptr) << text;
    return refusals.empty() ? std::string() : refusals[0].reason;
  };
  EXPECT_EQ(reason("matmul", "f32[0,6], f32[6,8]"), "an empty operand");
  EXPECT_EQ(reason("matmul", "f32[4,6], f32[6,8]", DType::f64), "element type f64");
  EXPECT_EQ(reason("matmul", "f32[4,6], f32[6,8]", DType::bf16), "operands of several element types");
  EXPECT_NE(reason("conv", "f32[1,1,2,2,2,2], f32[1,1,1,1,1,1]").find("spatial dimensions"), std::string::npos);
  Case strided = case_of(*op_table().find("conv_grad_weight"),
                         "f32[4,3,32,32], f32[4,32,16,16] {strides=[2,2],pads=[3,3,3,3],shape=[32,3,7,7]}");
  KernelQuery halves = cpu::query_of(strided.launch);
  for (TensorType& type : halves.input_types) type.dtype = DType::bf16;
  for (TensorType& type : halves.output_types) type.dtype = DType::bf16;
  std::vector<Refusal> refusals;
  EXPECT_EQ(pack_table().choose(halves, &refusals).row, nullptr);
  ASSERT_FALSE(refusals.empty());
  EXPECT_NE(refusals[0].reason.find("come out wrong"), std::string::npos) << refusals[0].reason;
  // With AVX-512 oneDNN has other kernels for these.
  if (cpu::detected_cpu_level() >= cpu::CpuLevel::v4) return;
  EXPECT_NE(reason("linear", "f32[640,3], f32[3,600]").find("a large product"), std::string::npos);
  EXPECT_NE(reason("linear", "f32[64,3], f32[3,1024]").find("collide"), std::string::npos);
}

// Ranks share a kernel, and run it at once.
TEST(OneDnnKernels, ServeManyCallersAtOnce) {
  SKIP_WITHOUT_ONEDNN();
  const Case p = case_of(*op_table().find("conv"), "f32[3,16,14,15], f32[40,16,3,3], f32[40] {pads=[1,1,1,1]}");
  const KernelQuery q = cpu::query_of(p.launch);
  const ChosenKernel kernel = pack_table().choose(q);
  ASSERT_NE(kernel.row, nullptr);
  constexpr int callers = 4;
  std::array<Tensor, callers> outputs;
  std::array<bool, callers> same{};
  std::vector<std::thread> threads;
  for (int t = 0; t < callers; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::byte> memory(static_cast<size_t>(kernel.prepared.workspace_bytes) + 64);
      void* workspace = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
      const void* inputs[] = {p.launch.inputs[0].data(), p.launch.inputs[1].data(), p.launch.inputs[2].data()};
      cpu::CpuStream stream(std::make_shared<Workers>(1, ThreadPool::Wait::brief), 1);
      for (int i = 0; i < 20; ++i) {
        Tensor out(p.launch.outputs[0]);
        void* results[] = {out.data()};
        stream.launch(*kernel.row, q, kernel.prepared.state.get(), inputs, results, workspace, {});
        same[t] = i == 0 || (same[t] && identical(out, outputs[t]));
        outputs[t] = std::move(out);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < callers; ++t) {
    EXPECT_TRUE(same[t]) << t;
    EXPECT_TRUE(identical(outputs[t], outputs[0])) << t;
    expect_near(outputs[t], p.want[0], 2e-6);
  }
}

constexpr std::string_view model = R"(graph small(x: f32[8,3,12,12] batch 0) {
  k: f32[16,3,3,3] = param
  w: f32[1600,10] = param
  forward:
  c: f32[8,16,10,10] = conv(x, k)
  r: f32[8,1600] = reshape(c) {shape=[8,1600]}
  y: f32[8,10] = linear(r, w)
  output y = y
}
)";

struct Trained {
  std::string kernels;
  std::vector<double> losses;
  Tensor weight;
};

Trained train(const char* level, int threads, int64_t ranks = 1) {
  Trained out;
  PlanOptions options;
  options.model = GraphModel::parse(model);
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "sgd";
  options.train.optimizer_options = {{"lr", 0.05}};
  options.ranks = ranks;
  EXPECT_TRUE(set_config(options.strategy, "reproducible.level", level).ok());
  Host host = test_host(threads);
  host.packs = EPL_PACK_FOLDER;
  auto plan = CompiledPlan::create(host, options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  if (!plan.ok()) return out;
  out.kernels = *(*plan)->text(EntryKind::train, "kernels");
  auto session = Session::create(host, *plan, {.seed = 1});
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  Tensor target(TensorType{DType::i64, {8}});
  for (int i = 0; i < 8; ++i) target.set_int(i, i);
  const Tensor inputs[] = {cpu::random_f32({8, 3, 12, 12}, 5), target};
  for (int step = 0; step < 5; ++step) {
    StepMetrics metrics;
    EXPECT_TRUE((*session)->step(inputs, metrics).ok());
    out.losses.push_back(metrics.loss);
  }
  out.weight = *(*session)->state().get("w");
  return out;
}

TEST(OneDnnLevels, OnlyRunUsesThePackAndRepeatsItsBits) {
  SKIP_WITHOUT_ONEDNN();
  const Trained data = train("data", 2);
  EXPECT_EQ(data.kernels.find("onednn"), std::string::npos) << data.kernels;
  for (int threads : {1, 2}) {
    for (int64_t ranks : {1, 2}) {
      const Trained run = train("run", threads, ranks), again = train("run", threads, ranks);
      for (const char* row : {"conv_onednn", "conv_grad_weight_onednn", "linear_onednn", "linear_grad_weight_onednn"}) {
        EXPECT_NE(run.kernels.find(row), std::string::npos) << row << " in " << run.kernels;
      }
      EXPECT_NE(run.kernels.find("oneDNN"), std::string::npos) << run.kernels;
      EXPECT_EQ(run.losses, again.losses);
      EXPECT_TRUE(identical(run.weight, again.weight));
      for (size_t i = 0; i < data.losses.size(); ++i) EXPECT_NEAR(run.losses[i], data.losses[i], 1e-5);
    }
  }
}

}  // namespace
}  // namespace epl::onednn_test
