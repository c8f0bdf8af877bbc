// What the pack says of GPUs, with the machine for tests as the driver and its stand-in of NVML beside it.
#include "backends/cuda/listing.h"

#include "backends/cuda/target.h"
#include "backends/cuda/verbs.h"
#include "core/backend/pack_query.h"
#include "tests/cuda/machine/rig.h"

namespace epl::cuda {
namespace {

using cuda_rig::Rig;

Result<epl_pack_device_facts> facts_of(int ordinal) {
  epl_pack_device_facts facts = {};
  facts.struct_size = sizeof facts;
  EPL_TRY(describe_gpu(EPL_TEST_LIBRARIES, ordinal, facts));
  return facts;
}

TEST(Listing, AGpuSaysItsMemoryAndItsLinks) {
  Rig rig("devices=h100,h100,a100 memory=1000000");
  rig.allocate(1000);
  const auto first = facts_of(0);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ(first->free_bytes, 999'000u);
  const auto facts = facts_of(1);
  ASSERT_TRUE(facts.ok()) << facts.status().to_string();
  EXPECT_STREQ(facts->name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(facts->capability, 90);
  EXPECT_EQ(facts->processors, 132);
  EXPECT_EQ(facts->memory_bytes, 1'000'000u);
  EXPECT_EQ(facts->free_bytes, 1'000'000u);
  EXPECT_EQ(facts->links, 18);
  EXPECT_EQ(facts->driver, 13000);
  EXPECT_STREQ(facts->driver_name, "580.65.06");
  EXPECT_STREQ(facts->address, "0000:02:00.0");
  const auto alone = facts_of(2);
  ASSERT_TRUE(alone.ok()) << alone.status().to_string();
  EXPECT_EQ(alone->links, 0) << "no other GPU of its kind";
  const auto none = facts_of(3);
  EXPECT_EQ(none.status().code(), Code::unsupported);
  EXPECT_NE(none.status().message().find("there is no GPU 3; this process sees 3"), std::string::npos)
      << none.status().message();
}

TEST(Listing, PairsSayHowTheyAreJoined) {
  Rig rig("devices=h100,h100,a100");
  const auto near = joined_by(EPL_TEST_LIBRARIES, 0, 1), far = joined_by(EPL_TEST_LIBRARIES, 1, 2);
  ASSERT_TRUE(near.ok() && far.ok()) << near.status().to_string() << far.status().to_string();
  EXPECT_EQ(*near, "NVLink");
  EXPECT_EQ(*far, "a PCIe host bridge");
  EXPECT_FALSE(joined_by(EPL_TEST_LIBRARIES, 0, 3).ok());
}

TEST(Listing, AStructOfAnOlderInterfaceIsRefused) {
  Rig rig;
  epl_pack_device_facts facts = {};
  facts.struct_size = sizeof facts - 8;
  EXPECT_EQ(describe_gpu(EPL_TEST_LIBRARIES, 0, facts).code(), Code::unsupported);
}

// A device to plan with gives kernels their numbers, and nothing else.
TEST(Listing, ADeviceToPlanWithHasNoOtherVerb) {
  epl_pack_device_facts facts = {};
  facts.struct_size = sizeof facts;
  facts.capability = 89;
  facts.processors = 58;
  const PackReason reason;
  void *device = nullptr, *made = nullptr;
  ASSERT_EQ(device_verbs.plan(&facts, &device, &reason.to), 0) << reason.text;
  const auto& target = *static_cast<const Target*>(device);
  EXPECT_EQ(target.gpu, nullptr);
  EXPECT_EQ(target.capability, 89);
  EXPECT_EQ(target.processors, 58);
  EXPECT_EQ(device_verbs.allocate(device, 64, &made, &reason.to), EPL_PACK_MISSING);
  EXPECT_NE(std::string(reason.text).find("made to plan with"), std::string::npos) << reason.text;
  EXPECT_EQ(device_verbs.create_stream(device, &made, &reason.to), EPL_PACK_MISSING);
  EXPECT_EQ(device_verbs.create_event(device, &made, &reason.to), EPL_PACK_MISSING);
  EXPECT_EQ(device_verbs.note(device, &reason.to), 0);
  device_verbs.close(device);
  facts.processors = 0;
  EXPECT_EQ(device_verbs.plan(&facts, &device, &reason.to), EPL_PACK_FAILED);
}

// A session whose GPU is lost ends for good; other errors of the driver say what to change.
TEST(DriverErrors, AContextThatGoesOnIsNotLost) {
  const Rig rig;
  const Driver& driver = *open_driver(EPL_TEST_LIBRARIES).value();
  for (const DriverCode code : {46, 214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999})
    EXPECT_EQ(check(driver, code, "a call").code(), Code::state_lost) << code;
  for (const DriverCode code : {1, 400, 701, 704, 711, 712, 713, 801})
    EXPECT_EQ(check(driver, code, "a call").code(), Code::exhausted) << code;
}

}  // namespace
}  // namespace epl::cuda
