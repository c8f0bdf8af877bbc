// Sheets of devices: what a file may say, and the names of devices that are sheets.
#include "core/backend/sheet.h"

#include <gtest/gtest.h>

#include <set>

#include "core/backend/device.h"
#include "tests/backend/conformance.h"
#include "tests/backend/machine_file.h"

namespace epl::sheet_test {
namespace {

constexpr const char* whole =
    R"({"product": "A card", "capability": 8.9, "processors": 142, "memory_bytes": 47000000000,
  "bandwidth": 864e9, "host_bandwidth": 27e9, "products": {"f32": 91.6e12, "bf16": 362e12},
  "elementwise": {"f32": 90e12}, "links": [{"devices": 4, "bandwidth": 2e11, "seconds": 1e-6}, {"bandwidth": 1e10}],
  "launch_seconds": 5e-6})";

class Sheets : public MachineFile<DeviceSheet> {
 protected:
  Sheets() : MachineFile(whole, "card.json", read_device_sheet) {}
};

TEST_F(Sheets, AFileSaysAllOfAMachine) {
  const auto sheet = read(whole);
  ASSERT_TRUE(sheet.ok()) << sheet.status().to_string();
  EXPECT_EQ(sheet->product, "A card");
  EXPECT_EQ(sheet->capability, 89);
  EXPECT_EQ(sheet->processors, 142);
  EXPECT_EQ(sheet->memory_bytes, 47'000'000'000);
  const Machine& machine = sheet->machine;
  EXPECT_EQ(machine.rate(DType::bf16, WorkKind::product), 362e12);
  EXPECT_EQ(machine.rate(DType::f16, WorkKind::product), 91.6e12) << "of a type without a rate: float32's";
  EXPECT_EQ(machine.rate(DType::bf16, WorkKind::elementwise), 90e12);
  EXPECT_EQ(machine.memory(MemoryKind::device).bandwidth, 864e9);
  EXPECT_EQ(machine.memory(MemoryKind::host).bandwidth, 27e9);
  EXPECT_EQ(machine.link(0, 3).bandwidth, 2e11);
  EXPECT_EQ(machine.link(0, 4).bandwidth, 1e10);
  EXPECT_EQ(machine.launch_seconds, 5e-6);
  EXPECT_EQ(machine.tiles.side, 0);
  EXPECT_FALSE(machine.links.front().rings);
}

TEST_F(Sheets, AFileMaySayHowProductsFillADevice) {
  const auto sheet = read(changed("\"launch_seconds\": 5e-6", R"("tiles": {"side": 128, "fill": 200, "depth": 60})"));
  ASSERT_TRUE(sheet.ok()) << sheet.status().to_string();
  EXPECT_EQ(sheet->machine.tiles.side, 128);
  EXPECT_EQ(sheet->machine.tiles.fill, 200);
  EXPECT_EQ(sheet->machine.tiles.depth, 60);
  const auto rings = read(changed("\"seconds\": 1e-6", R"("rings": true)"));
  ASSERT_TRUE(rings.ok()) << rings.status().to_string();
  EXPECT_TRUE(rings->machine.links.front().rings);
  EXPECT_FALSE(rings->machine.links.back().rings);
  refuse(changed("\"seconds\": 1e-6", R"("rings": 1)"), "rings is true or false");
  refuse(changed("\"launch_seconds\": 5e-6", R"("tiles": {"side": 128})"), "needs the key fill");
}

TEST_F(Sheets, WhatIsLeftOutIsUsual) {
  const auto sheet = read(R"({"capability": 9, "processors": 1, "memory_bytes": 1, "bandwidth": 1e9,
    "host_bandwidth": 2e9, "products": {"f32": 1e12}})");
  ASSERT_TRUE(sheet.ok()) << sheet.status().to_string();
  EXPECT_EQ(sheet->capability, 90);
  EXPECT_EQ(sheet->machine.rate(DType::f32, WorkKind::elementwise), 1e12);
  EXPECT_EQ(sheet->machine.link(0, 100).bandwidth, 2e9) << "peers are reached through the host";
  EXPECT_GT(sheet->machine.launch_seconds, 0);
}

TEST_F(Sheets, WhatMakesNoSenseIsRefused) {
  refuse("{", "card.json");
  refuse("[]", "is no object");
  refuse(changed("\"bandwidth\": 864e9", "\"bandwith\": 864e9"), "did you mean bandwidth?");
  refuse(changed("\"processors\": 142, ", ""), "needs the key processors");
  refuse(changed("142", "0"), "processors is a number above 0");
  refuse(changed("142", "1.5"), "processors is a whole number");
  refuse(changed("142", "\"many\""), "processors is a number above 0");
  refuse(changed("47000000000", "-1"), "memory_bytes");
  refuse(changed("864e9", "1e999"), "too large");
  refuse(changed("\"f32\": 91.6e12, ", ""), "needs the key f32");
  refuse(changed("\"bf16\"", "\"fp4\""), "no key");
  refuse(changed(", {\"bandwidth\": 1e10}", ""), "the last of links joins any number");
  refuse(changed("{\"bandwidth\": 1e10}", "7"), "is no object");
  refuse(changed("\"A card\"", "7"), "product is a text");
  EXPECT_FALSE(read_device_sheet(folder / "nowhere.json").ok());
}

TEST(DeviceNames, SheetsAreOfBackendsThatHaveThem) {
  TestHost memory;
  const Host host = memory.host();
  const Status none = open_device("cpu:h100", host).status();
  EXPECT_EQ(none.code(), Code::invalid_argument);
  EXPECT_NE(none.message().find("cpu has no sheets"), std::string::npos) << none.message();
  const Status unknown = open_device("cuda:h10", host).status();
  EXPECT_EQ(unknown.code(), Code::not_found);
  EXPECT_NE(unknown.message().find("did you mean h100?"), std::string::npos) << unknown.message();
  EXPECT_EQ(open_device("cdua:h100", host).status().code(), Code::not_found);
  EXPECT_FALSE(open_device("cuda:/nowhere/card.json", host).ok());
}

TEST(DeviceNames, NumbersAreOfBackendsThatHaveSeveral) {
  TestHost memory;
  const Host host = memory.host();
  const Status alone = open_device("cpu:1", host).status();
  EXPECT_EQ(alone.code(), Code::invalid_argument);
  EXPECT_NE(alone.message().find("cpu is one alone"), std::string::npos) << alone.message();
  for (const char* name : {"cuda:0,,1", "cuda:0,", "cuda:,", "cuda:99999999999"}) {
    const Status wrong = open_device(name, host).status();
    EXPECT_EQ(wrong.code(), Code::invalid_argument) << name;
    EXPECT_NE(wrong.message().find("numbers with commas between them"), std::string::npos) << wrong.message();
  }
}

// Every number of every sheet is there, and in an order of size that a GPU has.
TEST(DeviceNames, EverySheetIsWhole) {
  std::set<std::string> names, products;
  int sheets = 0;
  for (const BackendRow& row : backend_table().rows) {
    EXPECT_EQ(row.sheets.empty(), row.plan_for == nullptr) << row.name;
    for (const DeviceSheet& sheet : row.sheets) {
      SCOPED_TRACE(sheet.name);
      ++sheets;
      EXPECT_TRUE(names.insert(sheet.name).second);
      EXPECT_TRUE(products.insert(sheet.product).second);
      EXPECT_EQ(sheet.name.find_first_of(":/. "), std::string::npos);
      EXPECT_GE(sheet.capability, 75);
      EXPECT_GT(sheet.processors, 16);
      EXPECT_GT(sheet.memory_bytes, int64_t{16} << 30);
      const Machine& machine = sheet.machine;
      for (const DType type : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
        for (const WorkKind kind : {WorkKind::product, WorkKind::elementwise}) {
          EXPECT_GT(machine.rate(type, kind), 1e11);
          EXPECT_LT(machine.rate(type, kind), 1e16);
        }
      }
      EXPECT_GT(machine.rate(DType::bf16, WorkKind::product), machine.rate(DType::f32, WorkKind::product));
      EXPECT_GT(machine.memory(MemoryKind::device).bandwidth, machine.memory(MemoryKind::host).bandwidth);
      EXPECT_EQ(machine.links.back().ranks, 0);
      EXPECT_FALSE(machine.is_core);
    }
  }
  EXPECT_GE(sheets, 6);
}

}  // namespace
}  // namespace epl::sheet_test
