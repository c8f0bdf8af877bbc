// A handle of a device is a Target, one of a stream a GpuStream, one of an event an Event, one of memory its address.
#include "backends/cuda/verbs.h"

#include <utility>

#include "backends/cuda/ahead.h"
#include "backends/cuda/answer.h"
#include "backends/cuda/circle.h"
#include "backends/cuda/compiler.h"
#include "backends/cuda/foreign.h"
#include "backends/cuda/gpu.h"
#include "backends/cuda/listing.h"
#include "backends/cuda/own_texts.h"
#include "backends/cuda/recording.h"
#include "backends/cuda/reduce.h"
#include "backends/cuda/target.h"

namespace epl::cuda {
namespace {

using Shared = std::shared_ptr<Gpu>;

struct Event {
  Shared gpu;
  EventHandle handle = nullptr;
};

// Of a target that was made to plan with there is none.
Result<Shared> gpu_of(void* device) {
  const Target& target = *static_cast<Target*>(device);
  if (target.gpu == nullptr) return unsupported("this device was made to plan with, and no GPU is open");
  return target.gpu;
}
GpuStream& stream_of(void* stream) { return *static_cast<GpuStream*>(stream); }
Address address(const void* memory) { return reinterpret_cast<Address>(memory); }
std::string folder_of(const epl_pack_home* home) { return home->libraries == nullptr ? "" : home->libraries; }
std::string cache_of(const epl_pack_home* home) {
  return home->struct_size < sizeof *home || home->kernels == nullptr ? "" : home->kernels;
}

int32_t count(const epl_pack_home* home, const epl_pack_reason* failure) noexcept {
  int devices = 0;
  const int32_t result = answered(failure, [&]() -> Status {
    EPL_ASSIGN(const Driver* driver, open_driver(folder_of(home)));
    return check(*driver, driver->device_count(&devices), "cuDeviceGetCount");
  });
  return result == 0 ? devices : result;
}

int32_t describe(const epl_pack_home* home, int32_t ordinal, epl_pack_device_facts* facts,
                 const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status { return describe_gpu(folder_of(home), ordinal, *facts); });
}

int32_t library(const epl_pack_home* home, int32_t index, epl_pack_library* library,
                const epl_pack_reason* failure) noexcept {
  return answered(failure, [&] { return describe_library(folder_of(home), index, *library); });
}

int32_t between(const epl_pack_home* home, int32_t ordinal, int32_t other, const epl_pack_reason* joined,
                const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    EPL_ASSIGN(const std::string text, joined_by(folder_of(home), ordinal, other));
    write_reason(joined, text.c_str());
    return {};
  });
}

int32_t open(const epl_pack_home* home, int32_t ordinal, void** device, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    EPL_ASSIGN(Shared gpu, Gpu::open(folder_of(home), cache_of(home), ordinal));
    const int capability = gpu->capability, processors = gpu->processors;
    *device = new Target{.gpu = std::move(gpu), .capability = capability, .processors = processors};
    return {};
  });
}

int32_t plan(const epl_pack_device_facts* facts, void** device, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    EPL_TRY(check_capability(facts->name, facts->capability));
    if (facts->processors < 1) return invalid("a GPU of ", facts->processors, " processors");
    auto made = std::make_unique<Target>(
        Target{.gpu = nullptr, .capability = facts->capability, .processors = facts->processors});
    for (const std::string& option : options_for(facts->capability)) made->options += option + '\n';
    *device = made.release();
    return {};
  });
}

int32_t note(void* device, const epl_pack_reason* text) noexcept {
  const Shared& gpu = static_cast<Target*>(device)->gpu;
  if (gpu == nullptr || gpu->cache == nullptr) return 0;
  return answered(text, [&]() -> Status {
    const bool is_news = gpu->cache->is_news();
    if (is_news) return error(Code::exhausted, gpu->cache->note());
    write_reason(text, gpu->cache->note().c_str());
    return {};
  });
}

int32_t text(void* device, const void* kernel, int32_t index, epl_pack_text* text,
             const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    const Target& target = *static_cast<Target*>(device);
    if (text->struct_size < sizeof *text) return unsupported("a struct of an older interface");
    if (target.gpu != nullptr) return unsupported("a GPU has the code of its kernels, and their texts are gone");
    const auto& own = own_launches();
    const Launch* found = kernel != nullptr                          ? text_launch(kernel, index)
                          : index < static_cast<int32_t>(own.size()) ? &own[static_cast<size_t>(index)]
                                                                     : nullptr;
    if (found == nullptr) return error(Code::not_found, "no further text");
    text->entry = found->entry.c_str();
    text->source = found->source.c_str();
    text->options = target.options.c_str();
    text->threads = int64_t{found->block[0]} * found->block[1] * found->block[2];
    text->shared_bytes = found->shared_bytes;
    return {};
  });
}

int32_t add_alike(void* device, void* other, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    Target& target = *static_cast<Target*>(device);
    EPL_ASSIGN(Shared gpu, gpu_of(other));
    if (target.capability != gpu->capability || target.processors != gpu->processors)
      return unsupported("the GPUs are of two kinds: capability ", target.capability, " with ", target.processors,
                         " processors, and ", gpu->capability, " with ", gpu->processors);
    target.alike.push_back(std::move(gpu));
    return {};
  });
}

int32_t reach(void* device, void* other, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    EPL_ASSIGN(const Shared one, gpu_of(device));
    EPL_ASSIGN(const Shared two, gpu_of(other));
    EPL_TRY(one->reach(*two));
    return two->reach(*one);
  });
}

void close(void* device) noexcept {
  delete static_cast<Target*>(device);
  settle_ahead();
}

int32_t allocate(void* device, uint64_t bytes, void** memory, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    EPL_ASSIGN(const Shared gpu, gpu_of(device));
    Address made = 0;
    const Status status = gpu->call("cuMemAlloc", [&] { return gpu->driver.allocate(&made, bytes); });
    size_t free = 0, total = 0;
    if (status.code() == Code::out_of_memory &&
        gpu->call("cuMemGetInfo", [&] { return gpu->driver.memory_info(&free, &total); }).ok()) {
      return error(Code::out_of_memory, grouped(static_cast<int64_t>(free)), " of its ",
                   grouped(static_cast<int64_t>(total)), " bytes are free");
    }
    *memory = reinterpret_cast<void*>(made);
    return status;
  });
}

void release(void* device, void* memory) noexcept {
  const Gpu& gpu = *static_cast<Target*>(device)->gpu;  // which gave the memory
  const Gpu::Current current(gpu);
  gpu.driver.release(address(memory));
}

int32_t allocate_host(void* device, uint64_t bytes, void** memory, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    EPL_ASSIGN(const Shared gpu, gpu_of(device));
    return gpu->call("cuMemHostAlloc", [&] { return gpu->driver.allocate_host(memory, bytes, 0); });
  });
}

void release_host(void* device, void* memory) noexcept {
  const Gpu& gpu = *static_cast<Target*>(device)->gpu;  // which gave the memory
  const Gpu::Current current(gpu);
  gpu.driver.release_host(memory);
}

int32_t create_stream(void* device, void** stream, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    EPL_ASSIGN(Shared gpu, gpu_of(device));
    EPL_ASSIGN(std::unique_ptr<GpuStream> made, GpuStream::make(std::move(gpu)));
    *stream = made.release();
    return {};
  });
}

void destroy_stream(void* stream) noexcept { delete static_cast<GpuStream*>(stream); }

int32_t create_event(void* device, void** event, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    EPL_ASSIGN(Shared on, gpu_of(device));
    auto made = std::make_unique<Event>(Event{.gpu = std::move(on)});
    const Gpu& gpu = *made->gpu;
    EPL_TRY(gpu.call("cuEventCreate", [&] { return gpu.driver.create_event(&made->handle, event_without_timing); }));
    *event = made.release();
    return {};
  });
}

void destroy_event(void* event) noexcept {
  const std::unique_ptr<Event> gone(static_cast<Event*>(event));
  const Gpu::Current current(*gone->gpu);
  gone->gpu->driver.destroy_event(gone->handle);
}

// One call of the driver as a command of a stream.
template <class F>
int32_t command(void* stream, const char* name, const epl_pack_reason* failure, const F& f) noexcept {
  const GpuStream& on = stream_of(stream);
  return answered(failure, [&] { return on.gpu->call(name, [&] { return f(on.gpu->driver, on.handle); }); });
}

int32_t copy(void* stream, void* target, const void* source, uint64_t bytes, const epl_pack_reason* failure) noexcept {
  return command(stream, "cuMemcpyDtoDAsync", failure, [&](const Driver& driver, StreamHandle on) {
    return driver.copy(address(target), address(source), bytes, on);
  });
}

int32_t copy_between(void* stream, void* target_device, void* target, void* source_device, const void* source,
                     uint64_t bytes, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    EPL_ASSIGN(const Shared to, gpu_of(target_device));
    EPL_ASSIGN(const Shared from, gpu_of(source_device));
    return stream_of(stream).copy_between(*to, address(target), *from, address(source), bytes);
  });
}

int32_t copy_rows(void* stream, const epl_pack_rows* rows, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&] {
    return stream_of(stream).copy_rows(address(rows->target), rows->target_step, address(rows->source),
                                       rows->source_step, rows->bytes, rows->rows);
  });
}

int32_t fill(void* stream, void* target, uint64_t bytes, int32_t value, const epl_pack_reason* failure) noexcept {
  return command(stream, "cuMemsetD8Async", failure, [&](const Driver& driver, StreamHandle on) {
    return driver.fill(address(target), static_cast<unsigned char>(value), bytes, on);
  });
}

int32_t upload(void* stream, void* target, const void* source, uint64_t bytes,
               const epl_pack_reason* failure) noexcept {
  return command(stream, "cuMemcpyHtoDAsync", failure, [&](const Driver& driver, StreamHandle on) {
    return driver.upload(address(target), source, bytes, on);
  });
}

int32_t download(void* stream, void* target, const void* source, uint64_t bytes,
                 const epl_pack_reason* failure) noexcept {
  return command(stream, "cuMemcpyDtoHAsync", failure, [&](const Driver& driver, StreamHandle on) {
    return driver.download(target, address(source), bytes, on);
  });
}

int32_t reduce(void* stream, const epl_pack_reduction* reduction, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&] { return reduce_ranks(stream_of(stream), *reduction); });
}

int32_t record(void* stream, void* event, const epl_pack_reason* failure) noexcept {
  return command(stream, "cuEventRecord", failure, [&](const Driver& driver, StreamHandle on) {
    return driver.record(static_cast<Event*>(event)->handle, on);
  });
}

int32_t wait(void* stream, void* event, const epl_pack_reason* failure) noexcept {
  return command(stream, "cuStreamWaitEvent", failure, [&](const Driver& driver, StreamHandle on) {
    return driver.wait(on, static_cast<Event*>(event)->handle, 0);
  });
}

int32_t synchronize(void* stream, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&] { return stream_of(stream).synchronize(); });
}

int32_t stamp(void* stream, double* seconds, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&] { return stream_of(stream).stamp(seconds); });
}

int32_t begin_recording(void* stream, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&] { return stream_of(stream).begin_recording(); });
}

int32_t end_recording(void* stream, void** recording, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    EPL_ASSIGN(std::unique_ptr<GpuRecording> made, stream_of(stream).end_recording());
    *recording = made.release();
    return {};
  });
}

int32_t replay(void* stream, void* recording, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&] { return static_cast<GpuRecording*>(recording)->launch(stream_of(stream)); });
}

void destroy_recording(void* recording) noexcept { delete static_cast<GpuRecording*>(recording); }

int32_t collects(const epl_pack_home* home, const epl_pack_reason* library, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    EPL_ASSIGN(const Nccl* nccl, open_nccl(folder_of(home)));
    write_reason(library, cat("NCCL ", version_text(nccl->version), ", from ", nccl->path).c_str());
    return {};
  });
}

int32_t join_circle(void* const* devices, int32_t count, void** circle, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    std::vector<Shared> gpus;
    for (int32_t i = 0; i < count; ++i) {
      EPL_ASSIGN(gpus.emplace_back(), gpu_of(devices[i]));
    }
    if (gpus.empty()) return invalid("a circle of no GPUs");
    const std::string libraries = gpus.front()->libraries;
    EPL_ASSIGN(std::unique_ptr<Circle> made, Circle::make(libraries, std::move(gpus)));
    *circle = made.release();
    return {};
  });
}

int32_t split_circle(void* circle, const int32_t* places, int32_t count, void** made,
                     const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    EPL_ASSIGN(std::unique_ptr<Circle> part,
               static_cast<Circle*>(circle)->split(std::span(places, static_cast<size_t>(count))));
    *made = part.release();
    return {};
  });
}

int32_t collect(void* circle, const epl_pack_collective* call, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&] { return static_cast<Circle*>(circle)->collect(*call); });
}

int32_t meets(void* device, const epl_pack_reason* card, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    EPL_ASSIGN(const Shared gpu, gpu_of(device));
    EPL_ASSIGN(const std::string text, Circle::card(*gpu));
    write_reason(card, text.c_str());
    return {};
  });
}

int32_t new_id(void* device, void* id, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    EPL_ASSIGN(const Shared gpu, gpu_of(device));
    EPL_ASSIGN(*static_cast<NcclId*>(id), Circle::new_id(*gpu));
    return {};
  });
}

int32_t join_ranks(void* device, const void* id, int32_t ranks, int32_t rank, void** circle,
                   const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    EPL_ASSIGN(Shared gpu, gpu_of(device));
    EPL_ASSIGN(std::unique_ptr<Circle> made,
               Circle::begin(std::move(gpu), *static_cast<const NcclId*>(id), ranks, rank));
    *circle = made.release();
    return {};
  });
}

int32_t circle_done(void* circle, void* stream, const epl_pack_reason* failure) noexcept {
  bool done = false;
  const int32_t result = answered(failure, [&]() -> Status {
    EPL_ASSIGN(done, static_cast<Circle*>(circle)->done(static_cast<GpuStream*>(stream)));
    return {};
  });
  return result != 0 || done ? result : EPL_PACK_BUSY;
}

int32_t record_foreign(void* device, int64_t stream, void* event, const epl_pack_reason* failure) noexcept {
  return answered(failure, [&]() -> Status {
    EPL_ASSIGN(const Shared gpu, gpu_of(device));
    return cuda::record_foreign(*gpu, stream, static_cast<Event*>(event)->handle);
  });
}

int32_t copy_placed(void* stream, void* memory, const void* place, int64_t offset, uint64_t bytes, int32_t to_place,
                    const epl_pack_reason* failure) noexcept {
  return answered(failure, [&] {
    return cuda::copy_placed(stream_of(stream), address(memory), address(place), offset, bytes, to_place != 0);
  });
}

void abort_circle(void* circle) noexcept { static_cast<Circle*>(circle)->abort(); }
void leave_circle(void* circle) noexcept { delete static_cast<Circle*>(circle); }

}  // namespace

const epl_pack_device device_verbs = {.struct_size = sizeof(epl_pack_device),
                                      .count = count,
                                      .describe = describe,
                                      .open = open,
                                      .close = close,
                                      .allocate = allocate,
                                      .release = release,
                                      .create_stream = create_stream,
                                      .destroy_stream = destroy_stream,
                                      .create_event = create_event,
                                      .destroy_event = destroy_event,
                                      .copy = copy,
                                      .copy_rows = copy_rows,
                                      .fill = fill,
                                      .upload = upload,
                                      .download = download,
                                      .reduce = reduce,
                                      .record = record,
                                      .wait = wait,
                                      .synchronize = synchronize,
                                      .stamp = stamp,
                                      .plan = plan,
                                      .library = library,
                                      .between = between,
                                      .note = note,
                                      .text = text,
                                      .add_alike = add_alike,
                                      .reach = reach,
                                      .copy_between = copy_between,
                                      .collects = collects,
                                      .join_circle = join_circle,
                                      .split_circle = split_circle,
                                      .collect = collect,
                                      .abort_circle = abort_circle,
                                      .leave_circle = leave_circle,
                                      .allocate_host = allocate_host,
                                      .release_host = release_host,
                                      .begin_recording = begin_recording,
                                      .end_recording = end_recording,
                                      .replay = replay,
                                      .destroy_recording = destroy_recording,
                                      .meets = meets,
                                      .new_id = new_id,
                                      .join_ranks = join_ranks,
                                      .circle_done = circle_done,
                                      .record_foreign = record_foreign,
                                      .copy_placed = copy_placed};

}  // namespace epl::cuda
