// The driver's functions: memory of devices and of the host, copies and fills.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/cuda/machine/driver.h"
#include "tests/cuda/machine/graph.h"

namespace epl::cuda_machine {

Region& touch(Machine& machine, const Command& command, int device, uint64_t address, int64_t bytes, bool writes,
              const std::string& what, int64_t* at) {
  Allocation& allocation = machine.at(address, bytes, device, what.c_str());
  *at = static_cast<int64_t>(address - allocation.address);
  Who who;
  who.command = command.number;
  const Mark* other = allocation.region.touch(*at, bytes, who, writes, machine.before(command));
  if (other != nullptr)
    throw Fault(
        kLaunchFailed,
        "race: " + what + (writes ? " writes" : " reads") +
            " device memory that another command touches, and nothing says which of the two comes first: " +
            (other->where == 0 ? std::string("a copy, a fill or a library") : machine.sites[other->where].words()));
  return allocation.region;
}

namespace {

// Rows of bytes on one side of a copy: on a device, or where `host` is.
struct Side {
  uint64_t device = 0;
  std::byte* host = nullptr;
  int64_t pitch = 0;
  int number = -1;  // of the device; -1: that of the stream
};

struct Copy {
  Side to, from;
  int64_t width = 0, height = 1;
};

int64_t span(const Side& side, const Copy& copy) { return (copy.height - 1) * side.pitch + copy.width; }

void carry_out(Machine& machine, const Command& command, const Copy& copy) {
  for (const Side* side : {&copy.to, &copy.from})
    require(side->host != nullptr || machine.lost.count(side->number) == 0, kUnknown,
            "a copy: device " + std::to_string(side->number) + " is lost");
  for (int64_t row = 0; row < copy.height; ++row) {
    const std::byte* from = copy.from.host == nullptr ? nullptr : copy.from.host + row * copy.from.pitch;
    std::byte* to = copy.to.host == nullptr ? nullptr : copy.to.host + row * copy.to.pitch;
    const uint8_t* known = nullptr;
    int64_t at = 0;
    if (from == nullptr) {
      Region& region =
          touch(machine, command, copy.from.number, copy.from.device + static_cast<uint64_t>(row * copy.from.pitch),
                copy.width, false, "a copy from a device", &at);
      from = region.data() + at;
      known = region.known() + at;
    }
    if (to == nullptr) {
      Region& region =
          touch(machine, command, copy.to.number, copy.to.device + static_cast<uint64_t>(row * copy.to.pitch),
                copy.width, true, "a copy to a device", &at);
      to = region.data() + at;
      std::memmove(to, from, static_cast<size_t>(copy.width));
      if (known != nullptr) {
        std::memmove(region.known() + at, known, static_cast<size_t>(copy.width));
      } else {
        std::fill_n(region.known() + at, copy.width, uint8_t{Region::kWritten});
      }
      continue;
    }
    if (known != nullptr && machine.settings.uninitialised &&
        std::count(known, known + copy.width, uint8_t{Region::kWritten}) != copy.width)
      throw Fault(kLaunchFailed, "a copy to the host reads device memory that nobody has written");
    std::memcpy(to, from, static_cast<size_t>(copy.width));
  }
}

// What a copy may not do is said at the call; the bytes move later. Pageable memory of the host is read at the call,
// and written before the call returns.
void copy_bytes(Copy copy, void* stream_handle, bool wait, Machine& machine, std::unique_lock<std::mutex>& lock) {
  Stream& stream = machine.stream(stream_handle);
  if (copy.width == 0 || copy.height == 0) return;
  const auto check_side = [&](Side& side, const char* what) {
    if (side.number < 0) side.number = stream.context->device;
    require(side.pitch >= copy.width || copy.height == 1, kInvalidValue, "rows that overlap");
    if (side.host == nullptr) {
      machine.at(side.device, span(side, copy), side.number, what);
    } else {
      require(!machine.memory.of_device(reinterpret_cast<uint64_t>(side.host)), kInvalidValue,
              std::string(what) + ": an address of a device is given as one of the host");
    }
  };
  check_side(copy.to, "a copy to a device");
  check_side(copy.from, "a copy from a device");
  if (machine.settings.copy_fails > 0 && --machine.settings.copy_fails == 0)
    throw Fault(stream.context->sticky = kLaunchFailed, "a copy fails as the test's settings want");
  const auto pageable = [&](const Side& side) {
    return side.host != nullptr && !machine.pinned(side.host, span(side, copy));
  };
  // Stricter than the driver: nobody keeps such memory in its place until the graph is carried out.
  if (stream.capture && (pageable(copy.from) || pageable(copy.to)))
    refuse(*stream.capture, kCaptureUnsupported, "a recorded copy touches memory of the host that is not pinned");
  std::shared_ptr<std::vector<std::byte>> staged;
  if (pageable(copy.from)) {
    staged = std::make_shared<std::vector<std::byte>>(copy.from.host, copy.from.host + span(copy.from, copy));
    copy.from.host = staged->data();
  }
  wait = wait || pageable(copy.to);
  submit(lock, stream, [&machine, copy, staged](const Command& command) { carry_out(machine, command, copy); });
  if (wait) machine.wait_for(lock, stream);
  check(*stream.context);
}

int copy_call(const Copy& copy, void* stream, bool wait) {
  return call([&](Machine& machine, auto& lock) { copy_bytes(copy, stream, wait, machine, lock); });
}

Side on_device(uint64_t address, int number = -1) { return {.device = address, .number = number}; }
Side on_host(const void* address) {
  return {.host = const_cast<std::byte*>(static_cast<const std::byte*>(address == nullptr ? "" : address))};
}

int fill(uint64_t to, uint64_t value, int width, size_t count, void* stream_handle, bool wait) {
  return call([&](Machine& machine, auto& lock) {
    Stream& stream = machine.stream(stream_handle);
    const int device = stream.context->device;
    const auto bytes = static_cast<int64_t>(count) * width;
    if (bytes == 0) return;
    require(to % static_cast<uint64_t>(width) == 0, kInvalidValue, "a fill of a misaligned address");
    machine.at(to, bytes, device, "a fill");
    submit(lock, stream, [&machine, device, to, value, width, bytes](const Command& command) {
      int64_t at = 0;
      Region& region = touch(machine, command, device, to, bytes, true, "a fill", &at);
      for (int64_t k = 0; k < bytes; k += width)
        std::memcpy(region.data() + at + k, &value, static_cast<size_t>(width));
      std::fill_n(region.known() + at, bytes, uint8_t{Region::kWritten});
    });
    if (wait) machine.wait_for(lock, stream);
    check(*stream.context);
  });
}

}  // namespace
}  // namespace epl::cuda_machine

using namespace epl::cuda_machine;

EPL_DRIVER cuMemGetInfo_v2(size_t* free, size_t* total) {
  return call([&](Machine& machine, auto&) {
    const int device = machine.current().device;
    const int64_t all = machine.memory_of(device);
    if (total != nullptr) *total = static_cast<size_t>(all);
    if (free != nullptr) *free = static_cast<size_t>(all - machine.memory.used(device));
  });
}

EPL_DRIVER cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  return call([&](Machine& machine, auto&) {
    const int device = machine.current().device;
    check_no_recording(machine, "an allocation");
    require(address != nullptr && bytes > 0, kInvalidValue, "an allocation of nothing");
    ++machine.counts.allocations;
    const bool fails = machine.settings.allocation_fails > 0 && --machine.settings.allocation_fails == 0;
    require(!fails && static_cast<int64_t>(bytes) <= machine.memory_of(device) - machine.memory.used(device),
            kOutOfMemory, "the device has no " + std::to_string(bytes) + " bytes");
    Allocation& made = machine.memory.allocate(static_cast<int64_t>(bytes), device, machine.settings.races);
    made.of_program = true;
    *address = made.address;
  });
}

EPL_DRIVER cuMemFree_v2(uint64_t address) {
  return call([&](Machine& machine, auto& lock) {
    Context& context = machine.current();
    check_no_recording(machine, "the release of memory");
    if (address == 0) return;
    Allocation* allocation = machine.memory.find(address);
    require(allocation != nullptr && !allocation->freed && allocation->of_program && allocation->address == address,
            kInvalidValue, "what is freed is no allocation: " + machine.memory.about(address));
    machine.wait_for_all(lock, context);
    machine.memory.free(*allocation);
    check(context);
  });
}

EPL_DRIVER cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  return call([&](Machine& machine, auto&) {
    machine.current();
    check_no_recording(machine, "memory of the host");
    require(memory != nullptr && bytes > 0 && flags <= 7, kInvalidValue, "memory of the host");
    void* made = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    require(made != nullptr, kOutOfMemory, "the host has no memory");
    machine.host[reinterpret_cast<uint64_t>(made)] = {bytes, true};
    *memory = made;
  });
}

EPL_DRIVER cuMemAllocHost_v2(void** memory, size_t bytes) { return cuMemHostAlloc(memory, bytes, 0); }

EPL_DRIVER cuMemFreeHost(void* memory) {
  return call([&](Machine& machine, auto& lock) {
    Context& context = machine.current();
    check_no_recording(machine, "the release of memory of the host");
    const auto range = machine.host.find(reinterpret_cast<uint64_t>(memory));
    require(range != machine.host.end() && range->second.ours, kInvalidValue, "this memory is not the driver's");
    machine.wait_for_all(lock, context);
    machine.host.erase(range);
    std::free(memory);
  });
}

EPL_DRIVER cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
  return call([&](Machine& machine, auto&) {
    machine.current();
    check_no_recording(machine, "memory of the host");
    require(memory != nullptr && bytes > 0 && flags <= 15, kInvalidValue, "memory of the host");
    const auto begin = reinterpret_cast<uint64_t>(memory);
    const auto next = machine.host.lower_bound(begin);
    const bool after = next != machine.host.end() && next->first < begin + bytes;
    const bool before = next != machine.host.begin() && std::prev(next)->first + std::prev(next)->second.bytes > begin;
    require(!after && !before, kHostMemoryAlreadyRegistered, "this memory of the host is pinned already");
    machine.host[begin] = {bytes, false};
  });
}

EPL_DRIVER cuMemHostUnregister(void* memory) {
  return call([&](Machine& machine, auto& lock) {
    Context& context = machine.current();
    check_no_recording(machine, "memory that is no longer pinned");
    const auto range = machine.host.find(reinterpret_cast<uint64_t>(memory));
    require(range != machine.host.end() && !range->second.ours, kHostMemoryNotRegistered, "this memory is not pinned");
    machine.wait_for_all(lock, context);
    machine.host.erase(range);
  });
}

EPL_DRIVER cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  return copy_call({on_device(to), on_host(from), static_cast<int64_t>(bytes)}, nullptr, true);
}
EPL_DRIVER cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
  return copy_call({on_host(to), on_device(from), static_cast<int64_t>(bytes)}, nullptr, true);
}
EPL_DRIVER cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes) {
  return copy_call({on_device(to), on_device(from), static_cast<int64_t>(bytes)}, nullptr, false);
}
EPL_DRIVER cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  return copy_call({on_device(to), on_host(from), static_cast<int64_t>(bytes)}, stream, false);
}
EPL_DRIVER cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
  return copy_call({on_host(to), on_device(from), static_cast<int64_t>(bytes)}, stream, false);
}
EPL_DRIVER cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  return copy_call({on_device(to), on_device(from), static_cast<int64_t>(bytes)}, stream, false);
}
EPL_DRIVER cuMemcpyPeerAsync(uint64_t to, Context* to_context, uint64_t from, Context* from_context, size_t bytes,
                             void* stream) {
  return call([&](Machine& machine, auto& lock) {
    require(machine.alive(to_context) && machine.alive(from_context), kInvalidContext, "a copy between no contexts");
    const Context& own = *machine.stream(stream).context;
    require(&own == to_context || &own == from_context, kInvalidContext,
            "a copy between two devices on a stream of a third one");
    ++machine.counts.peer_copies;
    const Context& other = &own == to_context ? *from_context : *to_context;
    if (own.reaches.count(other.device) == 0) ++machine.counts.staged_copies;
    copy_bytes({on_device(to, to_context->device), on_device(from, from_context->device), static_cast<int64_t>(bytes)},
               stream, false, machine, lock);
  });
}

namespace {

// The driver's description of a copy of rows, by the order of its fields.
struct Copy2D {
  struct Place {
    size_t x, y;
    unsigned memory;  // 1: of the host, 2: of a device, 3: an array, 4: whichever
    const void* host;
    uint64_t device;
    void* array;
    size_t pitch;
  } from;
  Place to;
  size_t width, height;
};

int copy_rows(const Copy2D* rows, void* stream, bool wait) {
  if (rows == nullptr) return kInvalidValue;
  const auto side = [](const Copy2D::Place& place) {
    Side made = place.memory == 1 ? on_host(place.host) : on_device(place.device);
    made.pitch = static_cast<int64_t>(place.pitch);
    const size_t skipped = place.y * place.pitch + place.x;
    made.device += made.host == nullptr ? skipped : 0;
    made.host = made.host == nullptr ? nullptr : made.host + skipped;
    return made;
  };
  if ((rows->from.memory != 1 && rows->from.memory != 2) || (rows->to.memory != 1 && rows->to.memory != 2))
    return kNotSupported;
  return copy_call(
      {side(rows->to), side(rows->from), static_cast<int64_t>(rows->width), static_cast<int64_t>(rows->height)}, stream,
      wait);
}

}  // namespace

EPL_DRIVER cuMemcpy2D_v2(const void* rows) { return copy_rows(static_cast<const Copy2D*>(rows), nullptr, true); }
EPL_DRIVER cuMemcpy2DAsync_v2(const void* rows, void* stream) {
  return copy_rows(static_cast<const Copy2D*>(rows), stream, false);
}

EPL_DRIVER cuMemsetD8_v2(uint64_t to, unsigned char value, size_t count) {
  return fill(to, value, 1, count, nullptr, false);
}
EPL_DRIVER cuMemsetD16_v2(uint64_t to, unsigned short value, size_t count) {
  return fill(to, value, 2, count, nullptr, false);
}
EPL_DRIVER cuMemsetD32_v2(uint64_t to, unsigned value, size_t count) {
  return fill(to, value, 4, count, nullptr, false);
}
EPL_DRIVER cuMemsetD8Async(uint64_t to, unsigned char value, size_t count, void* stream) {
  return fill(to, value, 1, count, stream, false);
}
EPL_DRIVER cuMemsetD16Async(uint64_t to, unsigned short value, size_t count, void* stream) {
  return fill(to, value, 2, count, stream, false);
}
EPL_DRIVER cuMemsetD32Async(uint64_t to, unsigned value, size_t count, void* stream) {
  return fill(to, value, 4, count, stream, false);
}
