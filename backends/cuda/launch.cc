// Rows (kernels/rows.h) as libepl.so calls them: prepared, their texts are compiled and loaded; launched, their
// arguments are put together and nothing is allocated.
#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>

#include "backends/cuda/ahead.h"
#include "backends/cuda/answer.h"
#include "backends/cuda/generate/steps.h"
#include "backends/cuda/gpu.h"
#include "backends/cuda/kernels/rows.h"
#include "backends/cuda/library_call.h"
#include "backends/cuda/query.h"
#include "backends/cuda/target.h"
#include "backends/cuda/verbs.h"

namespace epl::cuda {
namespace {

constexpr int capability_without_device = 90, processors_without_device = 132;

using Calls = std::vector<std::unique_ptr<PreparedCall>>;

Result<Calls> prepare_calls(const std::vector<Launch>& launches, const Target* target) {
  Calls calls;
  for (const Launch& launch : launches) {
    EPL_ASSIGN(calls.emplace_back(), prepare_call(launch.call, target));
  }
  return calls;
}

// What the launches of a kernel are on one GPU.
struct OnGpu {
  OnGpu(std::shared_ptr<Gpu> on, Calls of_libraries) : gpu(std::move(on)), calls(std::move(of_libraries)) {}

  const std::shared_ptr<Gpu> gpu;
  Calls calls;                      // by launch; null where it has a text
  std::vector<Function> functions;  // by launch
  std::once_flag once;
  Status status;
};

class Prepared final : public Ahead {
 public:
  // `target` may be null.
  Prepared(Kernel made, Calls calls, const Target* target) : kernel(std::move(made)) {
    // Calls come one after another, so that one range of memory serves all; it lies behind what the row asked for.
    calls_begin = line_aligned(kernel.workspace_bytes);
    for (const std::unique_ptr<PreparedCall>& call : calls)
      if (call) kernel.workspace_bytes = std::max(kernel.workspace_bytes, calls_begin + call->workspace_bytes());
    for (const Kernel::Alias& alias : kernel.aliases) aliases.push_back({alias.input, alias.output});
    if (target == nullptr || target->gpu == nullptr) return;
    gpus_.emplace_back(target->gpu, std::move(calls));
    for (const std::shared_ptr<Gpu>& gpu : target->alike) gpus_.emplace_back(gpu, Calls());
    unloaded_ = static_cast<int>(gpus_.size());
  }
  void begin() override {
    for (OnGpu& on : gpus_) static_cast<void>(ready(on));
  }
  // What the launches are on the GPU of a stream, with all functions, or why there are none.
  Result<const OnGpu*> on(const Gpu* gpu) {
    const auto found = std::ranges::find_if(gpus_, [&](const OnGpu& one) { return one.gpu.get() == gpu; });
    if (found == gpus_.end()) return invalid("prepared for another GPU, or for none");
    EPL_TRY(ready(*found));
    return &*found;
  }

  Kernel kernel;
  int64_t calls_begin = 0;  // the workspace of calls of libraries
  std::vector<epl_pack_alias> aliases;

 private:
  const Status& ready(OnGpu& on) {
    std::call_once(on.once, [&] {
      on.status = load(on);
      if (unloaded_.fetch_sub(1) > 1) return;
      for (Launch& launch : kernel.launches) std::string().swap(launch.source);  // the modules have it
    });
    return on.status;
  }
  Status load(OnGpu& on) const {
    if (on.calls.empty()) {
      const Target own{.gpu = on.gpu, .capability = on.gpu->capability, .processors = on.gpu->processors};
      EPL_ASSIGN(on.calls, prepare_calls(kernel.launches, &own));
    }
    for (const Launch& launch : kernel.launches) {
      if (!std::holds_alternative<std::monostate>(launch.call)) {
        on.functions.push_back(nullptr);
        continue;
      }
      EPL_ASSIGN(const Function function, on.gpu->function(launch.source, launch.entry, launch.shared_bytes));
      on.functions.push_back(function);
    }
    return {};
  }

  std::deque<OnGpu> gpus_;
  std::atomic<int> unloaded_{0};
};
using Handle = std::shared_ptr<Prepared>;

Result<Handle> prepared(const Row& row, const epl_pack_query& given) {
  EPL_ASSIGN(Query query, query_of(given));
  const auto* target = static_cast<const Target*>(given.device);
  query.capability = target == nullptr ? capability_without_device : target->capability;
  query.processors = target == nullptr ? processors_without_device : target->processors;
  EPL_ASSIGN(Kernel kernel, row.make(query));
  for (const Launch& launch : kernel.launches)
    EPL_TRY(require(launch.arguments.size() <= max_arguments, "more operands than a launch takes"));
  EPL_ASSIGN(Calls calls, prepare_calls(kernel.launches, target));
  Handle made = std::make_shared<Prepared>(std::move(kernel), std::move(calls), target);
  if (target != nullptr && target->gpu != nullptr) begin_ahead(made, given.threads);
  return made;
}

void* prepare(const epl_pack_kernel* row, const epl_pack_query* query, epl_pack_needs* needs,
              const epl_pack_reason* refusal) noexcept {
  Handle made;
  const int32_t result = answered(refusal, [&]() -> Status {
    EPL_ASSIGN(made, prepared(*static_cast<const Row*>(row->context), *query));
    return {};
  });
  if (result != 0) return nullptr;
  needs->workspace_bytes = made->kernel.workspace_bytes;
  needs->aliases = made->aliases.data();
  needs->alias_count = static_cast<int64_t>(made->aliases.size());
  return new (std::nothrow) Handle(std::move(made));
}

void destroy(void* kernel) noexcept { delete static_cast<Handle*>(kernel); }

Result<uint64_t> step_of(const epl_pack_call& call, GpuStream& stream) {
  const void* numbers = call.struct_size < sizeof call ? nullptr : call.numbers;
  EPL_ASSIGN(const Address at, stream.step({.seed = call.seed,
                                            .step = call.step,
                                            .first_unit = call.first_unit,
                                            .units = call.units,
                                            .runs = call.runs,
                                            .run_stride = call.run_stride},
                                           reinterpret_cast<Address>(numbers)));
  return uint64_t{at};
}

Result<uint64_t> value_of(const Argument& argument, const epl_pack_call& call, GpuStream& stream) {
  switch (argument.kind) {
    case Argument::Kind::input:
      return reinterpret_cast<uint64_t>(call.inputs[argument.value]);
    case Argument::Kind::output:
      return reinterpret_cast<uint64_t>(call.outputs[argument.value]);
    case Argument::Kind::workspace:
      return reinterpret_cast<uint64_t>(call.workspace) + static_cast<uint64_t>(argument.value);
    case Argument::Kind::step:
      return step_of(call, stream);
    case Argument::Kind::number:
      return static_cast<uint64_t>(argument.value);
    case Argument::Kind::null:
      break;
  }
  return uint64_t{0};
}

Status launch_all(Prepared& prepared, const epl_pack_call& call) {
  auto& stream = *static_cast<GpuStream*>(call.stream);
  EPL_ASSIGN(const OnGpu* on, prepared.on(stream.gpu.get()));
  const std::vector<Launch>& launches = prepared.kernel.launches;
  for (size_t i = 0; i < launches.size(); ++i) {
    const std::vector<Argument>& arguments = launches[i].arguments;
    uint64_t values[max_arguments];
    for (size_t a = 0; a < arguments.size(); ++a) {
      EPL_ASSIGN(values[a], value_of(arguments[a], call, stream));
    }
    const std::span<const uint64_t> given(values, arguments.size());
    if (const PreparedCall* library = on->calls[i].get()) {
      EPL_TRY(library->issue(stream, given,
                             reinterpret_cast<uint64_t>(call.workspace) + static_cast<uint64_t>(prepared.calls_begin)));
    } else {
      EPL_TRY(stream.launch(on->functions[i], launches[i], given));
    }
  }
  return {};
}

int32_t launch(const void* kernel, const epl_pack_call* call) noexcept {
  return answered(call->failure, [&] { return launch_all(**static_cast<const Handle*>(kernel), *call); });
}

// Rows and their types, which live as long as the process.
struct PackRows {
  Rows rows = all_rows();
  std::deque<std::vector<int32_t>> dtypes;
  std::deque<epl_pack_kernel> kernels;
  std::vector<const epl_pack_kernel*> pointers;

  PackRows() {
    for (const Row& row : rows) {
      std::vector<int32_t>& types = dtypes.emplace_back();
      for (const DType dtype : row.dtypes) types.push_back(static_cast<int32_t>(dtype) + 1);
      kernels.push_back({.struct_size = sizeof(epl_pack_kernel),
                         .op = row.op,
                         .name = row.name,
                         .dtypes = types.data(),
                         .dtype_count = types.size(),
                         .prepare = prepare,
                         .destroy = destroy,
                         .launch = launch,
                         .context = &row});
      pointers.push_back(&kernels.back());
    }
  }
};

}  // namespace

const Launch* text_launch(const void* kernel, int index) {
  for (const Launch& launch : (*static_cast<const Handle*>(kernel))->kernel.launches) {
    if (!std::holds_alternative<std::monostate>(launch.call)) continue;
    if (index-- == 0) return &launch;
  }
  return nullptr;
}

const std::vector<const epl_pack_kernel*>& pack_rows() {
  static const PackRows all;
  return all.pointers;
}

}  // namespace epl::cuda
