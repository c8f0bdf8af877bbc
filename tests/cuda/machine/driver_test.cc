// The machine as the driver: handles, contexts, streams whose commands come late and in any order, errors that stay.
#include <sys/mman.h>

#include <cstring>
#include <set>

#include "tests/cuda/machine/rig.h"

namespace epl::driver_test {
namespace {

using cuda_rig::Address;
using cuda_rig::increment_ptx;
using cuda_rig::Rig;

constexpr size_t kBytes = 256;

TEST(MachineDriver, TheHostCannotTouchDeviceMemory) {
  Rig rig;
  const Address memory = rig.allocate(kBytes);
  EXPECT_DEATH({ *reinterpret_cast<volatile char*>(memory) = 1; }, "");
  EXPECT_DEATH({ (void)*reinterpret_cast<volatile char*>(memory); }, "");
}

TEST(MachineDriver, DevicesAreDescribed) {
  Rig rig("devices=a100,h200 memory=1000000");
  int count = 0, major = 0, processors = 0;
  rig.must("cuDeviceGetCount", &count);
  EXPECT_EQ(count, 2);
  char name[64];
  rig.must("cuDeviceGetName", static_cast<char*>(name), 64, 1);
  EXPECT_STREQ(name, "NVIDIA H200");
  rig.must("cuDeviceGetAttribute", &major, 75, 0);
  rig.must("cuDeviceGetAttribute", &processors, 16, 0);
  EXPECT_EQ(major, 8);
  EXPECT_EQ(processors, 108);
  EXPECT_EQ(rig.call("cuDeviceGet", &count, 2), 101);
  size_t free = 0, total = 0;
  rig.allocate(1000);
  rig.must("cuMemGetInfo_v2", &free, &total);
  EXPECT_EQ(total - free, 1000u);
  Address more = 0;
  EXPECT_EQ(rig.call("cuMemAlloc_v2", &more, size_t{1000000}), 2);
  const char* text = nullptr;
  rig.must("cuGetErrorName", 2, &text);
  EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(rig.call("cuGetErrorName", 12345, &text), 1);
}

TEST(MachineDriver, WrongHandlesAreTheDriversErrors) {
  Rig rig("devices=h100,h100");
  int something = 0;
  void* made = nullptr;
  EXPECT_EQ(rig.call("cuStreamSynchronize", static_cast<void*>(&something)), 400);
  EXPECT_EQ(rig.call("cuEventDestroy_v2", static_cast<void*>(&something)), 400);
  EXPECT_EQ(rig.call("cuModuleUnload", static_cast<void*>(&something)), 400);
  EXPECT_EQ(rig.call("cuMemFree_v2", rig.allocate(512) + 4), 1);
  void* kernel = rig.function(increment_ptx, "increment");
  EXPECT_EQ(rig.call("cuModuleGetFunction", &made, rig.load(increment_ptx), "decrement"), 500);
  void* stream = rig.stream();
  void* event = rig.event();
  const Address memory = rig.upload(std::vector<int>(32));
  EXPECT_EQ(rig.launch(kernel, {.block = 2000}, memory), 1);
  EXPECT_EQ(rig.launch(kernel, {.grid = 0}, memory), 1);
  EXPECT_EQ(rig.launch(kernel, {.shared = 50000}, memory), 1);
  EXPECT_EQ(rig.call("cuMemcpyHtoD_v2", memory, static_cast<const void*>(&something), size_t{129}), 1);

  // What is of one context is nothing in another.
  void* other = nullptr;
  rig.must("cuDevicePrimaryCtxRetain", &other, 1);
  rig.must("cuCtxPushCurrent_v2", other);
  EXPECT_EQ(rig.call("cuStreamSynchronize", stream), 400);
  EXPECT_EQ(rig.launch(kernel, {}, memory), 400);
  EXPECT_EQ(rig.call("cuEventRecord", event, static_cast<void*>(nullptr)), 400);
  rig.must("cuCtxPopCurrent_v2", &made);
  rig.must("cuCtxPopCurrent_v2", &made);
  EXPECT_EQ(rig.call("cuCtxPopCurrent_v2", &made), 201);
  Address none = 0;
  EXPECT_EQ(rig.call("cuMemAlloc_v2", &none, size_t{16}), 201);
  rig.must("cuCtxPushCurrent_v2", rig.context);
  rig.must("cuDevicePrimaryCtxRelease_v2", 0);
  EXPECT_EQ(rig.call("cuMemAlloc_v2", &none, size_t{16}), 709);
}

// A kernel and two copies on two streams, with an event between or without.
int two_streams(Rig& rig, bool waits, std::vector<int>* result) {
  void* kernel = rig.function(increment_ptx, "increment");
  void *first = rig.stream(), *second = rig.stream(), *event = rig.event();
  const Address memory = rig.upload(std::vector<int>(32, 1)), copy = rig.upload(std::vector<int>(32));
  rig.want(rig.launch(kernel, {.stream = first}, memory));
  rig.must("cuEventRecord", event, first);
  if (waits) rig.must("cuStreamWaitEvent", second, event, 0u);
  rig.must("cuMemcpyDtoDAsync_v2", copy, memory, size_t{128}, second);
  const int code = rig.synchronize();
  if (code == 0) *result = rig.download<int>(copy, 32);
  return code;
}

TEST(MachineDriver, AMissingWaitIsFound) {
  std::set<int> without;
  for (int seed = 1; seed < 9; ++seed) {
    const std::string words = "seed=" + std::to_string(seed);
    std::vector<int> result;
    {
      Rig rig(words);
      EXPECT_EQ(two_streams(rig, true, &result), 0) << rig.findings();
      EXPECT_EQ(result, std::vector<int>(32, 2));
    }
    {
      Rig rig(words);
      EXPECT_EQ(two_streams(rig, false, &result), 719);
      EXPECT_NE(rig.findings().find("nothing says which of the two comes first"), std::string::npos) << rig.findings();
    }
    Rig rig(words + " races=0");  // the order is then seen in the numbers
    EXPECT_EQ(two_streams(rig, false, &result), 0);
    without.insert(result[0]);
  }
  EXPECT_EQ(without, (std::set<int>{1, 2}));
}

TEST(MachineDriver, TheOwnStreamWaitsForBlockingOnes) {
  Rig rig;
  void* kernel = rig.function(increment_ptx, "increment");
  const Address memory = rig.upload(std::vector<int>(32));
  void *blocking = rig.stream(0), *free = rig.stream(1);
  rig.want(rig.launch(kernel, {.stream = blocking}, memory));
  rig.want(rig.launch(kernel, {}, memory));
  rig.want(rig.launch(kernel, {.stream = blocking}, memory));
  EXPECT_EQ(rig.download<int>(memory, 1)[0], 3);
  rig.want(rig.launch(kernel, {.stream = free}, memory));
  rig.want(rig.launch(kernel, {}, memory));
  EXPECT_EQ(rig.synchronize(), 719) << "the other one does not wait";
}

// Nothing is done before somebody waits for it; who asks and asks sees it done.
TEST(MachineDriver, CommandsComeLate) {
  Rig rig;
  void* kernel = rig.function(increment_ptx, "increment");
  const Address memory = rig.upload(std::vector<int>(32));
  void *stream = rig.stream(), *event = rig.event();
  const uint64_t before = rig.count("instructions");
  rig.want(rig.launch(kernel, {.stream = stream}, memory));
  rig.want(rig.launch(kernel, {.stream = stream}, memory));
  rig.must("cuEventRecord", event, stream);
  EXPECT_EQ(rig.count("instructions"), before);
  EXPECT_EQ(rig.call("cuEventQuery", event), 600);
  int turns = 0;
  while (rig.call("cuEventQuery", event) == 600) ASSERT_LT(++turns, 10);
  EXPECT_EQ(rig.count("instructions") - before, 2u * 8 * 32);
}

TEST(MachineDriver, CopiesFromPageableAndPinnedMemory) {
  Rig rig;
  void* stream = rig.stream();
  const Address memory = rig.allocate(kBytes);
  std::vector<char> source(kBytes, 1), target(kBytes, 0);
  // Pageable memory was read when the call returns; pinned memory is read when the copy comes.
  rig.must("cuMemcpyHtoDAsync_v2", memory, static_cast<const void*>(source.data()), kBytes, stream);
  source.assign(kBytes, 2);
  rig.must("cuMemcpyDtoHAsync_v2", static_cast<void*>(target.data()), memory, kBytes, stream);
  EXPECT_EQ(target, std::vector<char>(kBytes, 1)) << "a copy into pageable memory is done when the call returns";
  void* pinned = nullptr;
  rig.must("cuMemHostAlloc", &pinned, kBytes, 0u);
  std::memset(pinned, 3, kBytes);
  rig.must("cuMemcpyHtoDAsync_v2", memory, static_cast<const void*>(pinned), kBytes, stream);
  std::memset(pinned, 4, kBytes);  // too early: the mistake shows
  rig.must("cuStreamSynchronize", stream);
  EXPECT_EQ(rig.download<char>(memory, kBytes), std::vector<char>(kBytes, 4));
  rig.must("cuMemHostRegister_v2", static_cast<void*>(target.data()), kBytes, 0u);
  EXPECT_EQ(rig.call("cuMemHostRegister_v2", static_cast<void*>(target.data() + 8), size_t{8}, 0u), 712);
  rig.must("cuMemcpyDtoHAsync_v2", static_cast<void*>(target.data()), memory, kBytes, stream);
  EXPECT_EQ(target[0], 1) << "a copy into pinned memory comes late";
  rig.must("cuStreamSynchronize", stream);
  EXPECT_EQ(target[0], 4);
  rig.must("cuMemHostUnregister", static_cast<void*>(target.data()));
  EXPECT_EQ(rig.call("cuMemHostUnregister", static_cast<void*>(target.data())), 713);
  rig.must("cuMemFreeHost", pinned);
}

TEST(MachineDriver, CopiesOfRows) {
  Rig rig;
  struct Place {
    size_t x, y;
    unsigned memory;
    const void* host;
    Address device;
    void* array;
    size_t pitch;
  };
  struct {
    Place from, to;
    size_t width, height;
  } rows = {};
  std::vector<unsigned char> source(64);
  for (size_t k = 0; k < source.size(); ++k) source[k] = static_cast<unsigned char>(k);
  const Address memory = rig.allocate(64);
  rig.must("cuMemsetD8_v2", memory, static_cast<unsigned char>(99), size_t{64});
  rows.from = {2, 1, 1, source.data(), 0, nullptr, 8};
  rows.to = {1, 0, 2, nullptr, memory, nullptr, 16};
  rows.width = 3;
  rows.height = 4;
  rig.must("cuMemcpy2D_v2", static_cast<const void*>(&rows));
  const auto result = rig.download<unsigned char>(memory, 64);
  for (size_t y = 0; y < 4; ++y) {
    for (size_t x = 0; x < 16; ++x)
      EXPECT_EQ(result[16 * y + x], x >= 1 && x < 4 ? source[8 * (y + 1) + 2 + x - 1] : 99);
  }
  rows.height = 5;
  EXPECT_EQ(rig.call("cuMemcpy2D_v2", static_cast<const void*>(&rows)), 1);
}

TEST(MachineDriver, AFailureStays) {
  Rig rig("launch_fails=2");
  void* kernel = rig.function(increment_ptx, "increment");
  const Address memory = rig.upload(std::vector<int>(32));
  rig.want(rig.launch(kernel, {}, memory));
  rig.want(rig.synchronize());
  rig.launch(kernel, {}, memory);
  EXPECT_EQ(rig.synchronize(), 719);
  EXPECT_EQ(rig.synchronize(), 719);
  EXPECT_EQ(rig.launch(kernel, {}, memory), 719);
  Address more = 0;
  EXPECT_EQ(rig.call("cuMemAlloc_v2", &more, size_t{16}), 719);
  void* again = nullptr;
  rig.must("cuDevicePrimaryCtxRelease_v2", 0);
  rig.must("cuDevicePrimaryCtxRetain", &again, 0);
  rig.must("cuCtxPushCurrent_v2", again);
  rig.must("cuMemAlloc_v2", &more, size_t{16});
}

TEST(MachineDriver, FaultsAtTheNthCall) {
  {
    Rig rig("allocation_fails=3");
    rig.allocate(16);
    rig.allocate(16);
    Address third = 0;
    EXPECT_EQ(rig.call("cuMemAlloc_v2", &third, size_t{16}), 2);
    rig.allocate(16);
  }
  {
    Rig rig("copy_fails=2");
    const Address memory = rig.upload(std::vector<int>(32));
    EXPECT_EQ(rig.call("cuMemcpyDtoD_v2", memory, memory + 64, size_t{32}), 719);
  }
  Rig rig;
  const Address memory = rig.upload(std::vector<int>(32));
  rig.set("device_lost=1");
  int value = 0;
  EXPECT_EQ(rig.call("cuMemcpyDtoH_v2", static_cast<void*>(&value), memory, size_t{4}), 999);
  rig.must("cuDevicePrimaryCtxRelease_v2", 0);
  void* again = nullptr;
  EXPECT_EQ(rig.call("cuDevicePrimaryCtxRetain", &again, 0), 46);
}

TEST(MachineDriver, UnwrittenMemoryIsNotCopiedToTheHost) {
  Rig rig;
  const Address memory = rig.allocate(64);
  char value = 0;
  EXPECT_EQ(rig.call("cuMemcpyDtoH_v2", static_cast<void*>(&value), memory, size_t{1}), 719);
  EXPECT_NE(rig.findings().find("that nobody has written"), std::string::npos);
}

// A text that is cut anywhere is refused, or is whole.
TEST(MachineDriver, WhatIsNoPtxIsRefused) {
  Rig rig;
  const std::string whole = increment_ptx;
  void* module = nullptr;
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string part = whole.substr(0, length);
    const int code = rig.call("cuModuleLoadData", &module, static_cast<const void*>(part.c_str()));
    EXPECT_TRUE(code == 218 || (code == 0 && part.find(".entry") == std::string::npos)) << code << ": " << part;
  }
  const std::string newer = ".version 9.1\n.target sm_90\n.address_size 64\n";
  EXPECT_EQ(rig.call("cuModuleLoadData", &module, static_cast<const void*>(newer.c_str())), 218);
  const std::string larger = ".version 9.0\n.target sm_100\n.address_size 64\n";
  EXPECT_EQ(rig.call("cuModuleLoadData", &module, static_cast<const void*>(larger.c_str())), 218);
  EXPECT_EQ(rig.call("cuModuleLoadData", &module,
                     static_cast<const void*>("\x7f"
                                              "ELF")),
            200);
  EXPECT_NE(rig.call("epl_test_machine_set", "sead=3"), 0);
  EXPECT_NE(rig.call("epl_test_machine_set", "seed=many"), 0);
}

TEST(MachineDriver, FunctionsOfTheHostRunInTheirPlace) {
  Rig rig;
  void* stream = rig.stream();
  std::vector<int> seen;
  void* kernel = rig.function(increment_ptx, "increment");
  const Address memory = rig.upload(std::vector<int>(32));
  rig.want(rig.launch(kernel, {.stream = stream}, memory));
  rig.must("cuLaunchHostFunc", stream,
           static_cast<void (*)(void*)>([](void* list) { static_cast<std::vector<int>*>(list)->push_back(7); }),
           static_cast<void*>(&seen));
  EXPECT_TRUE(seen.empty());
  rig.must("cuStreamDestroy_v2", stream);
  EXPECT_EQ(seen, std::vector<int>{7});
}

}  // namespace
}  // namespace epl::driver_test
