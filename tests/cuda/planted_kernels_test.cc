// Mistakes planted into the pack's own kernels, a row each: some words of a kernel's text are replaced by others, and
// the machine for tests or the CPU's bits must find it. Beside each the kernel as it is passes. Where the text of a
// kernel changes, the row that no longer fits it says so.
#include <map>

#include "backends/cuda/compiler.h"
#include "backends/cuda/kernel_cache.h"
#include "backends/cuda/kernels/rows.h"
#include "backends/cuda/query.h"
#include "core/backend/pack_query.h"
#include "tests/cuda/machine/rig.h"
#include "tests/cuda/on_device.h"

namespace epl::cuda {
namespace {

struct Mistake {
  const char* what;
  const char *op, *sample;
  const char *right, *wrong;  // of the text
  const char* found;          // words of the machine; "bits": others than the CPU's
  int64_t units = 1;
};

constexpr const char* past = "in no allocation";
constexpr const char* unwritten = "that nobody has written";
constexpr const char* norm_gradient = "f32[20,20], f32[20,20], f32[20,1], f32[20,1](0.5..2), f32[20]";
constexpr const char* attention = "f32[1,1,20,8], f32[1,1,20,8], f32[1,1,20,8] {scale=0.3}";
constexpr const char* ignoring = "f32[4,10], i64[4](-1..10) {ignore_index=-1}";

constexpr Mistake mistakes[] = {
    {"a barrier is missing in front of a tile that is read", "matmul", "f32[20,40], f32[40,20]",
     "__syncthreads();\n        if (done", "if (done", unwritten},
    {"one buffer stands for two", "matmul", "f32[20,40], f32[40,20]", "at ^= 1;", "", "race"},
    {"one row too many", "matmul", "f32[20,40], f32[40,20]", "row < P::m", "row <= P::m", past},
    {"a wrong leading dimension of the result", "matmul", "f32[20,40], f32[40,20]", "row * 20LL + column",
     "row * 24LL + column", past},
    {"one step too many of what is summed over", "matmul", "f32[20,20], f32[20,20]", "step(i) < steps",
     "step(i) <= steps", past},
    {"products are rounded before they are added", "matmul", "f32[20,40], f32[40,20]",
     "::fmaf(a[i], b[j], chain[i][j])", "a[i] * b[j] + chain[i][j]", "bits"},
    {"16 bits of another type", "matmul", "bf16[20,40], bf16[40,20] {wide=true}", "epl::bfloat_to_float(data[i])",
     "widened_half(data[i])", "bits"},
    {"a wrong epilogue", "linear", "f32[20,40], f32[40,20], f32[20]", "float sum) const { return sum + ",
     "float sum) const { return sum - ", "bits"},
    {"a unit is left out of the sum", "linear_grad_weight", "f32[16,20], f32[16,20]", "*sum = tree[level] + *sum",
     "*sum = tree[level]", "bits", 4},
    {"half of the lanes are not joined", "softmax", "f32[3,40] {axis=1}", "for (int half = 8; half > 0; half /= 2) own",
     "for (int half = 4; half > 0; half /= 2) own", "bits"},
    {"a shuffle names lanes of another team", "softmax", "f32[3,40] {axis=1}", "0xffffu << (threadIdx.x & 16)",
     "0xffffu", "lane"},
    {"a row behind the last one", "softmax", "f32[3,40] {axis=1}", "if (t >= 48LL)", "if (t >= 64LL)", past},
    {"no barrier behind the first step of a tree", "count_valid", "i64[9](-1..10) {ignore_index=-1}",
     "counts[threadIdx.x] = own;\n  __syncthreads();", "counts[threadIdx.x] = own;", unwritten},
    {"no barrier between the steps of a tree", "count_valid", "i64[9](-1..10) {ignore_index=-1}",
     "__syncthreads();\n  }", "}", "race"},
    {"all threads of a row write its number", "cross_entropy", ignoring, "if (lane > 0) return;", "", "race"},
    {"the number of the next row", "cross_entropy_grad",
     "f32[4,10], i64[4](-1..10), f32[](0.5..1), f32[4](7..9) {ignore_index=-1}", "lses[row]", "lses[row + 1]", past},
    {"a lane behind the last row", "layer_norm_grad", norm_gradient, "if (i + lane >= last)", "if (i + lane > last)",
     past},
    {"units are joined by the stride of columns", "layer_norm_grad", norm_gradient,
     "join_strided<Sum>(own, units, segments * width)", "join_strided<Sum>(own, units, segments)", "race", 2},
    {"a segment begins at that of its neighbour", "sum", "f32[2,1100] {axes=[1]}",
     "first = part / segments * run + start", "first = part / segments * run", "bits"},
    {"a sum whose parts nobody joins", "sum", "f32[2,1100] {axes=[1]}", "join_strided<Sum>(own, units", "(void)(units",
     "bits", 2},
    {"the counter of the next element", "dropout", "f32[40] {ratio=0.3}", "random_bits(key, element)",
     "random_bits(key, element + 1)", "bits"},
    {"behind the end of the step's numbers", "dropout", "f32[40] {ratio=0.3}", "random_key(step[0], step[1], hash)",
     "random_key(step[0], step[6], hash)", past},
    {"an index that nobody checks", "gather", "f32[7,4], i64[5](8..12) {axis=0}",
     "return index >= 0 && index < 7LL ? index : -1;", "return index;", past},
    {"every thread begins a list", "gather_grad", "f32[12,3], i64[12](0..3) {size=3}",
     "if (before < 0) first[bucket] = t;", "first[bucket] = t;", "race"},
    {"a negative index that names none", "scatter_elements", "f32[4,4], i64[3,4](9..12), f32[3,4] {reduction=\"none\"}",
     "if (element < 0) continue;", "", past},
    {"no barrier in front of a tile of values", "attention", attention,
     "__syncthreads();\n    load_tile<P::values, attention_keys>", "load_tile<P::values, attention_keys>", "race"},
    {"four numbers from an odd place", "attention", attention,
     "left[r] = *reinterpret_cast<const float4*>(a + r * a_step + i)",
     "left[r] = *reinterpret_cast<const float4*>(a + r * a_step + i + 1)", "not aligned"},
    {"weights of another row", "attention", attention, "weights[(y_of + r) * weights_stride + at] = weight;",
     "weights[y_of * weights_stride + at] = weight;", unwritten},
    {"behind the end of a row", "top_k", "f32[3,5] {k=2}", "for (long long i = 0; i < n; ++i)",
     "for (long long i = 0; i <= n; ++i)", past},
    {"the last element is not written", "cum_sum", "f32[3,5] {axis=1}", "i < n; ++i", "i < n - 1; ++i", unwritten},
};

// What a kernel gives on the machine, and what that found.
struct Carried {
  std::vector<Tensor> results;
  std::string found;
};

class OnTheMachine {
 public:
  Carried carry_out(const Kernel& kernel, const cpu::Launch& launch) {
    Carried out;
    for (const Tensor& in : launch.inputs) {
      const auto* bytes = static_cast<const char*>(in.data());
      inputs_.push_back(in.empty() ? 0 : rig_.upload(std::vector<char>(bytes, bytes + in.bytes())));
    }
    for (const TensorType& type : launch.outputs)
      outputs_.push_back(rig_.allocate(std::max<size_t>(static_cast<size_t>(type.bytes()), 1)));
    if (kernel.workspace_bytes > 0) workspace_ = rig_.allocate(static_cast<size_t>(kernel.workspace_bytes));
    const StepContext& s = launch.context;
    step_ = rig_.upload(std::vector<StepBlock>{{s.seed, s.step, s.first_unit, s.units, s.runs, s.run_stride}});
    for (const Launch& one : kernel.launches) give(one);
    const int code = rig_.synchronize();
    if (code == 0) read(launch, out);
    out.found += rig_.findings();
    return out;
  }

 private:
  void give(const Launch& launch) {
    if (launch.grid[0] == 0 || launch.grid[1] == 0 || launch.grid[2] == 0) return;
    const auto ptx = compile(EPL_NVRTC_FOLDER, cache_.get(), 90, launch.source);
    if (!ptx.ok()) throw std::runtime_error(ptx.status().message());
    void* const function = rig_.function(**ptx, launch.entry.c_str());
    std::vector<uint64_t> values;
    for (const Argument& argument : launch.arguments) values.push_back(value_of(argument));
    std::vector<void*> places;
    for (uint64_t& value : values) places.push_back(&value);
    places.push_back(nullptr);
    rig_.call("cuLaunchKernel", function, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
              launch.block[1], launch.block[2], launch.shared_bytes, static_cast<void*>(nullptr), places.data(),
              static_cast<void**>(nullptr));
  }
  uint64_t value_of(const Argument& argument) const {
    const auto at = static_cast<size_t>(argument.value);
    switch (argument.kind) {
      case Argument::Kind::input:
        return inputs_[at];
      case Argument::Kind::output:
        return outputs_[at];
      case Argument::Kind::workspace:
        return workspace_ + at;
      case Argument::Kind::step:
        return step_;
      case Argument::Kind::number:
        return at;
      default:
        return 0;
    }
  }
  void read(const cpu::Launch& launch, Carried& out) {
    try {
      for (size_t i = 0; i < outputs_.size(); ++i) {
        Tensor& result = out.results.emplace_back(launch.outputs[i]);
        const std::vector<char> bytes = rig_.download<char>(outputs_[i], static_cast<size_t>(result.bytes()));
        std::memcpy(result.data(), bytes.data(), bytes.size());
      }
    } catch (const std::exception& wrong) {
      out.found += wrong.what();
    }
  }

  cuda_rig::Rig rig_{"limit=20000000 findings=/dev/null"};
  const std::shared_ptr<KernelCache> cache_ = KernelCache::of(EPL_TEST_KERNELS);
  std::vector<uint64_t> inputs_, outputs_;
  uint64_t workspace_ = 0, step_ = 0;
};

// A kernel as the pack makes it for a sample of an op.
struct Made {
  const OpDef* op = nullptr;
  Sample sample;
  cpu::Launch launch;
  Kernel kernel;
  std::vector<Tensor> want;
};

Made made_for(const Mistake& m) {
  Made made{.op = op_table().find(m.op)};
  auto sample = parse_sample(*made.op, m.sample);
  EXPECT_TRUE(sample.ok()) << m.op << ": " << sample.status().to_string();
  made.sample = *sample;
  const auto types = infer_types(*made.op, made.sample.attributes, made.sample.types());
  EXPECT_TRUE(types.ok()) << m.op << ": " << types.status().to_string();
  if (!types.ok()) return made;
  made.launch = lowered(*made.op, made.sample, m.units);
  made.want = on_cpu(*made.op, made.sample, made.launch);
  Query query = query_of(*PackQuery(cpu::query_of(made.launch), nullptr).get()).value();
  query.capability = 90;
  query.processors = 132;
  std::string refused;
  for (const Row& row : all_rows()) {
    if (made.launch.op != row.op) continue;
    auto kernel = row.make(query);
    if (!kernel.ok()) {
      refused += kernel.status().message();
      continue;
    }
    made.kernel = *std::move(kernel);
    return made;
  }
  ADD_FAILURE() << m.op << " has no kernel: " << refused;
  return made;
}

std::string difference(const Carried& got, const std::vector<Tensor>& want) {
  if (!got.found.empty()) return got.found;
  for (size_t o = 0; o < want.size(); ++o)
    for (int64_t i = 0; i < want[o].elements(); ++i)
      if (!same_element(want[o], got.results[o], i)) return "bits";
  return "";
}

int replaced(Kernel& kernel, const std::string& right, const std::string& wrong) {
  int count = 0;
  for (Launch& launch : kernel.launches) {
    const size_t at = launch.source.find(right);
    if (at == std::string::npos) continue;
    launch.source.replace(at, right.size(), wrong);
    ++count;
  }
  return count;
}

TEST(PlantedInKernels, AreFound) {
  std::string why;
  if (cuda_rig::compile("extern \"C\" __global__ void nothing() {}", "nothing.cu", &why).empty()) GTEST_SKIP() << why;
  std::map<std::string, bool> passed;
  for (const Mistake& m : mistakes) {
    SCOPED_TRACE(cat(m.what, ": ", m.op, " ", m.sample));
    Made made = made_for(m);
    if (made.kernel.launches.empty()) continue;
    if (bool& is_right = passed[cat(m.op, m.sample, m.units)]; !is_right) {
      EXPECT_EQ(difference(OnTheMachine().carry_out(made.kernel, made.launch), made.want), "") << "as it is";
      is_right = true;
    }
    EXPECT_GT(replaced(made.kernel, m.right, m.wrong), 0) << "no text has these words";
    const std::string found = difference(OnTheMachine().carry_out(made.kernel, made.launch), made.want);
    EXPECT_NE(found.find(m.found), std::string::npos) << "found: " << found;
  }
}

}  // namespace
}  // namespace epl::cuda
