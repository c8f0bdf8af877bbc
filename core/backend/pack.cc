#include "core/backend/pack.h"

#include <cstddef>

#include "core/backend/pack_query.h"
#include "core/base/check.h"
#include "core/base/pack_abi.h"
#include "core/base/status.h"
#include "core/base/thread_pool.h"

namespace epl {
namespace {

// Our pool as a pack sees it: the struct is the first member, so that its address is this object's.
struct PackThreads {
  epl_pack_threads threads;
  ThreadPool* pool;

  explicit PackThreads(ThreadPool& of) : threads{.struct_size = sizeof(epl_pack_threads), .run = run}, pool(&of) {}
  static void run(const epl_pack_threads* threads, int64_t count, void (*task)(void*, int64_t), void* context) {
    const auto* self = reinterpret_cast<const PackThreads*>(threads);
    self->pool->run(count, [&](int64_t index, int) { task(context, index); });
  }
};
static_assert(offsetof(PackThreads, threads) == 0);

KernelRow row_of(const epl_pack_kernel& kernel) {
  KernelRow row = named_row(kernel);
  row.prepare = [&kernel](const KernelQuery& q) { return prepare_in_pack(kernel, q, nullptr, nullptr); };
  row.launch = [&kernel](const KernelCall& call) {
    const PackThreads threads(call.threads());
    PackReason reason;
    epl_pack_call pack_call = pack_call_of(call, reason);
    pack_call.threads = &threads.threads;
    const StepNumbers numbers = call.context.numbers();
    pack_call.seed = numbers.seed;
    pack_call.step = numbers.step;
    const int32_t failure = kernel.launch(call.state, &pack_call);
    EPL_CHECK(failure == 0, kernel.name, " failed at ", call.query.node, " with code ", failure, " ", reason.text);
  };
  return row;
}

}  // namespace

void add_pack_kernels(const epl_pack& pack, std::string_view device, KernelTable& table) {
  if (device != pack.device) return;
  for (uint64_t i = 0; i < pack.kernel_count; ++i) table.add(row_of(*pack.kernels[i]));
}

void add_packs(std::string_view device, bool any_order, const Host& host, KernelTable& table,
               std::vector<std::string>& notes) {
  for (const PackRow& row : pack_table().rows) {
    if (row.device != device || (row.any_order && !any_order)) continue;
    const auto pack = open_pack(host.packs, row.name);
    if (pack.ok()) {
      add_pack_kernels(**pack, device, table);
      notes.push_back(cat("pack ", row.name, ": ", pack_version(**pack), ", from ", pack_path(host.packs, row.name),
                          "; its kernels are asked first"));
      continue;
    }
    notes.push_back(
        cat("pack ", row.name, " is not used, the built-in kernels serve instead: ", pack.status().message()));
    // That there is none is ordinary; a file that does not fit is not.
    log(host, pack.status().code() == Code::not_found ? LogLevel::info : LogLevel::warning, notes.back());
  }
}

}  // namespace epl
