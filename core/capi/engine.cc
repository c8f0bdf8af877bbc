// The engine: what the host process provides (clock, memory, logger, threads), shared by every handle made from it.
#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <climits>

#include "core/backend/device.h"
#include "core/base/memory.h"
#include "core/base/pack.h"
#include "core/base/processor.h"
#include "core/base/shown.h"
#include "core/capi/describe.h"
#include "core/capi/handle.h"

namespace epl::capi {
namespace {

int available_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

int64_t memory_of_machine() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && bytes > 0 ? pages * bytes : 0;
}

Status check_processor() {
#if defined(__x86_64__)
  if (processor_level() < 3) {
    return unsupported(
        "this processor has no AVX2 and FMA, which the kernels need (x86-64-v3: Haswell of 2013, Zen, or later), ",
        "or the operating system does not save its AVX registers");
  }
#endif
  return {};
}

// The folder of the file that holds this code: libepl.so, or the program that it is linked into.
std::string own_folder() {
  Dl_info info{};
  char path[PATH_MAX];
  if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string_view file = info.dli_fname;
  const size_t slash = file.rfind('/');
  const std::string folder(slash == std::string_view::npos ? "." : file.substr(0, slash + 1));
  return ::realpath(folder.c_str(), path) ? std::string(path) : std::string();
}

Host make_host(const epl_engine_options& o) {
  Host host;
  host.budget = std::make_shared<MemoryBudget>();
  host.budget->bytes = o.memory_bytes;
  host.packs = o.packs ? std::string(o.packs, o.packs_length) : own_folder();
  if (o.kernel_cache) host.kernel_cache.assign(o.kernel_cache, o.kernel_cache_length);
  host.threads = o.threads > 0 ? o.threads : available_processors();
  host.spare_processors = host.threads <= available_processors();
  host.workers = std::make_shared<Workers>(host.threads, wait_of(host));
  host.seconds = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  host.allocate = [f = o.allocate, u = o.allocator_userdata](size_t bytes, size_t alignment) {
    return f ? f(u, bytes, alignment) : allocate_memory(bytes, alignment);
  };
  host.release = [f = o.release, u = o.allocator_userdata](void* memory, size_t bytes, size_t alignment) {
    f ? f(u, memory, bytes, alignment) : release_memory(memory);
  };
  int least = o.log_level == EPL_LOG_DEFAULT ? EPL_LOG_WARNING : o.log_level;
  host.least_logged = static_cast<LogLevel>(least - EPL_LOG_DEBUG);
  if (o.log) {
    host.log = [f = o.log, u = o.log_userdata](LogLevel level, std::string_view message) {
      const std::string text = full_line(message);
      f(u, static_cast<int32_t>(level) + EPL_LOG_DEBUG, text.data(), text.size());
    };
  }
  return host;
}

void log_engine(const Host& host) {
  log(host, LogLevel::info, "EPL ", EPL_VERSION_MAJOR, ".", EPL_VERSION_MINOR, ".", EPL_VERSION_PATCH, " on x86-64-v",
      processor_level(), ", ", host.threads, host.threads == 1 ? " thread" : " threads", ", packs in ",
      host.packs.empty() ? "no folder" : host.packs);
  if (host.threads > available_processors()) {
    log(host, LogLevel::warning, host.threads, " threads are asked for and this process may use ",
        available_processors(), " processors: steps will be slower than with fewer");
  }
}

}  // namespace

Engine::~Engine() {
  if (options.allocator_destroy) options.allocator_destroy(options.allocator_userdata);
  if (options.log_destroy) options.log_destroy(options.log_userdata);
}

std::shared_ptr<const void> allocate_bytes(const std::shared_ptr<Engine>& engine, size_t bytes) {
  constexpr size_t alignment = 64;
  size_t size = std::max<size_t>(bytes, 1);
  MemoryBudget& budget = *engine->host.budget;
  if (!budget.take(bytes)) throw OutOfMemory(size);
  void* memory = engine->host.allocate(size, alignment);
  if (memory == nullptr) {
    budget.give_back(bytes);
    throw OutOfMemory(size);
  }
  return std::shared_ptr<const void>(memory, [engine, bytes, size](const void* p) {
    engine->host.release(const_cast<void*>(p), size, alignment);
    engine->host.budget->give_back(bytes);
  });
}

}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

void epl_engine_options_init(epl_engine_options* options) {
  if (options) *options = EPL_ENGINE_OPTIONS_INIT;
}

epl_error* epl_engine_create(const epl_engine_options* options, epl_engine** engine) {
  return giving(engine, "engine", [&]() -> Result<std::unique_ptr<epl_engine>> {
    epl_engine_options known = EPL_ENGINE_OPTIONS_INIT;
    EPL_TRY(copy_options(options, known, "epl_engine_options"));
    if (known.threads < 0 || known.threads > 4096)
      return invalid("threads is ", known.threads, "; 0 to 4096 can be asked for");
    if (known.log_level < 0 || known.log_level > EPL_LOG_ERROR)
      return invalid("log_level is ", known.log_level, ", which is no level of the log; 0 to ", EPL_LOG_ERROR,
                     " are possible");
    if ((known.allocate == nullptr) != (known.release == nullptr))
      return invalid("allocate and release go together; one is missing");
    EPL_ASSIGN([[maybe_unused]] std::string_view packs,
               text_argument(known.packs, known.packs_length, "engine option packs"));
    EPL_ASSIGN([[maybe_unused]] std::string_view kernel_cache,
               text_argument(known.kernel_cache, known.kernel_cache_length, "engine option kernel_cache"));
    EPL_TRY(check_processor());
    auto made = std::make_unique<epl_engine>();
    made->engine = std::make_shared<Engine>();
    made->engine->host = make_host(known);
    log_engine(made->engine->host);
    made->engine->options = known;  // last: from here on the engine owns the userdata
    return made;
  });
}

void epl_engine_destroy(epl_engine* engine) { destroy(engine); }

uint64_t epl_engine_memory_bytes(const epl_engine* engine) {
  return alive(engine) ? engine->engine->host.budget->in_use.load(std::memory_order_relaxed) : 0;
}

epl_error* epl_engine_describe(const epl_engine* engine, epl_text** json) {
  return giving_text(json, "json", [&]() -> Result<std::string> {
    EPL_REQUIRE(engine);
    return describe_engine(*engine->engine);
  });
}

int64_t epl_engine_device_count(const epl_engine* engine) {
  return alive(engine) ? static_cast<int64_t>(backend_table().rows.size()) : 0;
}

epl_error* epl_engine_device(const epl_engine* engine, int64_t index, epl_device_info* info) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(engine);
    EPL_REQUIRE(info);
    const auto& rows = backend_table().rows;
    if (index < 0 || index >= static_cast<int64_t>(rows.size()))
      return invalid("there is no device ", index, "; there are ", rows.size());
    const BackendRow& row = rows[static_cast<size_t>(index)];
    const bool apart = pack_table().find(row.name) != nullptr;  // a pack that is a device, with memory of its own
    epl_device_info out = EPL_DEVICE_INFO_INIT;
    out.name = row.name.c_str();
    out.name_length = row.name.size();
    out.kind = row.simulated ? EPL_DEVICE_SIM : apart ? EPL_DEVICE_CUDA : EPL_DEVICE_CPU;
    out.threads = engine->engine->host.threads;
    out.memory_bytes = row.simulated || apart ? 0 : memory_of_machine();
    return write_output(out, info, "epl_device_info");
  });
}

void epl_device_info_init(epl_device_info* info) {
  if (info) *info = EPL_DEVICE_INFO_INIT;
}
