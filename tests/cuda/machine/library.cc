// The door of the machine for libraries that stand beside the driver (control.h): their commands take their turn in a
// stream, and their memory is checked like a copy's.
#include <algorithm>

#include "tests/cuda/machine/control.h"
#include "tests/cuda/machine/driver.h"

namespace epl::cuda_machine {
namespace {

using Rows = epl_test_machine_rows;

int64_t span(const Rows& rows) { return (rows.rows - 1) * rows.pitch + rows.bytes; }

// Where the host finds the first byte, when all rows were touched.
char* begin(Machine& machine, const Command& command, int device, const Rows& rows, const std::string& what) {
  int64_t at = 0, first = 0;
  Region* region = nullptr;
  for (int64_t row = 0; row < rows.rows; ++row) {
    region = &touch(machine, command, device, rows.address + static_cast<uint64_t>(row * rows.pitch), rows.bytes,
                    rows.writes != 0, what, &at);
    if (row == 0) first = at;
    const uint8_t* known = region->known() + at;
    if (rows.writes == 0 && machine.settings.uninitialised &&
        std::count(known, known + rows.bytes, uint8_t{Region::kWritten}) != rows.bytes)
      throw Fault(kLaunchFailed, what + " reads device memory that nobody has written");
  }
  return reinterpret_cast<char*>(region->data() + first);
}

void written(Machine& machine, const Rows& rows, int device, const std::string& what) {
  for (int64_t row = 0; row < rows.rows; ++row) {
    const uint64_t address = rows.address + static_cast<uint64_t>(row * rows.pitch);
    Allocation& allocation = machine.at(address, rows.bytes, device, what.c_str());
    std::fill_n(allocation.region.known() + (address - allocation.address), rows.bytes, uint8_t{Region::kWritten});
  }
}

}  // namespace
}  // namespace epl::cuda_machine

using namespace epl::cuda_machine;

EPL_DRIVER epl_test_machine_issue(void* handle, const char* what, const Rows* rows, int count,
                                  int (*run)(void* context, char* const* places), void (*drop)(void* context),
                                  void* context) {
  const std::shared_ptr<void> kept(context, drop);
  return call([&](Machine& machine, auto& lock) {
    Stream& stream = machine.stream(handle);
    const int device = stream.context->device;
    for (int i = 0; i < count; ++i) {
      require(rows[i].bytes > 0 && rows[i].rows > 0, kInvalidValue, std::string(what) + " touches nothing");
      machine.at(rows[i].address, span(rows[i]), device, what);
    }
    ++machine.counts.library_calls;
    const bool fails = machine.settings.launch_fails > 0 && --machine.settings.launch_fails == 0;
    submit(lock, stream,
           [&machine, fails, device, kept, run, name = std::string(what),
            all = std::vector<Rows>(rows, rows + count)](const Command& command) {
             if (fails) throw Fault(kLaunchFailed, name + " fails as the test's settings want");
             std::vector<char*> places;
             for (const Rows& one : all) places.push_back(begin(machine, command, device, one, name));
             if (run(kept.get(), places.data()) != 0) throw NotYet{};
             for (const Rows& one : all) {
               if (one.writes != 0) written(machine, one, device, name);
             }
           });
    check(*stream.context);
  });
}

EPL_DRIVER epl_test_machine_of_device(const void* address) {
  bool found = false;
  call([&](Machine& machine, auto&) { found = machine.memory.of_device(reinterpret_cast<uint64_t>(address)); }, false);
  return found ? 1 : 0;
}

extern "C" __attribute__((visibility("default"))) int epl_test_machine_collective_fails() {
  bool fails = false;
  call([&](Machine& machine, auto&) {
    fails = machine.settings.collective_fails > 0 && --machine.settings.collective_fails == 0;
  });
  return fails ? 1 : 0;
}

extern "C" __attribute__((visibility("default"))) void epl_test_machine_refused(const char* why) {
  call([&](Machine& machine, auto&) { machine.last_error = why; }, false);
}
