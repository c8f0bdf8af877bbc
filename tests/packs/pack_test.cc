// Opening packs: what is missing, damaged or of another version is refused with a sentence, and plans are made without
// it.
#include "core/backend/pack.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/backend/device.h"
#include "core/backend/pack_circle.h"
#include "core/backend/pack_device.h"
#include "core/base/pack_abi.h"
#include "core/compile/plan_memory.h"
#include "core/runtime/rehearsal.h"
#include "core/runtime/session.h"
#include "tests/runtime/graph_model.h"
#include "tests/temporary_folder.h"

namespace epl::pack_test {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view model = R"(graph tiny(x: f32[8,24] batch 0) {
  w: f32[24,40] = param
  forward:
  y: f32[8,40] = linear(x, w)
  output y = y
}
)";

Result<std::shared_ptr<const CompiledPlan>> plan_of(const std::string& packs, const char* level) {
  PlanOptions options;
  options.model = GraphModel::parse(model);
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "sgd";
  EPL_TRY(set_config(options.strategy, "reproducible.level", level));
  Host host = test_host(2);
  host.packs = packs;
  return CompiledPlan::create(host, options);
}

std::string kernels_of(const CompiledPlan& plan) {
  auto text = plan.text(EntryKind::train, "kernels");
  EXPECT_TRUE(text.ok()) << text.status().to_string();
  return text.ok() ? *text : "";
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// The refusal of the pack in `folder`, which must also be what a plan at level run says while it does without.
std::string refusal_of(const std::string& folder, Code code) {
  auto opened = open_pack(folder, "onednn");
  EXPECT_FALSE(opened.ok()) << folder;
  if (opened.ok()) return "";
  EXPECT_EQ(opened.status().code(), code) << opened.status().to_string();
  auto plan = plan_of(folder, "run");
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  if (plan.ok()) {
    for (const std::string& text : {kernels_of(**plan), (*plan)->explain()}) {
      EXPECT_TRUE(has(text, "pack onednn is not used")) << text;
      EXPECT_TRUE(has(text, opened.status().message())) << text;
    }
    EXPECT_TRUE(has(kernels_of(**plan), "linear_ordered")) << kernels_of(**plan);
  }
  return opened.status().message();
}

TEST(Packs, NoneIsSaid) {
  const TemporaryFolder folder;
  const std::string& empty = folder.path();
  EXPECT_TRUE(has(refusal_of(empty, Code::not_found), "there is no " + empty + "/libepl_onednn.so"));
  EXPECT_TRUE(has(refusal_of(empty + "/nowhere", Code::not_found), "there is no"));
  EXPECT_TRUE(has(refusal_of("", Code::not_found), "names no folder"));
}

TEST(Packs, WhatIsNoLibraryIsSaid) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  for (const char* content : {"", "#!/bin/sh\nexit 0\n",
                              "\x7f"
                              "ELF and then nothing that fits, for more bytes than a header has ................"}) {
    std::ofstream(pack_path(folder, "onednn"), std::ios::trunc | std::ios::binary) << content;
    const std::string refusal = refusal_of(folder, Code::invalid_argument);
    EXPECT_TRUE(has(refusal, "cannot be loaded")) << refusal;
    EXPECT_TRUE(has(refusal, folder)) << refusal;
  }
}

TEST(Packs, EveryFaultIsNamed) {
  const std::string all = EPL_BAD_PACKS;
  const auto refusal = [&](const char* fault, Code code) { return refusal_of(all + "/" + fault, code); };
  EXPECT_TRUE(has(refusal("no_entry", Code::invalid_argument), "is not a pack: it has no epl_pack_entry"));
  EXPECT_TRUE(has(refusal("gives_nothing", Code::invalid_argument), "is not a pack"));
  EXPECT_TRUE(
      has(refusal("other_version", Code::unsupported), "version 4 of the packs' interface, this library version 3"));
  EXPECT_TRUE(
      has(refusal("old_version", Code::unsupported), "version 2 of the packs' interface, this library version 3"));
  EXPECT_TRUE(has(refusal("short_table", Code::unsupported), "a table of 16 bytes"));
  EXPECT_TRUE(has(refusal("short_row", Code::unsupported), "has rows of"));
  EXPECT_TRUE(has(refusal("short_device", Code::unsupported), "has a device of"));
  EXPECT_TRUE(has(refusal("other_name", Code::invalid_argument), "is pack another"));
}

// A device that knows no ranks of other processes serves: what they send goes through the host.
TEST(Packs, AnOlderDeviceHasNoCard) {
  const auto pack = open_pack(std::string(EPL_BAD_PACKS) + "/older_device", "onednn");
  ASSERT_TRUE(pack.ok()) << pack.status().to_string();
  epl_pack_device verbs = *(*pack)->verbs;
  verbs.close = [](void*) {};
  const OpenedPack older("older:0", &verbs, nullptr);
  EXPECT_FALSE(older.meets());
  EXPECT_EQ(circle_card(older), "");
  EXPECT_EQ(older.stream_kinds(), 1);
}

// What stands behind the end of an older table is no verb.
TEST(Packs, ADeviceSaysWhatStreamsARankUses) {
  epl_pack_device verbs = {};
  verbs.struct_size = sizeof verbs;
  verbs.close = [](void*) {};
  static int32_t said = 0;
  const auto kinds = [&](int32_t saying) {
    said = saying;
    return OpenedPack("some:0", &verbs, nullptr).stream_kinds();
  };
  EXPECT_EQ(kinds(4), 1) << "there is no such verb";
  verbs.stream_kinds = [](void*) { return said; };
  for (const int32_t of_device : {1, 2, 3, 4}) EXPECT_EQ(kinds(of_device), of_device);
  EXPECT_EQ(kinds(0), 1);
  EXPECT_EQ(kinds(-1), 1);
  EXPECT_EQ(kinds(9), 4) << "a newer pack may know more";
  verbs.struct_size = offsetof(epl_pack_device, stream_kinds);
  EXPECT_EQ(kinds(4), 1);
}

TEST(Packs, RanksMeetThatHaveOneLibraryAndDevicesOfTheirOwn) {
  const auto meet = [](std::vector<std::string> cards) { return can_meet(cards); };
  EXPECT_TRUE(meet({"NCCL 2.32\nhere 0", "NCCL 2.32\nhere 1", "NCCL 2.32\nthere 0"}));
  EXPECT_FALSE(meet({"NCCL 2.32\nhere 0", "NCCL 2.32\nhere 0"})) << "one device";
  EXPECT_FALSE(meet({"NCCL 2.32\nhere 0", "NCCL 2.28\nhere 1"})) << "two libraries";
  EXPECT_FALSE(meet({"NCCL 2.32\nhere 0", ""})) << "a rank of the processor";
  EXPECT_FALSE(meet({"", ""}));
  EXPECT_FALSE(meet({"NCCL 2.32\nhere 0"}));
  EXPECT_FALSE(meet({}));
}

// A broken file is worth a warning, a missing one is ordinary.
TEST(Packs, TheLogKnowsTheDifference) {
  const auto level = [](const std::string& folder) {
    std::vector<LogLevel> seen;
    Host host = test_host(1);
    host.packs = folder;
    host.least_logged = LogLevel::info;
    host.log = [&](LogLevel l, std::string_view) { seen.push_back(l); };
    EXPECT_TRUE(open_device("cpu", host, {.any_order = true}).ok());
    EXPECT_EQ(seen.size(), 1u);
    return seen.empty() ? LogLevel::error : seen[0];
  };
  EXPECT_EQ(level(TemporaryFolder() / "nowhere"), LogLevel::info);
  EXPECT_EQ(level(std::string(EPL_BAD_PACKS) + "/other_version"), LogLevel::warning);
}

TEST(Packs, LevelDataLooksForNone) {
  auto plan = plan_of(std::string(EPL_BAD_PACKS) + "/other_version", "data");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_FALSE(has((*plan)->explain(), "pack")) << (*plan)->explain();
  EXPECT_FALSE(has(kernels_of(**plan), "pack")) << kernels_of(**plan);
}

TEST(Packs, ServeNothingAtLevelLayout) {
  auto plan = plan_of("", "layout");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_FALSE(has(kernels_of(**plan), "pack")) << kernels_of(**plan);
}

// A device that a pack is: what is missing is named, with where it was looked for and what brings it.
TEST(Packs, ADeviceSaysWhatItLacks) {
  const TemporaryFolder empty;
  Host host = test_host(1);
  host.packs = empty.path();
  const Status no_pack = open_device("cuda", host).status();
  EXPECT_EQ(no_pack.code(), Code::not_found);
  EXPECT_TRUE(has(no_pack.message(), "device cuda needs the pack cuda: there is no " + empty.path()))
      << no_pack.message();

  host.packs = EPL_PACK_FOLDER;
  if (!fs::exists(pack_path(EPL_PACK_FOLDER, "cuda"))) GTEST_SKIP() << "the pack is not built";
  const auto opened = open_device("cuda", host);
  if (opened.ok()) GTEST_SKIP() << "this machine has " << (*opened)->description();
  EXPECT_EQ(opened.status().code(), Code::unsupported);
  const std::string& message = opened.status().message();
  if (!has(message, "cannot be opened; it")) GTEST_SKIP() << "a driver without a GPU: " << message;
  for (const char* part : {"libcuda.so.1", EPL_PACK_FOLDER, "where the loader looks", "NVIDIA's driver 580"})
    EXPECT_TRUE(has(message, part)) << message;
}

// What libepl.so says of a pack, whether it is there or not, is what the pack gives.
TEST(Packs, RowsSayWhatIsInThem) {
  ASSERT_GE(pack_table().rows.size(), 3u);
  for (const PackRow& row : pack_table().rows) {
    SCOPED_TRACE(row.name);
    EXPECT_FALSE(row.doc.empty());
    EXPECT_FALSE(row.packages.empty());
    EXPECT_TRUE(fs::exists(fs::path(EPL_SOURCE_DIR) / "backends" / row.name / "pack.cmake"));
    if (!fs::exists(pack_path(EPL_PACK_FOLDER, row.name))) continue;  // its libraries are not here
    auto pack = open_pack(EPL_PACK_FOLDER, row.name);
    ASSERT_TRUE(pack.ok()) << pack.status().to_string();
    EXPECT_EQ((*pack)->device == nullptr ? "" : (*pack)->device, row.device);
    EXPECT_EQ((*pack)->kernel_count > 0, !row.device.empty());
    ASSERT_EQ((*pack)->codec_count, row.codecs.size());
    for (size_t i = 0; i < row.codecs.size(); ++i) EXPECT_EQ((*pack)->codecs[i]->name, row.codecs[i].name);
  }
}

// A sheet needs the pack and no GPU: its kernels are there, and nothing can be made on it.
TEST(Packs, ADeviceThatIsASheetPlansAndRefusesTheRest) {
  const TemporaryFolder empty;
  Host host = test_host(1);
  host.packs = empty.path();
  const Status no_pack = open_device("cuda:h100", host).status();
  EXPECT_EQ(no_pack.code(), Code::not_found);
  EXPECT_TRUE(has(no_pack.message(), "needs the pack cuda")) << no_pack.message();

  host.packs = EPL_PACK_FOLDER;
  if (!fs::exists(pack_path(EPL_PACK_FOLDER, "cuda"))) GTEST_SKIP() << "the pack is not built";
  const auto device = open_device("cuda:h100", host);
  ASSERT_TRUE(device.ok()) << device.status().to_string();
  EXPECT_TRUE(has((*device)->description(), "the sheet of NVIDIA H100")) << (*device)->description();
  EXPECT_TRUE((*device)->kernels().has("add") || (*device)->kernels().has("fused"));
  EXPECT_FALSE((*device)->shares_host_memory());
  EXPECT_GT((*device)->memory_bytes(), int64_t{70} << 30);
  EXPECT_GT((*device)->machine().rate(DType::bf16, WorkKind::product), 9e14);
  for (const Status& refused : {(*device)->allocate(64).status(), (*device)->create_stream(1).status(),
                                (*device)->create_group("world", 1).status()}) {
    EXPECT_EQ(refused.code(), Code::unsupported);
    EXPECT_TRUE(has(refused.message(), "device cuda:h100 is a sheet")) << refused.message();
  }
}

// A plan by a sheet: its step is predicted at the speed of that device, whether it fits is said, and a session is an
// error. With half the bandwidth and rates the same step takes longer.
TEST(Packs, APlanByASheetIsPredictedAndDoesNotRun) {
  if (!fs::exists(pack_path(EPL_PACK_FOLDER, "cuda"))) GTEST_SKIP() << "the pack is not built";
  const TemporaryFolder folder;
  const auto sheet = [&](const char* name, double scale, int64_t bytes) {
    const std::string path = folder / name;
    std::ofstream(path) << "{\"product\": \"A card\", \"capability\": 9.0, \"processors\": 132, \"memory_bytes\": "
                        << bytes << ", \"bandwidth\": " << 1e9 * scale << ", \"host_bandwidth\": " << 1e8 * scale
                        << ", \"products\": {\"f32\": " << 1e10 * scale << "}, \"launch_seconds\": " << 1e-6 / scale
                        << "}";
    return cat("cuda:", path);
  };
  Host host = test_host(2);
  host.packs = EPL_PACK_FOLDER;
  const auto plan_for = [&](const std::string& device) {
    PlanOptions options;
    options.model = GraphModel::parse(model);
    options.train.loss.name = "softmax_cross_entropy";
    options.train.optimizer = "sgd";
    options.device = device;
    auto plan = CompiledPlan::create(host, options);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    return plan.ok() ? *plan : nullptr;
  };
  const auto fast = plan_for(sheet("fast.json", 2, 1 << 30)), slow = plan_for(sheet("slow.json", 1, 100));
  ASSERT_TRUE(fast && slow);
  EXPECT_TRUE(has(fast->explain(), "the plan fits")) << fast->explain();
  EXPECT_TRUE(has(slow->explain(), "the plan does not fit")) << slow->explain();
  EXPECT_EQ(PlanMemory(*fast).peak(), PlanMemory(*slow).peak());
  EXPECT_EQ(*fast->text(EntryKind::train, "program"), *slow->text(EntryKind::train, "program"));
  const auto seconds = [&](const std::shared_ptr<const CompiledPlan>& plan) {
    const auto rehearsal = rehearse(host, plan);
    EXPECT_TRUE(rehearsal.ok()) << rehearsal.status().to_string();
    EXPECT_TRUE(!rehearsal.ok() || has(rehearsal->device, "simulated A card")) << rehearsal->device;
    return rehearsal.ok() ? rehearsal->trace.end() - rehearsal->trace.begin() : 0;
  };
  EXPECT_GT(seconds(fast), 0);
  EXPECT_GT(seconds(slow), seconds(fast));
  const auto session = Session::create(host, fast, {});
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.status().code(), Code::unsupported);
  EXPECT_TRUE(has(session.status().message(), "is a sheet")) << session.status().message();
}

TEST(Packs, ASheetOfAGpuThatIsTooOldIsRefused) {
  if (!fs::exists(pack_path(EPL_PACK_FOLDER, "cuda"))) GTEST_SKIP() << "the pack is not built";
  const TemporaryFolder folder;
  std::ofstream(folder / "v100.json") << R"({"product": "Tesla V100", "capability": 7.0, "processors": 80,
    "memory_bytes": 16000000000, "bandwidth": 9e11, "host_bandwidth": 1e10, "products": {"f32": 15e12}})";
  Host host = test_host(1);
  host.packs = EPL_PACK_FOLDER;
  const Status refused = open_device(cat("cuda:", folder / "v100.json"), host).status();
  EXPECT_EQ(refused.code(), Code::unsupported);
  for (const char* part : {"Tesla V100", "too old", "7.0", "7.5"})
    EXPECT_TRUE(has(refused.message(), part)) << refused.message();
}

// What the machine has of it: every library is named with what brings it, and without a driver it is said why not.
TEST(Packs, WhatTheMachineHasOfADeviceIsListed) {
  const TemporaryFolder empty;
  Host host = test_host(1);
  host.packs = empty.path();
  EXPECT_TRUE(has(look_for_pack_devices("cuda", host).missing, "needs the pack cuda"));
  host.packs = EPL_PACK_FOLDER;
  if (!fs::exists(pack_path(EPL_PACK_FOLDER, "cuda"))) GTEST_SKIP() << "the pack is not built";
  const PackDevices found = look_for_pack_devices("cuda", host);
  ASSERT_GE(found.libraries.size(), 4u);
  for (const epl_pack_library& one : found.libraries) {
    EXPECT_STRNE(one.repository, "") << one.file;
    EXPECT_EQ(one.state == 0, one.reason[0] == '\0') << one.file << ": " << one.reason;
  }
  EXPECT_EQ(found.missing.empty(), !found.devices.empty()) << found.missing;
}

}  // namespace
}  // namespace epl::pack_test
