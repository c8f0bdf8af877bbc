// The machines that the simulator knows by name.
#include <vector>

#include "backends/sim/sim.h"
#include "core/base/shown.h"
#include "core/base/suggestion.h"

namespace epl::sim {
namespace {

struct Sheet {
  const char* name;
  double product, product_half;  // operations per second of f32, and of bf16 and f16
  double memory, host, link;     // bytes per second
};

Machine accelerator(const Sheet& sheet) {
  Machine machine{
      .name = sheet.name,
      .memories = {{Machine::Memory::Kind::device, sheet.memory}, {Machine::Memory::Kind::host, sheet.host}},
      .links = {{.ranks = 0, .bandwidth = sheet.link, .seconds = 3e-6}},
      .launch_seconds = 4e-6};
  for (const WorkKind kind : {WorkKind::product, WorkKind::elementwise}) {
    machine.rates.push_back({DType::f32, kind, sheet.product});
    for (const DType half : {DType::bf16, DType::f16}) machine.rates.push_back({half, kind, sheet.product_half});
  }
  return machine;
}

}  // namespace

std::span<const Machine> machines() {
  // NVIDIA's data sheets of A100 80GB SXM (2021) and H100 SXM (2023); launch and message latencies are of the usual
  // size.
  static const std::vector<Machine> table = {accelerator({"a100", 19.5e12, 312e12, 2.039e12, 25e9, 300e9}),
                                             accelerator({"h100", 67e12, 989e12, 3.35e12, 50e9, 450e9}),
                                             processor_core()};
  return table;
}

Result<Machine> find_machine(std::string_view name) {
  std::vector<std::string> known;
  for (const Machine& machine : machines()) {
    if (machine.name == name) return machine;
    known.push_back(machine.name);
  }
  return error(Code::not_found, "no simulated machine ", shown(name), choices(name, known));
}

}  // namespace epl::sim
