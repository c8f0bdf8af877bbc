#include "backends/onednn/kernel.h"

#include <atomic>
#include <cstdio>
#include <new>

namespace epl::onednn {

// One call: what its shares have in common.
struct Kernel::Task {
  const Kernel& kernel;
  Caller& caller;
  const epl_pack_call& call;
  std::atomic<int32_t> failure{0};

  void* at(const Location& location) const {
    void* base = location.kind == Location::Kind::input    ? const_cast<void*>(call.inputs[location.operand])
                 : location.kind == Location::Kind::output ? call.outputs[location.operand]
                                                           : call.workspace;
    return static_cast<char*>(base) + location.bytes;
  }
};

Kernel::Kernel(const Recipes& recipes) {
  for (const Recipe& recipe : recipes.shares()) {
    Share& share = shares_.emplace_back();
    for (const Recipe::Step& step : recipe.steps()) share.push_back({dnnl::primitive(step.what.get()), step.arguments});
  }
  keep_caller(take_caller());  // so that the first call finds one, if there is one rank
}

std::unique_ptr<Kernel::Caller> Kernel::make_caller() const {
  auto caller = std::make_unique<Caller>();
  caller->stream = dnnl::stream(cpu_engine());
  for (const Share& share : shares_) {
    auto& steps = caller->shares.emplace_back();
    for (const Step& step : share) {
      Arguments& made = steps.emplace_back();
      for (const Recipe::Argument& argument : step.arguments) {
        made.memories.push_back(dnnl::memory(argument.desc, cpu_engine(), DNNL_MEMORY_NONE));
        made.list.push_back({argument.role, made.memories.back().get()});
      }
    }
  }
  return caller;
}

std::unique_ptr<Kernel::Caller> Kernel::take_caller() const {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) {
    idle_.reserve(++callers_);  // giving back never allocates
    return make_caller();
  }
  auto caller = std::move(idle_.back());
  idle_.pop_back();
  return caller;
}

void Kernel::keep_caller(std::unique_ptr<Caller> caller) const {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(caller));
}

int32_t Kernel::run(const epl_pack_call& call) const {
  auto caller = take_caller();
  Task task{*this, *caller, call};
  const auto share = [](void* context, int64_t index) {
    auto& one = *static_cast<Task*>(context);
    if (const int32_t failure = run_share(one, static_cast<size_t>(index)); failure != 0) one.failure = failure;
  };
  if (shares_.size() == 1) {
    share(&task, 0);
  } else {
    call.threads->run(call.threads, static_cast<int64_t>(shares_.size()), share, &task);
  }
  keep_caller(std::move(caller));
  return task.failure;
}

int32_t Kernel::run_share(const Task& task, size_t share) {
  const OneThread scope;
  const Share& steps = task.kernel.shares_[share];
  dnnl_stream_t stream = task.caller.stream.get();
  for (size_t s = 0; s < steps.size(); ++s) {
    const Arguments& arguments = task.caller.shares[share][s];
    for (size_t a = 0; a < arguments.list.size(); ++a) {
      const dnnl_status_t status =
          dnnl_memory_set_data_handle_v2(arguments.list[a].memory, task.at(steps[s].arguments[a].location), stream);
      if (status != dnnl_success) return status;
    }
    const dnnl_status_t status = dnnl_primitive_execute(steps[s].primitive.get(), stream,
                                                        static_cast<int>(arguments.list.size()), arguments.list.data());
    if (status != dnnl_success) return status;
  }
  return dnnl_success;  // on the CPU a stream runs a primitive before the call returns
}

void write_reason(const epl_pack_reason* reason) noexcept {
  const auto write = [&](const char* text) {
    if (reason != nullptr && reason->size > 0) std::snprintf(reason->text, reason->size, "%s", text);
  };
  try {
    throw;
  } catch (const Refused& refused) {
    write(refused.reason.c_str());
  } catch (const dnnl::error& e) {
    write(e.status == dnnl_unimplemented ? "oneDNN has no primitive for it on this processor" : e.what());
  } catch (const std::bad_alloc&) {
    write("out of memory");
  } catch (const std::exception& e) {
    write(e.what());
  } catch (...) {
    write("unknown failure");
  }
}

void destroy(void* kernel) noexcept { delete static_cast<Kernel*>(kernel); }

int32_t launch(const void* kernel, const epl_pack_call* call) noexcept {
  try {
    return static_cast<const Kernel*>(kernel)->run(*call);
  } catch (const std::bad_alloc&) {
    return dnnl_out_of_memory;
  } catch (...) {
    return dnnl_runtime_error;
  }
}

}  // namespace epl::onednn
