#include "backends/cuda/circle.h"

#include <algorithm>
#include <fstream>

namespace epl::cuda {
namespace {

const char* function_of(int32_t kind) {
  switch (kind) {
    case EPL_PACK_ALL_REDUCE:
      return "ncclAllReduce";
    case EPL_PACK_REDUCE_SCATTER:
      return "ncclReduceScatter";
    case EPL_PACK_ALL_GATHER:
      return "ncclAllGather";
    default:
      return "ncclBroadcast";
  }
}

// What is moved and not added up goes as bytes.
int nccl_type(int32_t dtype) {
  switch (dtype) {
    case EPL_PACK_F32:
      return nccl_f32;
    case EPL_PACK_F64:
      return nccl_f64;
    case EPL_PACK_F16:
      return nccl_f16;
    case EPL_PACK_BF16:
      return nccl_bf16;
    case EPL_PACK_I64:
      return nccl_i64;
    default:
      return nccl_u8;
  }
}

}  // namespace

Status Circle::check(NcclCode code, const char* call) const {
  if (code == nccl_success || code == nccl_in_progress) return {};
  const Code kind = code == nccl_cuda_failed || code == nccl_remote_failed ? Code::state_lost : Code::exhausted;
  return error(kind, call, " gave ", nccl_.text(code));
}

// The library makes other devices current: the context that is pushed here is the one that it changes.
template <class F> Status Circle::together(const char* call, const F& f) const {
  const Gpu::Current current(*gpus_.front());
  EPL_TRY(current.status());
  EPL_TRY(check(nccl_.group_start(), "ncclGroupStart"));
  NcclCode code = nccl_success;
  for (size_t place = 0; place < gpus_.size() && code == nccl_success; ++place) code = f(place);
  const NcclCode ended = nccl_.group_end();  // also of a group that failed
  EPL_TRY(check(code, call));
  return check(ended, call);
}

Result<std::unique_ptr<Circle>> Circle::make(const std::string& libraries, std::vector<std::shared_ptr<Gpu>> gpus) {
  EPL_ASSIGN(const Nccl* nccl, open_nccl(libraries));
  std::unique_ptr<Circle> made(new Circle(*nccl, std::move(gpus)));
  std::vector<int> ordinals;  // the driver numbers devices as the runtime does
  for (const std::shared_ptr<Gpu>& gpu : made->gpus_) ordinals.push_back(gpu->device);
  std::vector<NcclEnd> ends(ordinals.size());
  const Gpu::Current current(*made->gpus_.front());
  EPL_TRY(current.status());
  EPL_TRY(made->check(nccl->begin_all(ends.data(), static_cast<int>(ends.size()), ordinals.data()), "ncclCommInitAll"));
  made->ends_ = std::move(ends);
  return made;
}

Result<std::string> Circle::card(const Gpu& gpu) {
  EPL_ASSIGN(const Nccl* nccl, open_nccl(gpu.libraries));
  char address[32] = "";
  EPL_TRY(
      gpu.call("cuDeviceGetPCIBusId", [&] { return gpu.driver.device_address(address, sizeof address, gpu.device); }));
  std::string host;
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  if (!std::getline(boot, host)) return unsupported("nothing tells this host from others");
  return cat("NCCL ", version_text(nccl->version), "\n", host, " ", address);
}

Result<NcclId> Circle::new_id(const Gpu& gpu) {
  EPL_ASSIGN(const Nccl* nccl, open_nccl(gpu.libraries));
  NcclId id = {};
  if (const NcclCode code = nccl->new_id(&id); code != nccl_success)
    return error(Code::exhausted, "ncclGetUniqueId gave ", nccl->text(code));
  return id;
}

Result<std::unique_ptr<Circle>> Circle::begin(std::shared_ptr<Gpu> gpu, const NcclId& id, int ranks, int rank) {
  EPL_ASSIGN(const Nccl* nccl, open_nccl(gpu->libraries));
  std::unique_ptr<Circle> made(new Circle(*nccl, {std::move(gpu)}));
  made->over_processes_ = true;
  const Gpu::Current current(*made->gpus_.front());
  EPL_TRY(current.status());
  NcclSettings settings;
  NcclEnd end = nullptr;
  const NcclCode code = nccl->begin_rank(&end, ranks, id, rank, &settings);
  if (end != nullptr) made->ends_.push_back(end);  // also of a beginning that failed
  EPL_TRY(made->check(code, "ncclCommInitRankConfig"));
  return made;
}

Result<bool> Circle::done(const GpuStream* stream) const {
  if (ends_.empty()) return error(Code::cancelled, "the GPU has left NCCL");
  const Gpu& gpu = *gpus_.front();
  const Gpu::Current current(gpu);
  EPL_TRY(current.status());
  NcclCode state = nccl_success;
  EPL_TRY(check(nccl_.state(ends_.front(), &state), "ncclCommGetAsyncError"));
  EPL_TRY(check(state, "a call of NCCL"));
  if (state == nccl_in_progress) return false;  // the stream may not have it yet
  if (stream == nullptr) return true;
  const DriverCode code = gpu.driver.query(stream->handle);
  if (code == code_not_ready) return false;
  EPL_TRY(epl::cuda::check(gpu.driver, code, "cuStreamQuery"));
  return true;
}

// Where others are of other processes, an end may be destroyed only together with theirs, which may be gone. What it
// was given has been waited for.
Circle::~Circle() {
  const Gpu::Current current(*gpus_.front());
  for (NcclEnd end : ends_) over_processes_ ? nccl_.abort(end) : nccl_.destroy(end);
}

Result<std::unique_ptr<Circle>> Circle::split(std::span<const int32_t> places) const {
  if (ends_.empty()) return error(Code::cancelled, "the GPUs have left NCCL");
  std::vector<std::shared_ptr<Gpu>> gpus;
  for (const int32_t place : places) gpus.push_back(gpus_[static_cast<size_t>(place)]);
  std::unique_ptr<Circle> made(new Circle(nccl_, std::move(gpus)));
  std::vector<NcclEnd> ends(ends_.size());
  const Status status = together("ncclCommSplit", [&](size_t place) {
    const bool in = std::ranges::find(places, static_cast<int32_t>(place)) != places.end();
    return nccl_.split(ends_[place], in ? 0 : nccl_no_color, static_cast<int>(place), &ends[place], nullptr);
  });
  // Of a split that failed, some may be there: they go with what was made.
  for (const int32_t place : places)
    if (NcclEnd end = ends[static_cast<size_t>(place)]; end != nullptr) made->ends_.push_back(end);
  EPL_TRY(status);
  return made;
}

Status Circle::collect(const epl_pack_collective& call) const {
  if (ends_.empty()) return error(Code::cancelled, "the GPUs have left NCCL");
  const auto count = static_cast<size_t>(call.count);
  const int type = nccl_type(call.dtype);
  return together(function_of(call.kind), [&](size_t place) -> NcclCode {
    const void* const source = call.sources[place];
    void* const target = call.targets[place];
    StreamHandle const stream = static_cast<GpuStream*>(call.streams[place])->handle;
    switch (call.kind) {
      case EPL_PACK_ALL_REDUCE:
        return nccl_.all_reduce(source, target, count, type, nccl_sum, ends_[place], stream);
      case EPL_PACK_REDUCE_SCATTER:
        return nccl_.reduce_scatter(source, target, count, type, nccl_sum, ends_[place], stream);
      case EPL_PACK_ALL_GATHER:
        return nccl_.all_gather(source, target, count, type, ends_[place], stream);
      default:
        return nccl_.broadcast(source, target, count, type, call.root, ends_[place], stream);
    }
  });
}

void Circle::abort() {
  const Gpu::Current current(*gpus_.front());
  for (NcclEnd end : ends_) nccl_.abort(end);
  ends_.clear();
}

}  // namespace epl::cuda
