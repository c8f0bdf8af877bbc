#include "backends/cuda/recording.h"

#include <utility>

namespace epl::cuda {
namespace {

constexpr const char* write_step_text = R"(
extern "C" __global__ void write_step(long long* block, const long long* numbers, long long first_unit, long long units,
                                      long long runs, long long run_stride) {
  block[0] = numbers[0];
  block[1] = numbers[1];
  block[2] = first_unit;
  block[3] = units;
  block[4] = runs;
  block[5] = run_stride;
}
)";

}  // namespace

Launch step_launch() {
  return {.source = write_step_text,
          .entry = "write_step",
          .grid = {1, 1, 1},
          .block = {1, 1, 1},
          .shared_bytes = 0,
          .arguments = {}};
}

GpuRecording::~GpuRecording() {
  const Gpu::Current current(*gpu);
  if (executable != nullptr) gpu->driver.destroy_executable(executable);
  if (block != 0) gpu->driver.release(block);
}

Status GpuRecording::launch(const GpuStream& stream) const {
  if (stream.gpu != gpu) return invalid("recorded on another GPU");
  return gpu->call("cuGraphLaunch", [&] { return gpu->driver.launch_graph(executable, stream.handle); });
}

// What may not be done while a stream is captured is done before.
Status GpuStream::begin_recording() {
  if (recording_ != nullptr) return invalid("the stream is recorded already");
  const Launch how = step_launch();
  EPL_TRY(gpu->function(how.source, how.entry, how.shared_bytes).status());
  auto made = std::make_unique<GpuRecording>(gpu);
  EPL_TRY(gpu->call("cuMemAlloc", [&] { return gpu->driver.allocate(&made->block, sizeof(StepBlock)); }));
  EPL_TRY(gpu->call("cuStreamBeginCapture", [&] { return gpu->driver.begin_capture(handle, capture_of_thread); }));
  recording_ = std::move(made);
  return {};
}

Result<std::unique_ptr<GpuRecording>> GpuStream::end_recording() {
  if (recording_ == nullptr) return invalid("the stream is not recorded");
  std::unique_ptr<GpuRecording> made = std::move(recording_);
  GraphHandle graph = nullptr;
  EPL_TRY(gpu->call("cuStreamEndCapture", [&] { return gpu->driver.end_capture(handle, &graph); }));
  const Status ready =
      gpu->call("cuGraphInstantiateWithFlags", [&] { return gpu->driver.instantiate(&made->executable, graph, 0); });
  EPL_TRY(gpu->call("cuGraphDestroy", [&] { return gpu->driver.destroy_graph(graph); }));
  EPL_TRY(ready);
  return made;
}

Result<Address> GpuStream::recorded_step(const StepBlock& step, Address numbers) {
  if (numbers == 0) return unsupported("a kernel reads the number of the step, which the device does not have");
  StepBlock place = step;
  place.seed = 0;
  place.step = 0;
  if (recording_->has_written && recording_->written == place) return recording_->block;
  recording_->has_written = false;
  const Launch how = step_launch();
  EPL_ASSIGN(const Function function, gpu->function(how.source, how.entry, how.shared_bytes));
  const uint64_t values[] = {recording_->block,
                             numbers,
                             static_cast<uint64_t>(step.first_unit),
                             static_cast<uint64_t>(step.units),
                             static_cast<uint64_t>(step.runs),
                             static_cast<uint64_t>(step.run_stride)};
  EPL_TRY(launch(function, how, values));
  recording_->written = place;
  recording_->has_written = true;
  return recording_->block;
}

}  // namespace epl::cuda
