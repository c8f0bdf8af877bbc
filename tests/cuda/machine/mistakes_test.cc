// Mistakes planted into kernels: each is found, and named with the lines of the source. Beside each stands the kernel
// without the mistake, which passes.
#include "tests/cuda/machine/rig.h"

namespace epl::mistakes_test {
namespace {

using cuda_rig::Address;
using cuda_rig::Rig;

constexpr const char* kSource = R"(
extern "C" __global__ void no_barrier(float* out) {
  __shared__ float s[64]; s[threadIdx.x] = 0; __syncthreads();
  s[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void barrier(float* out) {
  __shared__ float s[64];
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void all_write(int* out) { *out = threadIdx.x; }
extern "C" __global__ void all_add(int* out) { atomicAdd(out, 1); }
extern "C" __global__ void blocks(int* out) {
  if (threadIdx.x == 0) out[blockIdx.x / 2] = 1;
}
extern "C" __global__ void bytes(unsigned char* out) { out[threadIdx.x] = threadIdx.x; }
extern "C" __global__ void read_after(int* out) {
  if (threadIdx.x == 5) out[5] = 1;
  if (threadIdx.x == 40) out[40] = out[5];
}
extern "C" __global__ void past_shared(float* out, int at) {
  __shared__ float s[64];
  __shared__ float t[64];
  s[threadIdx.x] = 1; t[threadIdx.x] = 2;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x + at] + t[threadIdx.x];
}
extern "C" __global__ void misaligned(char* out) { *(int*)(out + 4 * threadIdx.x + 2) = 1; }
extern "C" __global__ void copy(const float* from, float* to) { to[threadIdx.x] = from[threadIdx.x]; }
extern "C" __global__ void unwritten_shared(float* out) {
  __shared__ float s[64];
  if (threadIdx.x != 7) s[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void some_wait(int* out) {
  if (threadIdx.x < 32) __syncthreads();
  else out[threadIdx.x] = 1;
}
extern "C" __global__ void two_barriers(int* out) {
  if (threadIdx.x < 32) { out[threadIdx.x] = 1; __syncthreads(); out[threadIdx.x] = 2; }
  else { out[threadIdx.x] = 3; __syncthreads(); out[threadIdx.x] = 4; }
}
extern "C" __global__ void half_shuffle(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffu, threadIdx.x, 20);
}
extern "C" __global__ void never_comes(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffffffu, threadIdx.x, 3);
  else { out[threadIdx.x] = 7; __syncthreads(); }
}
extern "C" __global__ void warp_race(int* out) {
  __shared__ int s[32]; s[threadIdx.x] = 0; __syncwarp();
  s[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = s[31 - threadIdx.x];
}
extern "C" __global__ void warp_sync(int* out) {
  __shared__ int s[32];
  s[threadIdx.x] = threadIdx.x;
  __syncwarp();
  out[threadIdx.x] = s[31 - threadIdx.x];
}
extern "C" __global__ void forever(volatile int* out) { while (out[0] == 0) {} }
extern "C" __global__ void no_fence(int* out) {
  out[1 + blockIdx.x] = 1;
  if (atomicAdd(out, 1) == gridDim.x - 1) out[9] = out[1] + out[2];
}
extern "C" __global__ void fence(int* out) {
  out[1 + blockIdx.x] = 1;
  __threadfence();
  if (atomicAdd(out, 1) == gridDim.x - 1) out[9] = out[1] + out[2];
}
extern "C" __global__ void ends(int* out) { if (threadIdx.x == 3) __trap(); out[threadIdx.x] = 1; }
)";

struct Planted {
  const char* kernel;
  unsigned grid, block;
  int code;                        // of the driver; 0: the kernel is right
  std::vector<std::string> words;  // that the finding has
};

void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.kernel; }

class MachineMistakes : public ::testing::TestWithParam<Planted> {};

TEST_P(MachineMistakes, AreFound) {
  const Planted& planted = GetParam();
  EPL_COMPILE(ptx, kSource, "planted.cu");
  for (const int seed : {1, 2, 3}) {
    Rig rig("limit=100000 seed=" + std::to_string(seed));
    void* kernel = rig.function(ptx, planted.kernel);
    const Address out = rig.allocate(1024);
    const bool zeros = std::string(planted.kernel) != "copy";
    if (zeros) rig.must("cuMemsetD8_v2", out, static_cast<unsigned char>(0), size_t{1024});
    const Address other = rig.allocate(1024);
    rig.launch(kernel, {.grid = planted.grid, .block = planted.block}, out,
               std::string(planted.kernel) == "past_shared" ? Address{1} : other);
    EXPECT_EQ(rig.synchronize(), planted.code) << rig.findings();
    const std::string found = rig.findings();
    if (planted.code == 0) {
      EXPECT_EQ(found, "");
    }
    for (const std::string& word : planted.words)
      EXPECT_NE(found.find(word), std::string::npos) << word << "\n" << found;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, MachineMistakes,
    ::testing::Values(
        Planted{"no_barrier", 1, 64, 719, {"race", "shared memory", "planted.cu:4", "planted.cu:5"}},
        Planted{"barrier", 1, 64, 0, {}},  //
        Planted{"all_write", 1, 2, 719, {"race: writes device memory", "planted.cu:13"}},
        Planted{"all_write", 1, 1, 0, {}},  //
        Planted{"all_add", 4, 64, 0, {}},   //
        Planted{"blocks", 4, 32, 719, {"race", "of block ", "planted.cu:16"}},
        Planted{"bytes", 1, 256, 0, {}},  // neighbours in one word are no race
        Planted{"read_after", 1, 64, 719, {"race", "planted.cu:20", "planted.cu:21"}},
        Planted{"past_shared", 1, 64, 700, {"of no variable", "planted.cu:28"}},
        Planted{"past_shared", 1, 63, 719, {"that nobody has written", "planted.cu:28"}},
        Planted{"misaligned", 1, 32, 716, {"not aligned", "planted.cu:30"}},
        Planted{"copy", 1, 32, 719, {"that nobody has written", "planted.cu:31"}},
        Planted{"unwritten_shared", 1, 64, 719, {"that nobody has written", "planted.cu:36", "thread (7,0,0)"}},
        Planted{"some_wait", 1, 64, 719, {"never reached", "planted.cu:39"}},
        Planted{"two_barriers", 1, 64, 719, {"at another", "planted.cu:43", "planted.cu:44"}},
        Planted{"half_shuffle", 1, 32, 719, {"lane 20", "planted.cu:47"}},
        Planted{"never_comes", 1, 32, 719, {"never come", "planted.cu:50", "planted.cu:51"}},
        Planted{"warp_race", 1, 32, 719, {"race", "planted.cu:55", "planted.cu:56"}},
        Planted{"warp_sync", 1, 32, 0, {}},  //
        Planted{"no_fence", 2, 1, 719, {"race", "of block ", "planted.cu:66", "planted.cu:67"}},
        Planted{"fence", 2, 1, 0, {}},  //
        Planted{"forever", 1, 32, 719, {"does not end"}},
        Planted{"ends", 1, 32, 715, {"thread (3,0,0)", "planted.cu:74"}}),
    [](const auto& info) { return std::string(info.param.kernel) + "_" + std::to_string(info.param.block); });

TEST(MachineMistake, MemoryThatWasFreed) {
  EPL_COMPILE(ptx, kSource, "planted.cu");
  Rig rig;
  void* kernel = rig.function(ptx, "copy");
  const Address from = rig.upload(std::vector<float>(32)), to = rig.allocate(128);
  rig.must("cuMemFree_v2", from);
  rig.launch(kernel, {}, from, to);
  EXPECT_EQ(rig.synchronize(), 700);
  EXPECT_NE(rig.findings().find("that was freed"), std::string::npos) << rig.findings();
}

TEST(MachineMistake, AnotherNumberOfArguments) {
  EPL_COMPILE(ptx, kSource, "planted.cu");
  Rig rig;
  void* kernel = rig.function(ptx, "copy");
  const Address from = rig.upload(std::vector<float>(32));
  EXPECT_EQ(rig.launch(kernel, {}, from), 1);
  EXPECT_NE(rig.last_error().find("has 2 parameters and is given 1"), std::string::npos) << rig.last_error();
}

}  // namespace
}  // namespace epl::mistakes_test
