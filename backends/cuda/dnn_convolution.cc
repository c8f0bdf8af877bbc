// A convolution of cuDNN: its descriptors, and the plan of one engine. The library is asked once, when the kernel is
// prepared. Engines are passed over that narrow operands or sums, that give other bits from run to run, or that need
// more workspace than the plan of the step has for them.
#include <algorithm>
#include <array>
#include <mutex>
#include <vector>

#include "backends/cuda/library_call.h"

namespace epl::cuda {
namespace {

// Operands begin where the arena puts them; the workspace is aligned here, inside what is kept free.
constexpr int64_t tensor_alignment = 16;
// Names of the tensors in a graph, in the order of the arguments.
constexpr int64_t ids[] = {1, 2, 3};

int type_code(DType type) { return type == DType::f16 ? dnn_f16 : type == DType::bf16 ? dnn_bf16 : dnn_f32; }

// A descriptor while it is filled, and then as it is. What fails first is what `finalize` says.
class BackendDescriptor {
 public:
  BackendDescriptor(const Dnn& library, int kind) : library_(library) {
    status_ = check(library_, library_.create_descriptor(kind, &handle_), "cudnnBackendCreateDescriptor");
  }
  ~BackendDescriptor() {
    if (handle_ != nullptr) library_.destroy_descriptor(handle_);
  }
  BackendDescriptor(const BackendDescriptor&) = delete;
  BackendDescriptor& operator=(const BackendDescriptor&) = delete;

  void set(int attribute, int type, int64_t count, const void* values) {
    if (!status_.ok()) return;
    status_ = check(library_, library_.set_attribute(handle_, attribute, type, count, values), "an attribute of cuDNN");
  }
  void set(int attribute, int type, const auto& value) { set(attribute, type, 1, &value); }
  void set(int attribute, const std::vector<int64_t>& values) {
    set(attribute, dnn_as_i64, static_cast<int64_t>(values.size()), values.data());
  }
  void set(int attribute, const BackendDescriptor& value) { set(attribute, dnn_as_descriptor, 1, &value.handle_); }
  Status finalize() {
    EPL_TRY(status_);
    return check(library_, library_.finalize(handle_), "cudnnBackendFinalize");
  }
  // How many of `most` values there are.
  Result<int64_t> get(int attribute, int type, int64_t most, void* values) const {
    EPL_TRY(status_);
    int64_t count = 0;
    EPL_TRY(check(library_, library_.get_attribute(handle_, attribute, type, most, &count, values),
                  "an attribute of cuDNN"));
    return count;
  }
  DnnDescriptor handle() const { return handle_; }

 private:
  const Dnn& library_;
  DnnDescriptor handle_ = nullptr;
  Status status_;
};
using OwnDescriptor = std::unique_ptr<BackendDescriptor>;

// The attributes of an operation.
struct Operation {
  int kind, alpha, beta, convolution, x, w, y;
};
Operation operation_of(DnnCall::What what) {
  switch (what) {
    case DnnCall::What::grad_input:
      return {dnn_grad_input,   dnn_grad_input_alpha, dnn_grad_input_beta, dnn_grad_input_convolution,
              dnn_grad_input_x, dnn_grad_input_w,     dnn_grad_input_y};
    case DnnCall::What::grad_weight:
      return {dnn_grad_weight,   dnn_grad_weight_alpha, dnn_grad_weight_beta, dnn_grad_weight_convolution,
              dnn_grad_weight_x, dnn_grad_weight_w,     dnn_grad_weight_y};
    default:
      return {dnn_forward,   dnn_forward_alpha, dnn_forward_beta, dnn_forward_convolution,
              dnn_forward_x, dnn_forward_w,     dnn_forward_y};
  }
}

class DnnConvolution final : public PreparedCall {
 public:
  DnnConvolution(const DnnCall& call, std::shared_ptr<Gpu> gpu, Gpu::Convolving convolving)
      : call_(call),
        gpu_(std::move(gpu)),
        dnn_(*convolving.library),
        handle_(convolving.handle),
        calls_(*convolving.calls) {}
  ~DnnConvolution() override {
    const Gpu::Current current(*gpu_);  // what a plan has on the device goes with it
    pack_.reset(), plan_.reset();
  }

  Status make() {
    const Gpu::Current current(*gpu_);
    EPL_TRY(current.status());
    EPL_TRY(describe());
    Status refused = unsupported("cuDNN knows no engine for it");
    for (const int mode : {dnn_suggest_fast, dnn_suggest_fallback}) {
      const Status found = choose(mode);
      if (found.ok()) return {};
      refused = found;
    }
    return refused;
  }

  int64_t workspace_bytes() const override { return call_.most_workspace_bytes; }

  Status issue(const GpuStream& stream, std::span<const uint64_t> values, uint64_t workspace) const override {
    const Gpu::Current current(*gpu_);
    EPL_TRY(current.status());
    const std::lock_guard lock(calls_);
    EPL_TRY(fill({values[0], values[1], values[2], call_aligned(workspace)}));
    EPL_TRY(check(dnn_, dnn_.set_stream(handle_, stream.handle), "cudnnSetStream"));
    return check(dnn_, dnn_.execute(handle_, plan_->handle(), pack_->handle()), "cudnnBackendExecute");
  }

 private:
  OwnDescriptor made(int kind) const { return std::make_unique<BackendDescriptor>(dnn_, kind); }

  Status describe_tensor(OwnDescriptor& tensor, int64_t id, const Shape& shape, bool is_result) {
    tensor = made(dnn_tensor);
    tensor->set(dnn_tensor_id, dnn_as_i64, id);
    tensor->set(dnn_tensor_type, dnn_as_type, int32_t{is_result ? dnn_f32 : type_code(call_.type)});
    tensor->set(dnn_tensor_alignment, dnn_as_i64, tensor_alignment);
    tensor->set(dnn_tensor_sizes, shape);
    tensor->set(dnn_tensor_strides, row_major_strides(shape));
    return tensor->finalize();
  }

  Status describe() {
    const DnnCall::What what = call_.what;
    EPL_TRY(describe_tensor(x_, ids[0], call_.x, what == DnnCall::What::grad_input));
    EPL_TRY(describe_tensor(w_, ids[1], call_.w, what == DnnCall::What::grad_weight));
    EPL_TRY(describe_tensor(y_, ids[2], call_.y, what == DnnCall::What::forward));
    convolution_ = made(dnn_convolution);
    convolution_->set(dnn_convolution_type, dnn_as_type, int32_t{dnn_f32});
    convolution_->set(dnn_convolution_mode, dnn_as_convolution_mode, int32_t{dnn_cross_correlation});
    convolution_->set(dnn_convolution_dimensions, dnn_as_i64, static_cast<int64_t>(call_.strides.size()));
    convolution_->set(dnn_convolution_strides, call_.strides);
    convolution_->set(dnn_convolution_dilations, call_.dilations);
    convolution_->set(dnn_convolution_pads_before, call_.pads_before);
    convolution_->set(dnn_convolution_pads_behind, call_.pads_behind);
    EPL_TRY(convolution_->finalize());
    const Operation of = operation_of(what);
    operation_ = made(of.kind);
    operation_->set(of.convolution, *convolution_);
    operation_->set(of.x, *x_);
    operation_->set(of.w, *w_);
    operation_->set(of.y, *y_);
    operation_->set(of.alpha, dnn_as_f32, 1.0f);
    operation_->set(of.beta, dnn_as_f32, 0.0f);
    EPL_TRY(operation_->finalize());
    graph_ = made(dnn_graph);
    graph_->set(dnn_graph_handle, dnn_as_handle, handle_);
    graph_->set(dnn_graph_operations, *operation_);
    return graph_->finalize();
  }

  // The first of those that are suggested which will do.
  Status choose(int mode) {
    const OwnDescriptor suggestion = made(dnn_suggestion);
    suggestion->set(dnn_suggestion_graph, *graph_);
    suggestion->set(dnn_suggestion_mode, dnn_as_suggestion_mode, int32_t{mode});
    EPL_TRY(suggestion->finalize());
    EPL_ASSIGN(const int64_t count, suggestion->get(dnn_suggestion_configs, dnn_as_descriptor, 0, nullptr));
    std::vector<OwnDescriptor> configs;
    std::vector<DnnDescriptor> places;
    for (int64_t i = 0; i < count; ++i) {
      configs.push_back(made(dnn_engine_config));
      places.push_back(configs.back()->handle());
    }
    EPL_ASSIGN(const int64_t found, suggestion->get(dnn_suggestion_configs, dnn_as_descriptor, count, places.data()));
    Status refused = unsupported("cuDNN knows no engine for it");
    for (size_t i = 0; i < static_cast<size_t>(found); ++i) {
      const Status taken = take(configs[i]);
      if (taken.ok()) return {};
      refused = taken;
    }
    return refused;
  }

  Status take(OwnDescriptor& config) {
    EPL_TRY(check_engine(*config));
    int64_t bytes = 0;
    EPL_TRY(config->get(dnn_config_workspace, dnn_as_i64, 1, &bytes).status());
    EPL_TRY(check_workspace(bytes));
    OwnDescriptor plan = made(dnn_plan);
    plan->set(dnn_plan_handle, dnn_as_handle, handle_);
    plan->set(dnn_plan_config, *config);
    EPL_TRY(plan->finalize());
    EPL_TRY(plan->get(dnn_plan_workspace, dnn_as_i64, 1, &bytes).status());
    EPL_TRY(check_workspace(bytes));
    config_ = std::move(config);
    plan_ = std::move(plan);
    return {};
  }
  Status check_workspace(int64_t bytes) const {
    return require(bytes + call_alignment <= call_.most_workspace_bytes,
                   "the engines of cuDNN want more workspace than there is");
  }
  // Matrices of float32 are multiplied as TF32.
  Status check_engine(const BackendDescriptor& config) const {
    const OwnDescriptor engine = made(dnn_engine);
    DnnDescriptor place = engine->handle();
    EPL_TRY(config.get(dnn_config_engine, dnn_as_descriptor, 1, &place).status());
    std::array<int32_t, dnn_notes> notes{};
    EPL_ASSIGN(const int64_t count, engine->get(dnn_engine_notes, dnn_as_note, dnn_notes, notes.data()));
    for (size_t i = 0; i < static_cast<size_t>(std::min<int64_t>(count, dnn_notes)); ++i) {
      const int32_t note = notes[i];
      EPL_TRY(require(note != dnn_note_narrowed_operands && note != dnn_note_narrow_sums &&
                          note != dnn_note_winograd_13 && (note != dnn_note_tensor_core || call_.type != DType::f32),
                      "the engines of cuDNN compute with fewer bits"));
      EPL_TRY(require(note != dnn_note_not_deterministic, "the engines of cuDNN give other bits from run to run"));
    }
    return {};
  }

  // Addresses are the same from step to step, and so is the pack of them.
  using Places = std::array<uint64_t, 4>;
  Status fill(const Places& places) const {
    if (pack_ != nullptr && places == places_) return {};
    OwnDescriptor pack = made(dnn_pack);
    pack->set(dnn_pack_ids, dnn_as_i64, 3, ids);
    pack->set(dnn_pack_pointers, dnn_as_pointer, 3, places.data());
    pack->set(dnn_pack_workspace, dnn_as_pointer, places[3]);
    EPL_TRY(pack->finalize());
    pack_ = std::move(pack);
    places_ = places;
    return {};
  }

  const DnnCall call_;
  const std::shared_ptr<Gpu> gpu_;
  const Dnn& dnn_;
  const DnnHandle handle_;
  std::mutex& calls_;  // of the handle, and of the pack
  // What stands on others is destroyed before them.
  OwnDescriptor x_, w_, y_, convolution_, operation_, graph_, config_, plan_;
  mutable OwnDescriptor pack_;
  mutable Places places_{};
};

}  // namespace

Result<std::unique_ptr<PreparedCall>> prepare_dnn(const DnnCall& call, std::shared_ptr<Gpu> gpu) {
  EPL_ASSIGN(const Gpu::Convolving convolving, gpu->convolving());
  auto made = std::make_unique<DnnConvolution>(call, std::move(gpu), convolving);
  EPL_TRY(made->make());
  return std::unique_ptr<PreparedCall>(std::move(made));
}

}  // namespace epl::cuda
