// Where the time of a step goes: runs a case's training steps on the CPU and measures every launch.
//
//   epl_profile CASE [--threads N] [--steps N] [--nodes] [--strategy JSON] [--processor v3|v4]
//
// CASE is a folder with model.onnx and train.safetensors, as for `epl check`; the optimizer is AdamW. --processor hides
// what a processor has beyond that level. Prints, per kernel (or with --nodes per node), calls a step, the smallest
// wall time seen for each summed, its share, and the rates that the ops' own costs give: GF/s of floating-point
// operations, GB/s of operands read and results written once. The smallest and not the mean: other work of the machine
// only adds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/cpu/cpu.h"
#include "core/base/memory.h"
#include "core/compile/compiled_plan.h"
#include "core/compile/plan_memory.h"
#include "core/formats/safetensors.h"
#include "core/runtime/executor.h"

namespace epl {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Host make_host(int threads) {
  return {.seconds = now,
          .allocate = allocate_memory,
          .release = [](void* memory, size_t, size_t) { release_memory(memory); },
          .log = [](LogLevel, std::string_view) {},
          .threads = threads,
          .spare_processors = true};
}

// A stream that times what goes through it. Copies and uploads are timed together.
class TimedStream final : public Stream {
 public:
  struct Sample {
    const KernelRow* row = nullptr;  // null: copies
    const KernelQuery* query = nullptr;
    double seconds = 1e9;
  };

  explicit TimedStream(Stream& stream) : stream_(stream) {}

  void begin_step() { at_ = 0; }
  void forget() { samples_.clear(); }
  const std::vector<Sample>& samples() const { return samples_; }

  void launch(const KernelRow& row, const KernelQuery& query, const void* state, const void* const* inputs,
              void* const* outputs, void* workspace, const StepContext& context) override {
    timed(&row, &query, [&] { stream_.launch(row, query, state, inputs, outputs, workspace, context); });
  }
  void copy(void* target, const void* source, int64_t bytes) override {
    timed(nullptr, nullptr, [&] { stream_.copy(target, source, bytes); });
  }
  void copy_rows(const RowCopy& rows) override {
    timed(nullptr, nullptr, [&] { stream_.copy_rows(rows); });
  }
  void fill(void* target, int64_t bytes, uint8_t value) override {
    timed(nullptr, nullptr, [&] { stream_.fill(target, bytes, value); });
  }
  void upload(void* target, const void* source, int64_t bytes) override {
    timed(nullptr, nullptr, [&] { stream_.upload(target, source, bytes); });
  }
  void download(void* target, const void* source, int64_t bytes) override {
    timed(nullptr, nullptr, [&] { stream_.download(target, source, bytes); });
  }
  void record(Event& event) override { stream_.record(event); }
  void wait(Event& event) override { stream_.wait(event); }
  Status synchronize() override { return stream_.synchronize(); }
  HostStream* host() override { return stream_.host(); }

 private:
  // Every step issues the same commands in the same order, so a command is known by its number.
  template <class F> void timed(const KernelRow* row, const KernelQuery* query, F f) {
    if (at_ == samples_.size()) samples_.push_back({row, query});
    Sample& sample = samples_[at_++];
    const double begin = now();
    f();
    sample.seconds = std::min(sample.seconds, now() - begin);
  }

  Stream& stream_;
  std::vector<Sample> samples_;
  size_t at_ = 0;
};

struct Options {
  std::string folder, strategy = "{}", processor;
  int threads = 2, steps = 5;
  bool nodes = false;
};

struct Batch {
  std::vector<Tensor> tensors;
  std::vector<const void*> pointers;
};

// The first step's piece of a tensor [steps, ...].
Tensor first_of(const Tensor& all) {
  Shape shape(all.type().shape.begin() + 1, all.type().shape.end());
  Tensor piece(TensorType{all.dtype(), shape});
  std::memcpy(piece.data(), all.data(), static_cast<size_t>(piece.bytes()));
  return piece;
}

Result<std::map<std::string, Tensor>> read_batch(const std::string& folder) {
  EPL_ASSIGN(auto file, Safetensors::open(folder + "/train.safetensors"));
  std::map<std::string, Tensor> batch;
  for (const SafetensorsEntry& entry : file->entries()) {
    const bool input = entry.name.starts_with("input.");
    EPL_ASSIGN(Tensor all, file->tensor(entry).load());
    batch[input ? entry.name.substr(6) : entry.name] = first_of(all);
  }
  return batch;
}

void print(const TimedStream& stream, const Options& options, double step_seconds) {
  struct Row {
    double seconds = 0, flops = 0, bytes = 0;
    int calls = 0;
  };
  std::map<std::string, Row> rows;
  double total = 0;
  for (const TimedStream::Sample& sample : stream.samples()) {
    std::string name = "copies";
    if (sample.row) name = cat(sample.query->op, ".", sample.row->name);
    if (sample.row && options.nodes) {
      name = cat(name, " ", sample.query->node);
      for (int i = 0; i < sample.query->inputs(); ++i) name += cat(" ", sample.query->in(i).text());
      name += cat(" units=", sample.query->units.count);
    }
    Row& row = rows[name];
    row.seconds += sample.seconds;
    row.calls += 1;
    if (sample.query) {
      row.flops += sample.query->flops;
      row.bytes += sample.query->bytes;
    }
    total += sample.seconds;
  }
  std::vector<std::pair<std::string, Row>> order(rows.begin(), rows.end());
  std::ranges::sort(order, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::printf("%s, %d threads: fastest step %.3f ms, launches %.3f ms\n", options.folder.c_str(), options.threads,
              step_seconds * 1e3, total * 1e3);
  std::printf("| kernel | calls | ms | share | GF/s | GB/s |\n|---|---|---|---|---|---|\n");
  for (const auto& [name, row] : order) {
    if (row.seconds < 0.002 * total) break;
    std::printf("| %s | %d | %.3f | %.1f %% | %.1f | %.1f |\n", name.c_str(), row.calls, row.seconds * 1e3,
                100 * row.seconds / total, row.flops / row.seconds * 1e-9, row.bytes / row.seconds * 1e-9);
  }
}

Status profile(const Options& options) {
  EPL_ASSIGN(auto model, load_model(options.folder + "/model.onnx"));
  EPL_ASSIGN(auto batch, read_batch(options.folder));
  const Host host = make_host(options.threads);
  PlanOptions wanted;
  EPL_ASSIGN(wanted.strategy, parse_strategy(options.strategy));
  wanted.model = model;
  wanted.train.optimizer = "adamw";
  wanted.train.optimizer_options = {{"lr", 1e-4}};
  wanted.evaluate = wanted.predict = false;
  for (const ModelPort& port : model->inputs()) {
    const auto found = batch.find(port.name);
    if (found == batch.end()) return invalid("train.safetensors has no input.", port.name);
    wanted.binding.input_shapes[port.name] = found->second.type().shape;
  }
  EPL_ASSIGN(auto plan, CompiledPlan::create(host, wanted));
  const Program& program = plan->entry(EntryKind::train)->programs[0];
  Device& device = *plan->device();
  EPL_ASSIGN(auto stream, device.create_stream(options.threads));
  TimedStream timed(*stream);
  EPL_ASSIGN(auto store, ParameterStore::create(device, *stream, plan->state(), plan->mesh(0), 0));
  EPL_ASSIGN(auto arenas, allocate_each(device, PlanMemory(*plan).arenas(0)));
  EPL_ASSIGN(auto executor, Executor::create(host, device, timed, program, 0, store, arenas, plan->mesh(0), 0));
  timed.forget();  // what creation uploaded is not part of a step
  std::vector<const void*> inputs;
  for (const auto& port : program.inputs) {
    const auto found = batch.find(port.name);
    if (found == batch.end() || found->second.type() != port.global_type) {
      return invalid("train.safetensors has no ", port.name, " of type ", port.global_type.text());
    }
    inputs.push_back(found->second.data());
  }
  std::vector<Tensor> results;
  std::vector<void*> outputs;
  for (const auto& port : program.outputs) results.emplace_back(port.global_type);
  for (Tensor& result : results) outputs.push_back(result.data());
  double fastest = 1e9;
  std::vector<uint64_t> scalars;
  for (int step = 0; step < options.steps; ++step) {
    timed.begin_step();
    plan->scalars(*plan->entry(EntryKind::train), {.step = step}, scalars);
    const double begin = now();
    EPL_TRY(executor->run({.inputs = inputs, .outputs = outputs, .scalars = scalars, .seed = 1, .step = step}));
    if (step > 0) fastest = std::min(fastest, now() - begin);
  }
  print(timed, options, fastest);
  return {};
}

}  // namespace
}  // namespace epl

int main(int argc, char** argv) {
  epl::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--nodes") {
      options.nodes = true;
    } else if ((argument == "--threads" || argument == "--steps") && i + 1 < argc) {
      (argument == "--threads" ? options.threads : options.steps) = std::atoi(argv[++i]);
    } else if ((argument == "--strategy" || argument == "--processor") && i + 1 < argc) {
      (argument == "--strategy" ? options.strategy : options.processor) = argv[++i];
    } else if (options.folder.empty() && !argument.starts_with("-")) {
      options.folder = argument;
    } else {
      options.folder.clear();
      break;
    }
  }
  if (options.folder.empty() || options.threads < 1 || options.steps < 2) {
    std::fprintf(stderr,
                 "usage: epl_profile CASE [--threads N] [--steps N, at least 2] [--nodes]"
                 " [--strategy JSON] [--processor v3|v4]\n");
    return 2;
  }
  std::optional<epl::cpu::ScopedCpuLevel> level;
  if (!options.processor.empty())
    level.emplace(options.processor == "v3" ? epl::cpu::CpuLevel::v3 : epl::cpu::CpuLevel::v4);
  if (const epl::Status status = epl::profile(options); !status.ok()) {
    std::fprintf(stderr, "epl_profile: %s\n", status.to_string().c_str());
    return 1;
  }
  return 0;
}
