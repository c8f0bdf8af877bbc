#include "tests/cuda/machine/control.h"

#include "tests/cuda/machine/driver.h"

using namespace epl::cuda_machine;

EPL_DRIVER epl_test_machine_set(const char* words) {
  return call([&](Machine& machine, auto&) { machine.set(words); }, false);
}

extern "C" __attribute__((visibility("default"))) const char* epl_test_machine_findings() {
  static std::string text;
  call(
      [&](Machine& machine, auto&) {
        text.clear();
        for (const std::string& finding : machine.findings()) text += finding + '\n';
      },
      false);
  return text.c_str();
}

extern "C" __attribute__((visibility("default"))) const char* epl_test_machine_last_error() {
  static std::string text;
  call([&](Machine& machine, auto&) { text = machine.last_error; }, false);
  return text.c_str();
}

extern "C" __attribute__((visibility("default"))) uint64_t epl_test_machine_count(const char* what) {
  uint64_t number = 0;
  call(
      [&](Machine& machine, auto&) {
        const std::string name = what;
        const Counts& counts = machine.counts;
        if (name == "used") {
          for (int device = 0; device < machine.devices(); ++device)
            number += static_cast<uint64_t>(machine.memory.used(device));
        }
        if (name.starts_with("used_"))
          number = static_cast<uint64_t>(machine.memory.used(std::stoi(name.substr(std::string("used_").size()))));
        const std::map<std::string, uint64_t> all = {{"launches", counts.launches},
                                                     {"instructions", counts.instructions},
                                                     {"steps", counts.steps},
                                                     {"commands", counts.commands},
                                                     {"library_calls", counts.library_calls},
                                                     {"peer_copies", counts.peer_copies},
                                                     {"recorded", counts.recorded},
                                                     {"graphs", counts.graphs},
                                                     {"streams", machine.streams()},
                                                     {"staged_copies", counts.staged_copies},
                                                     {"orders", machine.settings.orders ? 1 : 0},
                                                     {"allocations", counts.allocations}};
        if (const auto found = all.find(name); found != all.end()) number = found->second;
      },
      false);
  return number;
}
