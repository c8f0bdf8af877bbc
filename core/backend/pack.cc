#include "core/backend/pack.h"

#include <cstddef>

#include "core/base/check.h"
#include "core/base/pack_abi.h"
#include "core/base/status.h"
#include "core/base/thread_pool.h"

namespace epl {
namespace {

// A query as a pack reads it; the parts live here.
class PackQuery {
 public:
  explicit PackQuery(const KernelQuery& q) {
    for (int i = 0; i < q.inputs(); ++i) inputs_.push_back(type(q.in(i), q.has(i)));
    for (int o = 0; o < q.outputs(); ++o) outputs_.push_back(type(q.out(o), q.has_output(o)));
    integers_.reserve(q.attributes.entries().size());  // attributes point into it
    for (const Attributes::Entry& entry : q.attributes.entries()) add(entry);
    query_ = {.struct_size = sizeof query_,
              .op = q.op.c_str(),
              .inputs = inputs_.data(),
              .outputs = outputs_.data(),
              .attributes = attributes_.data(),
              .input_count = static_cast<int32_t>(inputs_.size()),
              .output_count = static_cast<int32_t>(outputs_.size()),
              .attribute_count = static_cast<int32_t>(attributes_.size()),
              .threads = q.threads,
              .units = q.units.count};
  }
  PackQuery(const PackQuery&) = delete;
  PackQuery& operator=(const PackQuery&) = delete;
  const epl_pack_query* get() const { return &query_; }

 private:
  static epl_pack_type type(const TensorType& t, bool present) {
    if (!present) return {.dtype = 0, .ndim = 0, .dims = nullptr};
    return {.dtype = static_cast<int32_t>(t.dtype) + 1, .ndim = t.ndim(), .dims = t.shape.data()};
  }

  void add(const Attributes::Entry& entry) {
    const char* name = entry.name.c_str();
    if (const Ints* list = std::get_if<Ints>(&entry.value)) {
      attributes_.push_back({name, list->data(), static_cast<int64_t>(list->size())});
    } else if (const int64_t* integer = std::get_if<int64_t>(&entry.value)) {
      attributes_.push_back({name, integer, 1});
    } else if (const bool* flag = std::get_if<bool>(&entry.value)) {
      integers_.push_back(*flag);
      attributes_.push_back({name, &integers_.back(), 1});
    }
  }

  std::vector<epl_pack_type> inputs_, outputs_;
  std::vector<epl_pack_attribute> attributes_;
  std::vector<int64_t> integers_;
  epl_pack_query query_;
};

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

struct Reason {
  char text[256] = "";
  epl_pack_reason to{text, sizeof text};
};

KernelRow row_of(const epl_pack_kernel& kernel) {
  KernelRow row;
  row.op = kernel.op;
  row.name = kernel.name;
  for (uint64_t i = 0; i < kernel.dtype_count; ++i) row.dtypes.push_back(static_cast<DType>(kernel.dtypes[i] - 1));
  row.prepare = [&kernel](const KernelQuery& q) -> Result<Prepared> {
    Reason reason;
    int64_t workspace_bytes = 0;
    void* made = kernel.prepare(PackQuery(q).get(), &workspace_bytes, &reason.to);
    EPL_TRY(require(made != nullptr, reason.text));
    return Prepared{.state = {made, [&kernel](const void* p) { kernel.destroy(const_cast<void*>(p)); }},
                    .workspace_bytes = workspace_bytes};
  };
  row.launch = [&kernel](const KernelCall& call) {
    const PackThreads threads(call.threads());
    const epl_pack_call pack_call = {.struct_size = sizeof pack_call,
                                     .inputs = call.inputs,
                                     .outputs = call.outputs,
                                     .workspace = call.workspace,
                                     .threads = &threads.threads,
                                     .stream = nullptr,
                                     .seed = call.context.seed,
                                     .step = call.context.step,
                                     .first_unit = call.context.first_unit,
                                     .units = call.context.units};
    const int32_t failure = kernel.launch(call.state, &pack_call);
    EPL_CHECK(failure == 0, kernel.name, " failed at ", call.query.node, " with code ", failure);
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
