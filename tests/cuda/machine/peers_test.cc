// The machine with several devices: each has its memory for itself, copies go between them, and one is lost alone.
#include "tests/cuda/machine/rig.h"

namespace epl::peers_test {
namespace {

using cuda_rig::Address;
using cuda_rig::increment_ptx;
using cuda_rig::Rig;

// The second device of a rig, current in this thread as long as it lives.
class Second {
 public:
  explicit Second(Rig& rig) : rig_(rig) {
    rig_.must("cuDevicePrimaryCtxRetain", &context, 1);
    rig_.must("cuCtxPushCurrent_v2", context);
  }
  ~Second() {
    void* popped = nullptr;
    rig_.call("cuCtxPopCurrent_v2", &popped);
  }
  Second(const Second&) = delete;

  void* context = nullptr;

 private:
  Rig& rig_;
};

int copy(Rig& rig, Address to, void* to_context, Address from, void* from_context, void* stream) {
  return rig.call("cuMemcpyPeerAsync", to, to_context, from, from_context, size_t{4}, stream);
}

TEST(MachinePeers, AKernelTouchesTheMemoryOfItsDeviceAlone) {
  Rig rig("devices=h100,h100");
  const Address first = rig.upload(std::vector<int>{7});
  {
    const Second second(rig);
    const Address own = rig.upload(std::vector<int>{8});
    void* kernel = rig.function(increment_ptx, "increment");
    rig.want(rig.launch(kernel, {.block = 1}, own));
    rig.want(rig.synchronize());
    EXPECT_EQ(rig.download<int>(own, 1), std::vector<int>{9});
    rig.launch(kernel, {.block = 1}, first);
    EXPECT_EQ(rig.synchronize(), 700);
  }
  EXPECT_NE(rig.findings().find("memory of device 0, and the kernel runs on device 1"), std::string::npos)
      << rig.findings();
  EXPECT_EQ(rig.download<int>(first, 1), std::vector<int>{7}) << "the other device goes on";
}

TEST(MachinePeers, CopiesGoBetweenDevicesByTheirContexts) {
  Rig rig("devices=h100,h100,h100");
  const Address first = rig.upload(std::vector<int>{7});
  void* const stream = rig.stream();
  void* third = nullptr;
  rig.must("cuDevicePrimaryCtxRetain", &third, 2);
  const Second second(rig);
  const Address own = rig.allocate(4);
  void* const there = rig.stream();
  rig.want(copy(rig, own, second.context, first, rig.context, there));
  rig.must("cuStreamSynchronize", there);
  EXPECT_EQ(rig.download<int>(own, 1), std::vector<int>{7});
  EXPECT_EQ(rig.count("peer_copies"), 1u);
  EXPECT_EQ(rig.count("staged_copies"), 1u) << "nobody has asked for access";
  EXPECT_EQ(copy(rig, own, rig.context, first, second.context, there), 1) << "contexts that are exchanged";
  EXPECT_EQ(copy(rig, own, second.context, first, third, there), 1) << "not that device's address";
  EXPECT_EQ(copy(rig, own, second.context, first, rig.context, stream), 400) << "a stream of another context";
  EXPECT_EQ(rig.call("cuMemcpyDtoDAsync_v2", own, first, size_t{4}, there), 1) << "an ordinary copy goes nowhere else";
}

TEST(MachinePeers, AccessIsAskedForOnceAndWhereItCanBe) {
  Rig rig("devices=h100,h100,a100");
  const Second second(rig);
  int can = 0;
  rig.must("cuDeviceCanAccessPeer", &can, 1, 0);
  EXPECT_EQ(can, 1);
  rig.must("cuDeviceCanAccessPeer", &can, 1, 2);
  EXPECT_EQ(can, 0) << "of another kind";
  rig.must("cuCtxEnablePeerAccess", rig.context, 0u);
  EXPECT_EQ(rig.call("cuCtxEnablePeerAccess", rig.context, 0u), 704);
  EXPECT_EQ(rig.call("cuCtxEnablePeerAccess", second.context, 0u), 201) << "to itself";
  void* third = nullptr;
  rig.must("cuDevicePrimaryCtxRetain", &third, 2);
  EXPECT_EQ(rig.call("cuCtxEnablePeerAccess", third, 0u), 217);
  rig.set("peers=0");
  rig.must("cuDeviceCanAccessPeer", &can, 1, 0);
  EXPECT_EQ(can, 0);
}

TEST(MachinePeers, WhatReadsBeforeItsEventIsFound) {
  Rig rig("devices=h100,h100");
  const Address first = rig.upload(std::vector<int>{7});
  void* const stream = rig.stream();
  void* const event = rig.event();
  rig.must("cuMemsetD8Async", first, static_cast<unsigned char>(0), size_t{4}, stream);
  rig.must("cuEventRecord", event, stream);
  const Second second(rig);
  const Address own = rig.allocate(4);
  void* const there = rig.stream();
  rig.must("cuStreamWaitEvent", there, event, 0u);
  rig.want(copy(rig, own, second.context, first, rig.context, there));
  rig.must("cuStreamSynchronize", there);
  EXPECT_EQ(rig.download<int>(own, 1), std::vector<int>{0});
  rig.want(copy(rig, own, second.context, first, rig.context, there));
  void* popped = nullptr;
  rig.must("cuCtxPopCurrent_v2", &popped);
  rig.call("cuMemsetD8Async", first, static_cast<unsigned char>(1), size_t{4}, stream);
  rig.call("cuStreamSynchronize", stream);
  rig.must("cuCtxPushCurrent_v2", popped);
  rig.call("cuStreamSynchronize", there);
  EXPECT_NE(rig.findings().find("race"), std::string::npos) << rig.findings();
}

TEST(MachinePeers, OneIsLostAlone) {
  Rig rig("devices=h100,h100");
  const Address first = rig.upload(std::vector<int>{7});
  rig.set("device_lost=2 lost_device=1");
  EXPECT_EQ(rig.download<int>(first, 1), std::vector<int>{7});
  {
    const Second second(rig);
    Address own = 0;
    rig.must("cuMemAlloc_v2", &own, size_t{4});
    rig.call("cuMemsetD8_v2", own, static_cast<unsigned char>(0), size_t{4});
    rig.call("cuMemsetD8_v2", own, static_cast<unsigned char>(0), size_t{4});
    EXPECT_EQ(rig.synchronize(), 999);
  }
  EXPECT_EQ(rig.download<int>(first, 1), std::vector<int>{7});
  EXPECT_EQ(rig.count("used_0"), 4u);
}

}  // namespace
}  // namespace epl::peers_test
