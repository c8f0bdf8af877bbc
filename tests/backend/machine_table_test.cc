// Tables of what was measured: what a file may say, and that a device that is named with one is decided by it.
#include <gtest/gtest.h>

#include "core/backend/device.h"
#include "core/backend/sheet.h"
#include "tests/backend/conformance.h"
#include "tests/backend/machine_file.h"

namespace epl::machine_table_test {
namespace {

constexpr const char* whole =
    R"({"measured": {"device": "A core", "version": "0.1.0", "seconds": 20, "error": 0.08, "error_90th": 0.31},
  "core": true, "bandwidth": 11e9, "host_bandwidth": 10e9, "file_bandwidth": 2e9, "products": {"f32": 70e9},
  "elementwise": {"f32": 20e9}, "links": [{"bandwidth": 5e9, "seconds": 2e-6}], "launch_seconds": 4e-7})";

class MachineTables : public MachineFile<Machine> {
 protected:
  MachineTables() : MachineFile(whole, "table.json", read_machine_table) {}
  TestHost memory;
  Host host = memory.host();
};

TEST_F(MachineTables, AFileSaysAllOfAMachine) {
  const auto machine = read(whole);
  ASSERT_TRUE(machine.ok()) << machine.status().to_string();
  EXPECT_EQ(machine->basis, Machine::Basis::table);
  EXPECT_TRUE(machine->is_core);
  EXPECT_EQ(machine->rate(DType::f32, WorkKind::product), 70e9);
  EXPECT_EQ(machine->rate(DType::f64, WorkKind::elementwise), 20e9);
  EXPECT_EQ(machine->memory(MemoryKind::device).bandwidth, 11e9);
  EXPECT_EQ(machine->memory(MemoryKind::host).bandwidth, 10e9);
  EXPECT_EQ(machine->memory(MemoryKind::file).bandwidth, 2e9);
  EXPECT_EQ(machine->link(0, 100).bandwidth, 5e9);
  EXPECT_EQ(machine->link(0, 100).seconds, 2e-6);
  EXPECT_EQ(machine->launch_seconds, 4e-7);
  EXPECT_EQ(machine->measured.error_90th, 0.31);
}

TEST_F(MachineTables, RanksMayBeOfSeveralKinds) {
  const auto machine =
      read(changed("\"core\": true", R"("kinds": [{"devices": 3}, {"devices": 2, "speed": 0.5, "memory": 2}])"));
  ASSERT_TRUE(machine.ok()) << machine.status().to_string();
  EXPECT_EQ(machine->kind(2).speed, 1);
  EXPECT_EQ(machine->kind(3).speed, 0.5);
  EXPECT_EQ(machine->kind(9).memory, 2);
  EXPECT_EQ(machine->kind(10).memory, 1);  // over and over
  EXPECT_EQ(machine->slowest(0, 3), 1);
  EXPECT_EQ(machine->slowest(2, 2), 0.5);
  EXPECT_EQ(processor_core().kind(7).speed, 1);
  refuse(changed("\"core\": true", R"("kinds": [])"), "kinds is a list");
  refuse(changed("\"core\": true", R"("kinds": [{"speed": 2}])"), "a kind needs the key devices");
  refuse(changed("\"core\": true", R"("kinds": [{"devices": 1, "memory": 0}])"), "memory is a number above 0");
}

TEST_F(MachineTables, WhatIsDamagedIsRefusedByItsPlace) {
  refuse(std::string(whole).substr(0, 100), "table.json");
  refuse(changed("\"bandwidth\": 11e9", "\"bandwith\": 11e9"), "did you mean bandwidth?");
  refuse(changed("\"launch_seconds\": 4e-7", "\"launch_seconds\": -1"), "launch_seconds is a number above 0");
  refuse(changed("\"error\": 0.08, ", ""), "measured needs the key error");
  refuse(changed("\"device\": \"A core\", ", ""), "measured needs the key device");
  refuse(changed("\"core\": true", "\"core\": 1"), "core is true or false");
  refuse(changed("\"seconds\": 20", "\"seconds\": 0"), "measured: seconds");
  refuse(R"({"bandwidth": 1e9})", "needs the key measured");
  EXPECT_FALSE(read_machine_table(folder / "nowhere.json").ok());
}

TEST_F(MachineTables, ADeviceIsDecidedByTheTableBehindItsName) {
  ASSERT_TRUE(read(whole).ok());
  for (const char* name : {"cpu", "sim"}) {
    const auto device = open_device(cat(name, "@", path()), host);
    ASSERT_TRUE(device.ok()) << device.status().to_string();
    EXPECT_EQ((*device)->machine().rate(DType::f32, WorkKind::product), 70e9) << name;
  }
  const auto usual = open_device("cpu", host);
  ASSERT_TRUE(usual.ok());
  EXPECT_EQ((*usual)->machine().rate(DType::f32, WorkKind::product),
            processor_core().rate(DType::f32, WorkKind::product));
  EXPECT_FALSE(open_device("cpu@", host).ok());
  EXPECT_FALSE(open_device(cat("cpu@", path(), "x"), host).ok());
  EXPECT_EQ(open_device(cat("cup@", path()), host).status().code(), Code::not_found);
}

TEST_F(MachineTables, APlanSaysHowSureItIs) {
  const auto machine = read(whole);
  ASSERT_TRUE(machine.ok());
  const std::string same = basis_text(*machine, "A core");
  EXPECT_NE(same.find("off by 8 % at the median and 31 % at the 90th percentile"), std::string::npos) << same;
  EXPECT_EQ(same.find("another device"), std::string::npos) << same;
  const std::string other = basis_text(*machine, "B core");
  EXPECT_NE(other.find("another device than B core"), std::string::npos) << other;
  EXPECT_NE(basis_text(processor_core(), "A core").find("usual processor core"), std::string::npos);
  Machine sheet = processor_core();
  sheet.basis = Machine::Basis::sheet;
  EXPECT_NE(basis_text(sheet, "A card").find("data sheet"), std::string::npos);
}

}  // namespace
}  // namespace epl::machine_table_test
