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

void expect_found(const std::string& ptx, const Planted& planted) {
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

const Planted all_planted[] = {
    {"no_barrier", 1, 64, 719, {"race", "shared memory", "planted.cu:4", "planted.cu:5"}},
    {"barrier", 1, 64, 0, {}},  //
    {"all_write", 1, 2, 719, {"race: writes device memory", "planted.cu:13"}},
    {"all_write", 1, 1, 0, {}},  //
    {"all_add", 4, 64, 0, {}},   //
    {"blocks", 4, 32, 719, {"race", "of block ", "planted.cu:16"}},
    {"bytes", 1, 256, 0, {}},  // neighbours in one word are no race
    {"read_after", 1, 64, 719, {"race", "planted.cu:20", "planted.cu:21"}},
    {"past_shared", 1, 64, 700, {"of no variable", "planted.cu:28"}},
    {"past_shared", 1, 63, 719, {"that nobody has written", "planted.cu:28"}},
    {"misaligned", 1, 32, 716, {"not aligned", "planted.cu:30"}},
    {"copy", 1, 32, 719, {"that nobody has written", "planted.cu:31"}},
    {"unwritten_shared", 1, 64, 719, {"that nobody has written", "planted.cu:36", "thread (7,0,0)"}},
    {"some_wait", 1, 64, 719, {"never reached", "planted.cu:39"}},
    {"two_barriers", 1, 64, 719, {"at another", "planted.cu:43", "planted.cu:44"}},
    {"half_shuffle", 1, 32, 719, {"lane 20", "planted.cu:47"}},
    {"never_comes", 1, 32, 719, {"never come", "planted.cu:50", "planted.cu:51"}},
    {"warp_race", 1, 32, 719, {"race", "planted.cu:55", "planted.cu:56"}},
    {"warp_sync", 1, 32, 0, {}},  //
    {"no_fence", 2, 1, 719, {"race", "of block ", "planted.cu:66", "planted.cu:67"}},
    {"fence", 2, 1, 0, {}},  //
    {"forever", 1, 32, 719, {"does not end"}},
    {"ends", 1, 32, 715, {"thread (3,0,0)", "planted.cu:74"}}};

TEST(MachineMistakes, AreFound) {
  EPL_COMPILE(ptx, kSource, "planted.cu");
  for (const Planted& planted : all_planted) {
    SCOPED_TRACE(planted.kernel);
    expect_found(ptx, planted);
  }
}

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
