// A GPU and what is made on it. The primary context is used, so that what the host program does with CUDA shares it;
// every call pushes it and pops it again.
//
// Thread safety: of a Gpu all calls; a stream's come from one thread at a time.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/cuda/api/blas_lt.h"
#include "backends/cuda/api/dnn.h"
#include "backends/cuda/api/driver.h"
#include "backends/cuda/kernel.h"
#include "backends/cuda/kernel_cache.h"
#include "core/base/status.h"

namespace epl::cuda {

// What a call of the driver gave.
Status check(const Driver& driver, DriverCode code, const char* call);
// The same of cuBLASLt.
Status check(const BlasLt& library, BlasCode code, const char* call);
// The same of cuDNN.
Status check(const Dnn& library, DnnCode code, const char* call);

class Gpu {
 public:
  // The one of this ordinal, shared with all who have it open with this folder for compiled kernels (kernel_cache.h;
  // empty: none).
  static Result<std::shared_ptr<Gpu>> open(const std::string& libraries, const std::string& cache_folder, int ordinal);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // The context is current for the object's lifetime, in this thread.
  class Current {
   public:
    explicit Current(const Gpu& gpu);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    const Status& status() const { return status_; }

   private:
    const Gpu& gpu_;
    Status status_;
  };
  // f() with the context current: a code of the driver.
  template <class F> Status call(const char* name, const F& f) const {
    const Current current(*this);
    EPL_TRY(current.status());
    return check(driver, f(), name);
  }

  // Lets copies between the memories of both go without that of the host; an error where they cannot.
  Status reach(const Gpu& other) const;

  // A function of a text, which is compiled and loaded when it is first asked for.
  Result<Function> function(const std::string& source, const std::string& entry, unsigned shared_bytes);

  // Where the clock of stamps begins: an event that has passed. The first stream that asks brings it.
  Result<EventHandle> clock_begin(StreamHandle on);

  // Of cuBLASLt, opened when it is first asked for; an error where the library is missing.
  struct Blas {
    const BlasLt* library = nullptr;
    BlasHandle handle = nullptr;
  };
  Result<Blas> blas();
  // The same of cuDNN. The handle has one stream at a time: who executes holds `calls`.
  struct Convolving {
    const Dnn* library = nullptr;
    DnnHandle handle = nullptr;
    std::mutex* calls = nullptr;
  };
  Result<Convolving> convolving();

  const Driver& driver;
  const std::string libraries;
  const std::shared_ptr<KernelCache> cache;  // null: compiled kernels are gone with the process
  const Ordinal device;
  int capability = 0, processors = 0;
  Context context() const { return context_; }

 private:
  Gpu(const Driver& with, std::string folder, std::shared_ptr<KernelCache> kept, Ordinal ordinal)
      : driver(with), libraries(std::move(folder)), cache(std::move(kept)), device(ordinal) {}
  Status begin();
  // A text, compiled and loaded by whoever asks first.
  struct Loaded {
    std::once_flag once;
    Module module = nullptr;
    Status status;
  };
  Result<Module> module(const std::string& source);

  Context context_ = nullptr;
  EventHandle clock_begin_ = nullptr;
  Blas blas_;
  Convolving convolving_;
  std::mutex convolving_calls_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Loaded>> modules_;
};

class GpuRecording;  // backends/cuda/recording.h

class GpuStream {
 public:
  static Result<std::unique_ptr<GpuStream>> make(std::shared_ptr<Gpu> gpu);
  explicit GpuStream(std::shared_ptr<Gpu> on);
  ~GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  // Every value is a parameter of eight bytes.
  Status launch(Function function, const Launch& how, std::span<const uint64_t> values) const;
  // Where `step` lies in device memory for what is launched next. `numbers`: where the device has the seed and the step
  // of each step, or 0; what is recorded reads them there.
  Result<Address> step(const StepBlock& step, Address numbers);
  // What the stream is given from now on becomes nodes of a graph, until the end.
  Status begin_recording();
  Result<std::unique_ptr<GpuRecording>> end_recording();
  // The time at which the stream comes here goes to `seconds` when `synchronize` has waited for it.
  Status stamp(double* seconds);
  Status synchronize();
  // As one command each.
  Status copy_rows(Address target, int64_t target_step, Address source, int64_t source_step, int64_t bytes,
                   int64_t rows) const;
  // From the memory of one GPU to that of another one; this stream is of one of them.
  Status copy_between(const Gpu& to, Address target, const Gpu& from, Address source, uint64_t bytes) const;

  const std::shared_ptr<Gpu> gpu;
  StreamHandle handle = nullptr;

 private:
  struct Stamp {
    EventHandle event;
    double* seconds;
  };
  Status read(const Stamp& stamp);
  Result<Address> recorded_step(const StepBlock& step, Address numbers);

  std::vector<Stamp> stamps_;        // not yet read
  std::vector<EventHandle> passed_;  // events of stamps that were, to be used again
  EventHandle last_ = nullptr;       // the stamp that was read last, or where the clock begins
  bool owns_last_ = false;
  double last_seconds_ = 0;
  Address step_memory_ = 0;
  StepBlock step_{};
  bool has_step_ = false;
  std::unique_ptr<GpuRecording> recording_;  // that goes on
};

// A launch over `n` elements, one after another by a loop in each thread.
Launch over_elements(std::string source, std::string entry, int64_t n);
// The two of `copy_rows`: by words and by bytes.
std::vector<Launch> copy_rows_launches();
// Writes a StepBlock on the device.
Launch step_launch();

}  // namespace epl::cuda
