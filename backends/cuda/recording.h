// What a stream was given once, as a graph of the driver that is launched again.
//
// A graph keeps the parameters of its kernels. So a kernel that reads where the step stands is given a block of the
// recording's own, and a kernel in front of it writes that block from what the device has of the current step.
#pragma once

#include <memory>

#include "backends/cuda/gpu.h"

namespace epl::cuda {

// Made and ended by a stream (GpuStream::begin_recording), and gone before it.
class GpuRecording {
 public:
  explicit GpuRecording(std::shared_ptr<Gpu> on) : gpu(std::move(on)) {}
  ~GpuRecording();
  GpuRecording(const GpuRecording&) = delete;
  GpuRecording& operator=(const GpuRecording&) = delete;

  Status launch(const GpuStream& stream) const;

  const std::shared_ptr<Gpu> gpu;
  ExecutableHandle executable = nullptr;
  Address block = 0;    // of a StepBlock
  StepBlock written{};  // what the commands so far have written there, but for the seed and the step
  bool has_written = false;
};

}  // namespace epl::cuda
