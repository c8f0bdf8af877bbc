// The driver's functions: modules, functions and launches.
#include <algorithm>
#include <cstring>

#include "tests/cuda/machine/driver.h"
#include "tests/cuda/machine/graph.h"

namespace epl::cuda_machine {
namespace {

Function& function_of(Machine& machine, void* handle) {
  auto* function = static_cast<Function*>(handle);
  require(machine.all_functions.count(function) != 0, kInvalidHandle, "this is no function, or of an unloaded module");
  return *function;
}

void load_module(Machine& machine, void** handle, const void* image) {
  require(handle != nullptr && image != nullptr, kInvalidValue, "no module");
  Context& context = machine.current();
  check_no_recording(machine, "a module");
  const auto* text = static_cast<const char*>(image);
  require(std::memcmp(text,
                      "\x7f"
                      "ELF",
                      4) != 0,
          kInvalidImage, "the image is machine code of a GPU; this machine carries out PTX");
  auto loaded = std::make_unique<Loaded>();
  loaded->context = &context;
  try {
    loaded->module = load(text, machine.memory, context.device, machine.settings.races, machine.sites);
  } catch (const Fault&) {
    throw;
  } catch (const std::exception& unknown) {  // ptx::Unknown, or a number that is none
    machine.found(unknown.what());
    throw Fault(kInvalidPtx, unknown.what());
  }
  const DeviceRow& row = machine.row(context.device);
  require(loaded->module->target <= row.major * 10 + row.minor, kInvalidPtx,
          "the PTX is for sm_" + std::to_string(loaded->module->target) + ", which " + row.name + " is not");
  machine.all_modules.insert(loaded.get());
  context.modules.insert(loaded.get());
  *handle = loaded.release();
}

Loaded& module_of(Machine& machine, void* handle) {
  auto* loaded = static_cast<Loaded*>(handle);
  require(machine.all_modules.count(loaded) != 0, kInvalidHandle, "this is no module, or one that was unloaded");
  return *loaded;
}

// The arguments, copied at the call as the driver does.
std::vector<std::byte> arguments(const Code& code, void** parameters, void** extra) {
  size_t bytes = 0;
  for (const Parameter& parameter : code.parameters) bytes = std::max<size_t>(bytes, parameter.at + parameter.bytes);
  std::vector<std::byte> buffer(bytes);
  if (extra != nullptr) {
    require(parameters == nullptr, kInvalidValue, "arguments are given twice");
    const void* from = nullptr;
    size_t size = 0;
    for (void** at = extra; *at != nullptr; at += 2) {
      const auto key = reinterpret_cast<uintptr_t>(*at);
      require(key == 1 || key == 2, kInvalidValue, "a key of `extra`");
      if (key == 1) from = at[1];
      if (key == 2) size = *static_cast<size_t*>(at[1]);
    }
    require(size == bytes, kInvalidValue,
            "kernel '" + code.name + "' has " + std::to_string(bytes) + " bytes of parameters and is given " +
                std::to_string(size));
    std::memcpy(buffer.data(), from, size);
    return buffer;
  }
  require(parameters != nullptr || code.parameters.empty(), kInvalidValue,
          "kernel '" + code.name + "' has " + std::to_string(code.parameters.size()) + " parameters and is given none");
  for (size_t k = 0; k < code.parameters.size(); ++k) {
    require(parameters[k] != nullptr, kInvalidValue,
            "kernel '" + code.name + "' has " + std::to_string(code.parameters.size()) + " parameters and is given " +
                std::to_string(k));
    std::memcpy(buffer.data() + code.parameters[k].at, parameters[k], code.parameters[k].bytes);
  }
  return buffer;
}

void check_sizes(const Machine& machine, const Function& function, const Launch& launch) {
  const DeviceRow& row = machine.row(function.context->device);
  const Code& code = *function.code;
  require(launch.grid.count() > 0 && launch.block.count() > 0, kInvalidValue, "a grid or block of nothing");
  require(launch.block.count() <= 1024 && launch.block.z <= 64, kInvalidValue, "a block of more than 1,024 threads");
  require(launch.grid.y <= 65535 && launch.grid.z <= 65535 && launch.grid.x <= 2147483647u, kInvalidValue,
          "a grid of too many blocks");
  if (code.threads[0] > 0) {
    const auto most = static_cast<uint64_t>(code.threads[0] * code.threads[1] * code.threads[2]);
    require(launch.block.count() <= most, kInvalidValue,
            "a block of " + std::to_string(launch.block.count()) + " threads of a kernel that was compiled for " +
                std::to_string(most));
  }
  require(launch.dynamic_shared <= static_cast<uint32_t>(function.most_dynamic_shared) &&
              code.shared_wanted + launch.dynamic_shared <= static_cast<uint32_t>(row.shared_optin) &&
              (function.most_dynamic_shared > 49152 || code.shared_wanted + launch.dynamic_shared <= 49152),
          kInvalidValue,
          "kernel '" + code.name + "' with " + std::to_string(code.shared_wanted) + " bytes of shared memory and " +
              std::to_string(launch.dynamic_shared) + " more at the launch");
}

void launch_kernel(Machine& machine, std::unique_lock<std::mutex>& lock, Function& function, Launch launch,
                   Stream& stream, void** parameters, void** extra) {
  require(function.context == stream.context, kInvalidHandle, "the function is of another context than the stream");
  launch.code = function.code;
  check_sizes(machine, function, launch);
  launch.parameters = arguments(*function.code, parameters, extra);
  ++machine.counts.launches;
  const bool fails = machine.settings.launch_fails > 0 && --machine.settings.launch_fails == 0;
  const int device = stream.context->device;
  auto carry_out = [&machine, fails, device, launch = std::move(launch)](const Command& command) mutable {
    if (fails) throw Fault(kLaunchFailed, "kernel '" + launch.code->name + "' fails as the test's settings want");
    launch.command = command.number;
    launch.before = machine.before(command);
    launch.memory = &machine.memory;
    launch.device = device;
    launch.sites = &machine.sites;
    launch.random = &machine.random;
    launch.races = machine.settings.races;
    launch.uninitialised = machine.settings.uninitialised;
    launch.limit = machine.settings.limit;
    const auto count = [&] {
      machine.counts.instructions += launch.instructions;
      machine.counts.steps += launch.steps;
    };
    try {
      run(launch);
    } catch (...) {
      count();
      throw;
    }
    count();
  };
  submit(lock, stream, std::move(carry_out), &function);
  check(*stream.context);
}

}  // namespace
}  // namespace epl::cuda_machine

using namespace epl::cuda_machine;

EPL_DRIVER cuModuleLoadData(void** module, const void* image) {
  return call([&](Machine& machine, auto&) { load_module(machine, module, image); });
}

EPL_DRIVER cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
  return call([&](Machine& machine, auto&) { load_module(machine, module, image); });
}

EPL_DRIVER cuModuleUnload(void* handle) {
  return call([&](Machine& machine, auto& lock) {
    Loaded& loaded = module_of(machine, handle);
    check_no_recording(machine, "the end of a module");
    machine.wait_for_all(lock, *loaded.context);
    for (const auto& [name, variable] : loaded.module->variables) {
      if (!variable->freed) machine.memory.free(*variable);
    }
    for (const auto& [name, function] : loaded.functions) machine.all_functions.erase(function.get());
    loaded.context->modules.erase(&loaded);
    machine.all_modules.erase(&loaded);
    delete &loaded;
  });
}

EPL_DRIVER cuModuleGetFunction(void** handle, void* module, const char* name) {
  return call([&](Machine& machine, auto&) {
    Loaded& loaded = module_of(machine, module);
    const auto code = loaded.module->codes.find(name);
    require(code != loaded.module->codes.end() && code->second->entry, kNotFound,
            "the module has no kernel '" + std::string(name) + "'");
    std::unique_ptr<Function>& function = loaded.functions[name];
    if (!function) {
      function = std::make_unique<Function>();
      function->code = code->second.get();
      function->context = loaded.context;
      machine.all_functions.insert(function.get());
    }
    *handle = function.get();
  });
}

EPL_DRIVER cuModuleGetGlobal_v2(uint64_t* address, size_t* bytes, void* module, const char* name) {
  return call([&](Machine& machine, auto&) {
    const Loaded& loaded = module_of(machine, module);
    const auto variable = loaded.module->variables.find(name);
    require(variable != loaded.module->variables.end(), kNotFound, "the module has no variable of this name");
    if (address != nullptr) *address = variable->second->address;
    if (bytes != nullptr) *bytes = static_cast<size_t>(variable->second->bytes);
  });
}

EPL_DRIVER cuFuncGetAttribute(int* value, int number, void* handle) {
  return call([&](Machine& machine, auto&) {
    const Function& function = function_of(machine, handle);
    const Code& code = *function.code;
    const auto most = static_cast<int>(code.threads[0] * code.threads[1] * code.threads[2]);
    switch (number) {
      case 0:
        *value = most > 0 ? most : 1024;
        break;
      case 1:
        *value = static_cast<int>(code.shared_wanted);
        break;
      case 3:
        *value = static_cast<int>(code.frame);
        break;
      case 8:
        *value = function.most_dynamic_shared;
        break;
      default:
        throw Fault(kInvalidValue, "attribute " + std::to_string(number) + " of a function");
    }
  });
}

EPL_DRIVER cuFuncSetAttribute(void* handle, int number, int value) {
  return call([&](Machine& machine, auto&) {
    Function& function = function_of(machine, handle);
    if (number == 9) return;  // how much of the cache is shared memory: a hint
    require(number == 8, kInvalidValue, "attribute " + std::to_string(number) + " of a function");
    const DeviceRow& row = machine.row(function.context->device);
    require(value >= 0 &&
                static_cast<uint32_t>(value) + function.code->shared_wanted <= static_cast<uint32_t>(row.shared_optin),
            kInvalidValue, "more shared memory than the device has for a block");
    function.most_dynamic_shared = value;
  });
}

EPL_DRIVER cuLaunchKernel(void* handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream_handle,
                          void** parameters, void** extra) {
  return call([&](Machine& machine, auto& lock) {
    Stream& stream = machine.stream(stream_handle);
    Function& function = function_of(machine, handle);
    Launch launch;
    launch.grid = {grid_x, grid_y, grid_z};
    launch.block = {block_x, block_y, block_z};
    launch.dynamic_shared = shared_bytes;
    launch_kernel(machine, lock, function, std::move(launch), stream, parameters, extra);
  });
}
