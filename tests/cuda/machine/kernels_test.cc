// Kernels of CUDA C++ with what generated ones use: functions, local arrays, tables of branches, lanes that part,
// shuffles, atomics, several types. What they give is what the same text gives on the host.
#include <cmath>
#include <numeric>

#include "tests/cuda/machine/rig.h"

namespace epl::kernels_test {
namespace {

using cuda_rig::Address;
using cuda_rig::Rig;

constexpr const char* kSource = R"(
typedef unsigned long long u64;
__constant__ float table[4] = {1.5f, 2.5f, 3.5f, 4.5f};
__device__ int counter;
struct Args { const float* in; float* out; long long n; int pick[4]; };
__device__ __noinline__ float horner(const float* c, int n, float x) {
  float y = 0;
  for (int k = 0; k < n; ++k) y = fmaf(y, x, c[k]);
  return y;
}
extern "C" __global__ void calls(Args args) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= args.n) return;
  float c[6];
  for (int k = 0; k < 6; ++k) c[k] = args.in[(i + args.pick[k & 3]) % args.n] + table[k & 3];
  args.out[i] = horner(c, 3 + (int)(i % 4), args.in[i]);
}
extern "C" __global__ void sum(const float* in, float* out, long long n) {
  __shared__ float part[32];
  float v = 0;
  for (long long i = threadIdx.x; i < n; i += blockDim.x) v += in[i];
  for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(~0u, v, o);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x < 32) {
    v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(~0u, v, o);
    if (threadIdx.x == 0) *out = v;
  }
}
extern "C" __global__ void parts(const int* in, int* out, int n) {
  int i = threadIdx.x, x = in[i], steps = 0;
  while (x != 1) { x = (x & 1) ? 3 * x + 1 : x / 2; ++steps; }
  switch (in[i] % 9) {
    case 0: steps += 100; break;
    case 1: steps -= 7; break;
    case 2: steps *= 3; break;
    case 3: steps ^= 255; break;
    case 4: steps = -steps; break;
    case 5: steps += in[i]; break;
    case 6: steps |= 64; break;
    default: steps += n;
  }
  if (__any_sync(~0u, steps > 200)) steps += __popc(__ballot_sync(~0u, steps & 1));
  out[i] = steps;
  atomicAdd(&counter, 1);
  atomicMax(out + 64, steps);
}
extern "C" __global__ void count(int* out) {
  out[1 + threadIdx.x] = __syncthreads_count(threadIdx.x % 3 == 0) * 10 + (__syncthreads_or(threadIdx.x == 9) != 0);
  if (threadIdx.x == 0) out[0] = counter;
}
extern "C" __global__ void types(const double* a, const unsigned char* b, const long long* c, double* d, u64* e,
                                 bool* f) {
  int i = threadIdx.x;
  d[i] = sqrt(a[i]) / (b[i] + 1) + (double)c[i] * (float)a[i];
  e[i] = (u64)c[i] * 0xD2511F53ull ^ (u64)(a[i] * 1e6) ^ __umul64hi(c[i], 0x9E3779B97F4A7C15ull);
  f[i] = a[i] > 2 && !(c[i] % 3 == 1);
}
extern "C" __global__ void vectors(const float4* in, float4* out, const uint2* pairs, uint2* turned) {
  int i = threadIdx.x;
  float4 v = in[i];
  out[i] = make_float4(v.w, v.z, v.y, v.x + 1);
  turned[i] = make_uint2(pairs[i].y, pairs[i].x);
}
extern "C" __global__ void dynamic(int* out, int n) {
  extern __shared__ int room[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) room[i] = i * i;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = room[n - 1 - i];
}
extern "C" __global__ void mod(const float* a, const float* b, float* out) {
  out[threadIdx.x] = fmodf(a[threadIdx.x], b[threadIdx.x]);
}
extern "C" __global__ void last_block(const float* in, float* part, float* out, unsigned* done) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    float v = 0;
    for (int k = 0; k < 64; ++k) v += in[blockIdx.x * 64 + k];
    part[blockIdx.x] = v;
    __threadfence();
    last = atomicAdd(done, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    __threadfence();
    float v = 0;
    for (unsigned k = 0; k < gridDim.x; ++k) v += part[k];
    *out = v;
  }
}
)";

std::vector<float> floats(size_t count) {
  std::vector<float> made(count);
  for (size_t k = 0; k < count; ++k) made[k] = static_cast<float>((k * 7919 % 1000)) / 997 - 0.4f;
  return made;
}

TEST(MachineKernels, FunctionsWithLocalArrays) {
  EPL_COMPILE(ptx, kSource, "kernels.cu");
  Rig rig;
  struct Args {
    Address in, out;
    long long n;
    int pick[4];
  };
  const std::vector<float> in = floats(100);
  const Address out = rig.allocate(400);
  const Args args = {rig.upload(in), out, 100, {3, 1, 4, 1}};
  rig.want(rig.launch(rig.function(ptx, "calls"), {.grid = 4}, args));
  const std::vector<float> result = rig.download<float>(out, 100);
  const float table[] = {1.5f, 2.5f, 3.5f, 4.5f};
  for (long long i = 0; i < 100; ++i) {
    float y = 0;
    for (int k = 0; k < 3 + i % 4; ++k)
      y = std::fma(y, in[static_cast<size_t>(i)], in[static_cast<size_t>((i + args.pick[k & 3]) % 100)] + table[k & 3]);
    EXPECT_EQ(result[static_cast<size_t>(i)], y) << i;
  }
}

TEST(MachineKernels, SumsByShuffles) {
  EPL_COMPILE(ptx, kSource, "kernels.cu");
  Rig rig;
  const std::vector<float> in = floats(1000);
  const Address out = rig.allocate(4), from = rig.upload(in);
  rig.want(rig.launch(rig.function(ptx, "sum"), {.block = 256}, from, out, 1000ll));
  const float result = rig.download<float>(out, 1)[0];
  EXPECT_NEAR(result, std::accumulate(in.begin(), in.end(), 0.0), 1e-3);
  for (const int seed : {5, 6, 7}) {  // the order of warps changes nothing
    rig.set("seed=" + std::to_string(seed));
    rig.want(rig.launch(rig.function(ptx, "sum"), {.block = 256}, from, out, 1000ll));
    EXPECT_EQ(rig.download<float>(out, 1)[0], result);
  }
}

TEST(MachineKernels, LanesThatDivergeReconverge) {
  EPL_COMPILE(ptx, kSource, "kernels.cu");
  Rig rig;
  std::vector<int> in(64), wanted(64);
  std::iota(in.begin(), in.end(), 1);
  int most = 0;
  for (size_t warp = 0; warp < 2; ++warp) {
    bool any = false;
    int odd = 0;
    for (size_t k = 32 * warp; k < 32 * (warp + 1); ++k) {
      int x = in[k], steps = 0;
      for (; x != 1; ++steps) x = (x & 1) != 0 ? 3 * x + 1 : x / 2;
      const int cases[] = {steps + 100,   steps - 7,  steps * 3, steps ^ 255, -steps,
                           steps + in[k], steps | 64, steps + 5, steps + 5};
      wanted[k] = cases[in[k] % 9];
      any = any || wanted[k] > 200;
      odd += wanted[k] & 1;
    }
    for (size_t k = 32 * warp; k < 32 * (warp + 1); ++k) wanted[k] += any ? odd : 0;
  }
  for (const int value : wanted) most = std::max(most, value);
  const Address from = rig.upload(in), out = rig.upload(std::vector<int>(65));
  void* module = rig.load(ptx);
  void *parts = nullptr, *count = nullptr;
  rig.must("cuModuleGetFunction", &parts, module, "parts");
  rig.must("cuModuleGetFunction", &count, module, "count");
  rig.want(rig.launch(parts, {.block = 64}, from, out, 5));
  std::vector<int> result = rig.download<int>(out, 65);
  EXPECT_EQ(result.back(), most);
  result.pop_back();
  EXPECT_EQ(result, wanted);
  // The variable of the module, and barriers that count.
  rig.want(rig.launch(count, {.block = 64}, out));
  result = rig.download<int>(out, 65);
  EXPECT_EQ(result[0], 64);
  EXPECT_EQ(result[5], 22 * 10 + 1);
  Address variable = 0;
  size_t bytes = 0;
  rig.must("cuModuleGetGlobal_v2", &variable, &bytes, module, "counter");
  EXPECT_EQ(bytes, 4u);
  EXPECT_EQ(rig.download<int>(variable, 1)[0], 64);
}

TEST(MachineKernels, ManyTypes) {
  EPL_COMPILE(ptx, kSource, "kernels.cu");
  Rig rig;
  std::vector<double> a(32);
  std::vector<unsigned char> b(32);
  std::vector<long long> c(32);
  for (size_t i = 0; i < 32; ++i) {
    a[i] = 0.37 * static_cast<double>(i);
    b[i] = static_cast<unsigned char>(i * 9);
    c[i] = static_cast<long long>(i) * 123456789 - 999999;
  }
  const Address d = rig.allocate(256), e = rig.allocate(256), f = rig.allocate(32);
  const Address in_a = rig.upload(a), in_b = rig.upload(b), in_c = rig.upload(c);
  rig.want(rig.launch(rig.function(ptx, "types"), {}, in_a, in_b, in_c, d, e, f));
  const auto out_d = rig.download<double>(d, 32);
  const auto out_e = rig.download<unsigned long long>(e, 32);
  const auto out_f = rig.download<unsigned char>(f, 32);
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out_d[i], std::sqrt(a[i]) / (b[i] + 1) + static_cast<double>(c[i]) * static_cast<float>(a[i]));
    const auto x = static_cast<unsigned long long>(c[i]);
    EXPECT_EQ(out_e[i],
              (x * 0xD2511F53ull) ^ static_cast<unsigned long long>(a[i] * 1e6) ^
                  static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * 0x9E3779B97F4A7C15ull >> 64));
    EXPECT_EQ(out_f[i], a[i] > 2 && c[i] % 3 != 1);
  }
}

TEST(MachineKernels, VectorsAndDynamicShared) {
  EPL_COMPILE(ptx, kSource, "kernels.cu");
  Rig rig;
  const std::vector<float> in = floats(128);
  std::vector<unsigned> pairs(64);
  std::iota(pairs.begin(), pairs.end(), 0u);
  const Address from = rig.upload(in), out = rig.allocate(512), two = rig.upload(pairs), turned = rig.allocate(256);
  rig.want(rig.launch(rig.function(ptx, "vectors"), {}, from, out, two, turned));
  const auto result = rig.download<float>(out, 128);
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(result[4 * i], in[4 * i + 3]);
    EXPECT_EQ(result[4 * i + 3], in[4 * i] + 1);
  }
  EXPECT_EQ(rig.download<unsigned>(turned, 64)[5], 4u);
  void* dynamic = rig.function(ptx, "dynamic");
  const Address squares = rig.allocate(200 * 4);
  rig.want(rig.launch(dynamic, {.block = 64, .shared = 200 * 4}, squares, 200));
  EXPECT_EQ(rig.download<int>(squares, 200)[3], 196 * 196);
  rig.want(rig.launch(dynamic, {.block = 64, .shared = 199 * 4}, squares, 200));
  EXPECT_EQ(rig.synchronize(), 700) << "one less than it needs";
  EXPECT_NE(rig.findings().find("of shared memory"), std::string::npos) << rig.findings();
}

// It begins with an estimate of which nobody promises the bits, and is exact: whatever the estimate is.
TEST(MachineKernels, AnExactFunctionFromAnEstimate) {
  EPL_COMPILE(ptx, kSource, "kernels.cu");
  for (const int seed : {1, 2, 3, 4}) {
    Rig rig("seed=" + std::to_string(seed));
    std::vector<float> a(256), b(256);
    for (size_t k = 0; k < a.size(); ++k) {
      a[k] = std::ldexp(static_cast<float>(k * 37 % 251) - 120.25f, static_cast<int>(k % 40));
      b[k] = 0.37f + static_cast<float>(k % 7);
    }
    const Address from = rig.upload(a), by = rig.upload(b), out = rig.allocate(1024);
    rig.want(rig.launch(rig.function(ptx, "mod"), {.block = 256}, from, by, out));
    const auto result = rig.download<float>(out, 256);
    for (size_t k = 0; k < a.size(); ++k) EXPECT_EQ(result[k], std::fmod(a[k], b[k])) << a[k] << " " << b[k];
  }
}

// The block that is last adds what the others left, which a fence and an atomic put in order.
TEST(MachineKernels, TheLastBlockSeesTheOthers) {
  EPL_COMPILE(ptx, kSource, "kernels.cu");
  Rig rig;
  const std::vector<float> in(64 * 8, 0.5f);
  const Address from = rig.upload(in), part = rig.allocate(32), out = rig.allocate(4);
  const Address done = rig.upload(std::vector<unsigned>(1));
  rig.want(rig.launch(rig.function(ptx, "last_block"), {.grid = 8}, from, part, out, done));
  EXPECT_EQ(rig.download<float>(out, 1)[0], 256.f);
}

}  // namespace
}  // namespace epl::kernels_test
