#include "backends/cuda/gpu.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "backends/cuda/api/nvrtc.h"
#include "backends/cuda/compiler.h"
#include "backends/cuda/listing.h"
#include "backends/cuda/recording.h"

namespace epl::cuda {
namespace {

constexpr unsigned free_shared_bytes = 48 << 10;  // more has to be asked for

// Behind these a context carries out nothing more.
constexpr DriverCode lost_codes[] = {code_device_unavailable,
                                     code_uncorrectable,
                                     code_illegal_address,
                                     code_launch_timeout,
                                     code_context_destroyed,
                                     code_assert,
                                     code_stack_error,
                                     code_illegal_instruction,
                                     code_misaligned_address,
                                     code_invalid_address_space,
                                     code_invalid_program_count,
                                     code_launch_failed,
                                     code_unknown};
bool is_lost(DriverCode code) { return std::ranges::find(lost_codes, code) != std::end(lost_codes); }

struct Open {
  std::mutex mutex;
  // By ordinal and the folders of libraries and of compiled kernels.
  std::map<std::tuple<int, std::string, std::string>, std::weak_ptr<Gpu>> gpus;
};
Open& open_gpus() {
  static Open all;
  return all;
}

}  // namespace

Status check(const Driver& driver, DriverCode code, const char* call) {
  if (code == code_success) return {};
  const Code kind = code == code_out_of_memory ? Code::out_of_memory
                    : is_lost(code)            ? Code::state_lost
                                               : Code::exhausted;
  return error(kind, call, " gave ", driver.text(code));
}

Status check(const BlasLt& library, BlasCode code, const char* call) {
  if (code == blas_success) return {};
  const Code kind = code == blas_alloc_failed                                  ? Code::out_of_memory
                    : code == blas_not_supported || code == blas_arch_mismatch ? Code::unsupported
                    : code == blas_execution_failed                            ? Code::state_lost
                                                                               : Code::exhausted;
  return error(kind, call, " gave ", library.text(code));
}

Status check(const Dnn& library, DnnCode code, const char* call) {
  if (code == dnn_success) return {};
  const auto is_of = [&](DnnCode group) { return code / 1000 == group / 1000; };
  const Code kind = code == dnn_no_host_memory || code == dnn_no_device_memory ? Code::out_of_memory
                    : is_of(dnn_not_supported)                                 ? Code::unsupported
                    : is_of(dnn_execution_failed)                              ? Code::state_lost
                                                                               : Code::exhausted;
  return error(kind, call, " gave ", library.text(code));
}

Result<std::shared_ptr<Gpu>> Gpu::open(const std::string& libraries, const std::string& cache_folder, int ordinal) {
  EPL_ASSIGN(const Driver* driver, open_driver(libraries));
  const std::lock_guard lock(open_gpus().mutex);
  std::weak_ptr<Gpu>& known = open_gpus().gpus[{ordinal, libraries, cache_folder}];
  if (std::shared_ptr<Gpu> gpu = known.lock()) return gpu;
  Ordinal device = 0;
  EPL_TRY(check(*driver, driver->device(&device, ordinal), "cuDeviceGet"));
  std::shared_ptr<Gpu> gpu(new Gpu(*driver, libraries, KernelCache::of(cache_folder), device));
  EPL_TRY(gpu->begin());
  EPL_TRY(open_nvrtc(libraries).status());  // that it is missing is said before a plan is made
  known = gpu;
  return gpu;
}

Status Gpu::begin() {
  int major = 0, minor = 0;
  EPL_TRY(check(driver, driver.device_attribute(&major, attribute_capability_major, device), "cuDeviceGetAttribute"));
  EPL_TRY(check(driver, driver.device_attribute(&minor, attribute_capability_minor, device), "cuDeviceGetAttribute"));
  EPL_TRY(check(driver, driver.device_attribute(&processors, attribute_processors, device), "cuDeviceGetAttribute"));
  capability = 10 * major + minor;
  char name[128] = "";
  EPL_TRY(check(driver, driver.device_name(name, sizeof name, device), "cuDeviceGetName"));
  EPL_TRY(check_capability(name, capability));
  return check(driver, driver.retain_primary(&context_, device), "cuDevicePrimaryCtxRetain");
}

Gpu::~Gpu() {
  if (context_ == nullptr) return;
  {
    const Current current(*this);
    if (clock_begin_ != nullptr) driver.destroy_event(clock_begin_);
    if (blas_.handle != nullptr) blas_.library->destroy(blas_.handle);
    if (convolving_.handle != nullptr) convolving_.library->destroy(convolving_.handle);
    for (const auto& [source, loaded] : modules_)
      if (loaded->module != nullptr) driver.unload_module(loaded->module);
  }
  driver.release_primary(device);
}

Gpu::Current::Current(const Gpu& gpu)
    : gpu_(gpu), status_(check(gpu.driver, gpu.driver.push(gpu.context_), "cuCtxPushCurrent")) {}

Gpu::Current::~Current() {
  Context popped = nullptr;
  if (status_.ok()) gpu_.driver.pop(&popped);
}

Status Gpu::reach(const Gpu& other) const {
  int can = 0;
  EPL_TRY(check(driver, driver.can_reach(&can, device, other.device), "cuDeviceCanAccessPeer"));
  if (can == 0) return unsupported("the driver has no way between GPU ", device, " and GPU ", other.device);
  const Current current(*this);
  EPL_TRY(current.status());
  const DriverCode code = driver.reach(other.context_, 0);
  // The host program may have asked for it before.
  return code == code_peer_enabled ? Status() : check(driver, code, "cuCtxEnablePeerAccess");
}

Result<Module> Gpu::module(const std::string& source) {
  std::shared_ptr<Loaded> loaded;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Loaded>& known = modules_[source];
    if (!known) known = std::make_shared<Loaded>();
    loaded = known;
  }
  std::call_once(loaded->once, [&] {
    const auto text = compile(libraries, cache.get(), capability, source);
    loaded->status = text.status();
    if (!text.ok()) return;
    loaded->status = call("cuModuleLoadData", [&] { return driver.load_module(&loaded->module, (*text)->c_str()); });
  });
  EPL_TRY(loaded->status);
  return loaded->module;
}

Result<Function> Gpu::function(const std::string& source, const std::string& entry, unsigned shared_bytes) {
  EPL_ASSIGN(const Module of, module(source));
  Function function = nullptr;
  EPL_TRY(call("cuModuleGetFunction", [&] { return driver.module_function(&function, of, entry.c_str()); }));
  if (shared_bytes > free_shared_bytes) {
    EPL_TRY(call("cuFuncSetAttribute", [&] {
      return driver.set_function_attribute(function, function_attribute_shared_bytes, static_cast<int>(shared_bytes));
    }));
  }
  return function;
}

Result<Gpu::Blas> Gpu::blas() {
  const std::lock_guard lock(mutex_);
  if (blas_.handle != nullptr) return blas_;
  EPL_ASSIGN(const BlasLt* library, open_blas_lt(libraries));
  const Current current(*this);
  EPL_TRY(current.status());
  Blas made{.library = library};
  EPL_TRY(check(*library, library->create(&made.handle), "cublasLtCreate"));
  blas_ = made;
  return blas_;
}

Result<Gpu::Convolving> Gpu::convolving() {
  const std::lock_guard lock(mutex_);
  if (convolving_.handle != nullptr) return convolving_;
  EPL_ASSIGN(const Dnn* library, open_dnn(libraries));
  const Current current(*this);
  EPL_TRY(current.status());
  Convolving made{.library = library, .calls = &convolving_calls_};
  EPL_TRY(check(*library, library->create(&made.handle), "cudnnCreate"));
  convolving_ = made;
  return convolving_;
}

Result<EventHandle> Gpu::clock_begin(StreamHandle on) {
  const std::lock_guard lock(mutex_);
  if (clock_begin_ != nullptr) return clock_begin_;
  EventHandle made = nullptr;
  EPL_TRY(call("cuEventCreate", [&] { return driver.create_event(&made, event_with_timing); }));
  Status passed = call("cuEventRecord", [&] { return driver.record(made, on); });
  if (passed.ok()) passed = call("cuStreamSynchronize", [&] { return driver.synchronize(on); });
  if (!passed.ok()) {
    const Current current(*this);
    driver.destroy_event(made);
    return passed;
  }
  clock_begin_ = made;
  return clock_begin_;
}

Result<std::unique_ptr<GpuStream>> GpuStream::make(std::shared_ptr<Gpu> gpu) {
  auto stream = std::make_unique<GpuStream>(std::move(gpu));
  const Driver& driver = stream->gpu->driver;
  EPL_TRY(
      stream->gpu->call("cuStreamCreate", [&] { return driver.create_stream(&stream->handle, stream_non_blocking); }));
  EPL_TRY(stream->gpu->call("cuMemAlloc", [&] { return driver.allocate(&stream->step_memory_, sizeof(StepBlock)); }));
  return stream;
}

GpuStream::GpuStream(std::shared_ptr<Gpu> on) : gpu(std::move(on)) {}

GpuStream::~GpuStream() {
  if (recording_ != nullptr) static_cast<void>(end_recording());
  const Gpu::Current current(*gpu);
  if (handle != nullptr) gpu->driver.destroy_stream(handle);
  for (const Stamp& stamp : stamps_) gpu->driver.destroy_event(stamp.event);
  for (EventHandle event : passed_) gpu->driver.destroy_event(event);
  if (owns_last_) gpu->driver.destroy_event(last_);
  if (step_memory_ != 0) gpu->driver.release(step_memory_);
}

Status GpuStream::launch(Function function, const Launch& how, std::span<const uint64_t> values) const {
  if (std::ranges::find(how.grid, 0u) != how.grid.end()) return {};
  void* parameters[max_arguments];
  if (values.size() > max_arguments) return invalid("a kernel of ", values.size(), " arguments");
  for (size_t i = 0; i < values.size(); ++i) parameters[i] = const_cast<uint64_t*>(&values[i]);
  return gpu->call("cuLaunchKernel", [&] {
    return gpu->driver.launch(function, how.grid[0], how.grid[1], how.grid[2], how.block[0], how.block[1], how.block[2],
                              how.shared_bytes, handle, parameters, nullptr);
  });
}

// The copy is behind what was launched with the block before, which still reads that.
Result<Address> GpuStream::step(const StepBlock& step, Address numbers) {
  if (recording_ != nullptr) return recorded_step(step, numbers);
  // A graph would keep what this memory has in this step.
  int captured = capture_none;
  EPL_TRY(gpu->call("cuStreamIsCapturing", [&] { return gpu->driver.capturing(handle, &captured); }));
  if (captured != capture_none) return unsupported("a kernel draws beside the stream on which the recording began");
  if (has_step_ && step_ == step) return step_memory_;
  has_step_ = false;
  EPL_TRY(gpu->call("cuMemcpyHtoDAsync", [&] { return gpu->driver.upload(step_memory_, &step, sizeof step, handle); }));
  step_ = step;
  has_step_ = true;
  return step_memory_;
}

Status GpuStream::stamp(double* seconds) {
  if (last_ == nullptr) {
    EPL_ASSIGN(last_, gpu->clock_begin(handle));
  }
  EventHandle event = nullptr;
  if (passed_.empty()) {
    EPL_TRY(gpu->call("cuEventCreate", [&] { return gpu->driver.create_event(&event, event_with_timing); }));
  } else {
    event = passed_.back();
    passed_.pop_back();
  }
  stamps_.push_back({event, seconds});
  return gpu->call("cuEventRecord", [&] { return gpu->driver.record(event, handle); });
}

// From the stamp before: the driver's difference has the 24 bits of a float.
Status GpuStream::read(const Stamp& stamp) {
  float milliseconds = 0;
  EPL_TRY(gpu->call("cuEventElapsedTime", [&] { return gpu->driver.elapsed(&milliseconds, last_, stamp.event); }));
  last_seconds_ += double{milliseconds} * 1e-3;
  *stamp.seconds = last_seconds_;
  if (owns_last_) passed_.push_back(last_);
  last_ = stamp.event;
  owns_last_ = true;
  return {};
}

Status GpuStream::synchronize() {
  Status status = gpu->call("cuStreamSynchronize", [&] { return gpu->driver.synchronize(handle); });
  for (const Stamp& stamp : stamps_) {
    if (status.ok()) status = read(stamp);
    if (!status.ok()) passed_.push_back(stamp.event);
  }
  stamps_.clear();
  return status;
}

Status GpuStream::copy_between(const Gpu& to, Address target, const Gpu& from, Address source, uint64_t bytes) const {
  return gpu->call("cuMemcpyPeerAsync", [&] {
    return gpu->driver.copy_between(target, to.context(), source, from.context(), bytes, handle);
  });
}

Launch over_elements(std::string source, std::string entry, int64_t n) {
  constexpr int64_t threads = 256, most_blocks = 1 << 20;
  const int64_t blocks = std::min((n + threads - 1) / threads, most_blocks);
  return {.source = std::move(source),
          .entry = std::move(entry),
          .grid = {static_cast<unsigned>(blocks), 1, 1},
          .block = {static_cast<unsigned>(threads), 1, 1},
          .shared_bytes = 0,
          .arguments = {}};
}

namespace {

constexpr const char* rows_text = R"(
template <class T>
__device__ void copy_rows(T* target, long long target_step, const T* source, long long source_step, long long width,
                          long long rows) {
  const long long n = width * rows, stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    const long long row = i / width, at = i % width;
    target[row * target_step + at] = source[row * source_step + at];
  }
}
extern "C" __global__ void copy_rows_1(unsigned char* target, long long target_step, const unsigned char* source,
                                       long long source_step, long long width, long long rows) {
  copy_rows(target, target_step, source, source_step, width, rows);
}
extern "C" __global__ void copy_rows_4(unsigned int* target, long long target_step, const unsigned int* source,
                                       long long source_step, long long width, long long rows) {
  copy_rows(target, target_step, source, source_step, width, rows);
}
)";

}  // namespace

std::vector<Launch> copy_rows_launches() {
  return {over_elements(rows_text, "copy_rows_4", 1), over_elements(rows_text, "copy_rows_1", 1)};
}

Status GpuStream::copy_rows(Address target, int64_t target_step, Address source, int64_t source_step, int64_t bytes,
                            int64_t rows) const {
  const uint64_t all = target | source | static_cast<uint64_t>(target_step | source_step | bytes);
  const int64_t word = all % 4 == 0 ? 4 : 1;
  const Launch how = over_elements(rows_text, word == 4 ? "copy_rows_4" : "copy_rows_1", bytes / word * rows);
  EPL_ASSIGN(const Function function, gpu->function(how.source, how.entry, 0));
  const uint64_t values[] = {target,
                             static_cast<uint64_t>(target_step / word),
                             source,
                             static_cast<uint64_t>(source_step / word),
                             static_cast<uint64_t>(bytes / word),
                             static_cast<uint64_t>(rows)};
  return launch(function, how, values);
}

}  // namespace epl::cuda
