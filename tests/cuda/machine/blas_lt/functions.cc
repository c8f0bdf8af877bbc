// libcublasLt.so.13 for tests: its functions, as the manual describes them.
#include <algorithm>

#include "tests/cuda/machine/blas_lt/objects.h"
#include "tests/cuda/machine/control.h"

#define EPL_BLAS extern "C" __attribute__((visibility("default"))) int

extern "C" int cuCtxGetDevice(int* device);

namespace epl::cuda_blas {
namespace {

// One call: a refusal becomes its number, and is told to the machine.
template <class F> int call(F&& f) {
  Objects& objects = Objects::get();
  const std::lock_guard lock(objects.mutex);
  try {
    f(objects);
    return kSuccess;
  } catch (const Refused& refused) {
    epl_test_machine_refused(refused.what());
    return refused.code;
  } catch (int) {
    return kExecutionFailed;
  }
}

// The handle, of the device that is current.
void check_handle(const Objects& objects, const void* handle) {
  require(handle != nullptr, kNotInitialized, "no handle");
  int device = 0;
  require(cuCtxGetDevice(&device) == 0, kNotInitialized, "no context is current in this thread");
  const int own = objects.at(handle, Kind::handle, "the handle").device;
  require(own == device, kInvalidValue,
          "the handle is of device " + std::to_string(own) + ", and device " + std::to_string(device) + " is current");
}

Product product_at(const Objects& objects, const void* operation, const void* a, const void* b, const void* c,
                   const void* d) {
  const auto layout = [&](const void* one, const char* what) -> const Object& {
    return objects.at(one, Kind::layout, what);
  };
  return product_of(objects.at(operation, Kind::operation, "the operation"), layout(a, "the layout of A"),
                    layout(b, "the layout of B"), layout(c, "the layout of C"), layout(d, "the layout of D"));
}

int create(void** made, Kind kind, const auto& fill) {
  return call([&](Objects& objects) {
    require(made != nullptr, kInvalidValue, "no place for what is made");
    Object* object = objects.make(kind);
    fill(*object);
    *made = object;
  });
}

// Where an attribute of an algorithm lies.
void* place_of(Algorithm& algorithm, int attribute) {
  void* const places[] = {&algorithm.id,        &algorithm.tile,    &algorithm.splits,
                          &algorithm.reduction, &algorithm.swizzle, &algorithm.custom,
                          &algorithm.stages,    &algorithm.inner,   &algorithm.cluster};
  return places[attribute];
}

}  // namespace
}  // namespace epl::cuda_blas

using namespace epl::cuda_blas;

extern "C" __attribute__((visibility("default"))) size_t cublasLtGetVersion() { return 130100; }

extern "C" __attribute__((visibility("default"))) const char* cublasLtGetStatusName(int code) {
  switch (code) {
    case kSuccess:
      return "CUBLAS_STATUS_SUCCESS";
    case kNotInitialized:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case kInvalidValue:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case kExecutionFailed:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case kNotSupported:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "unknown status";
  }
}

extern "C" __attribute__((visibility("default"))) const char* cublasLtGetStatusString(int code) {
  return code == kSuccess ? "success" : "a call that the machine for tests refuses";
}

EPL_BLAS cublasLtCreate(void** handle) {
  return create(handle, Kind::handle, [](Object& made) {
    require(cuCtxGetDevice(&made.device) == 0, kNotInitialized, "no context is current in this thread");
  });
}
EPL_BLAS cublasLtDestroy(void* handle) {
  return call([&](Objects& objects) { objects.destroy(handle, Kind::handle); });
}

EPL_BLAS cublasLtMatmulDescCreate(void** operation, int compute_type, int scale_type) {
  return create(operation, Kind::operation, [&](Object& made) {
    made.set<int32_t>(kComputeType, compute_type);
    made.set<int32_t>(kScaleType, scale_type);
  });
}
EPL_BLAS cublasLtMatmulDescDestroy(void* operation) {
  return call([&](Objects& objects) { objects.destroy(operation, Kind::operation); });
}
EPL_BLAS cublasLtMatmulDescSetAttribute(void* operation, int attribute, const void* value, size_t bytes) {
  return call(
      [&](Objects& objects) { objects.set(operation, Kind::operation, kOfOperation, attribute, value, bytes); });
}

EPL_BLAS cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  return create(layout, Kind::layout, [&](Object& made) {
    made.set<int32_t>(kType, type);
    made.set(kRows, rows);
    made.set(kColumns, columns);
    made.set(kLeading, leading);
  });
}
EPL_BLAS cublasLtMatrixLayoutDestroy(void* layout) {
  return call([&](Objects& objects) { objects.destroy(layout, Kind::layout); });
}
EPL_BLAS cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t bytes) {
  return call([&](Objects& objects) { objects.set(layout, Kind::layout, kOfLayout, attribute, value, bytes); });
}

EPL_BLAS cublasLtMatmulPreferenceCreate(void** preference) {
  return create(preference, Kind::preference, [](Object&) {});
}
EPL_BLAS cublasLtMatmulPreferenceDestroy(void* preference) {
  return call([&](Objects& objects) { objects.destroy(preference, Kind::preference); });
}
EPL_BLAS cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value, size_t bytes) {
  return call(
      [&](Objects& objects) { objects.set(preference, Kind::preference, kOfPreference, attribute, value, bytes); });
}

EPL_BLAS cublasLtMatmulAlgoGetHeuristic(void* handle, void* operation, void* a, void* b, void* c, void* d,
                                        void* preference, int wanted, Choice* choices, int* found) {
  return call([&](Objects& objects) {
    check_handle(objects, handle);
    require(wanted > 0 && choices != nullptr && found != nullptr, kInvalidValue, "no place for algorithms");
    const std::vector<Choice> all = choose(product_at(objects, operation, a, b, c, d),
                                           objects.at(preference, Kind::preference, "the preference"), wanted);
    std::copy(all.begin(), all.end(), choices);
    *found = static_cast<int>(all.size());
    require(*found > 0, kNotSupported, "no algorithm does what is preferred");
  });
}

EPL_BLAS cublasLtMatmulAlgoInit(void* handle, int compute_type, int scale_type, int a_type, int b_type, int c_type,
                                int d_type, int id, Algorithm* algorithm) {
  return call([&](Objects& objects) {
    check_handle(objects, handle);
    require(algorithm != nullptr && id >= 0, kInvalidValue, "no place for the algorithm, or no number of one");
    require(compute_type == 68 || compute_type == 69, kNotSupported, "a compute type that is not that of float32");
    const auto type = [](int number) { return static_cast<Type>(number); };
    const bool narrow = a_type == int{kFloat16} || a_type == int{kBrain16};
    require(scale_type == int{kFloat32} && (narrow || a_type == int{kFloat32}) &&
                are_multiplied(type(a_type), type(b_type), type(c_type), type(d_type)),
            kNotSupported, "types that are not multiplied");
    require(id / 2 == (narrow ? 1 : 0), kInvalidValue,
            "there is no algorithm " + std::to_string(id) + " of these types");
    *algorithm = {.mark = kAlgorithmMark, .id = id, .align = id % 2 == 1 ? 16u : narrow ? 2u : 4u};
  });
}
EPL_BLAS cublasLtMatmulAlgoConfigSetAttribute(Algorithm* algorithm, int attribute, const void* value, size_t bytes) {
  return call([&](Objects&) {
    require(algorithm != nullptr && value != nullptr && algorithm->mark == kAlgorithmMark, kInvalidValue,
            "an algorithm that was not begun, or no value");
    attribute_row(kOfAlgorithm, attribute, bytes);
    require(attribute != kId, kInvalidValue, "the number of an algorithm cannot be set");
    std::memcpy(place_of(*algorithm, attribute), value, bytes);
  });
}
EPL_BLAS cublasLtMatmulAlgoConfigGetAttribute(const Algorithm* algorithm, int attribute, void* value, size_t bytes,
                                              size_t* written) {
  return call([&](Objects&) {
    require(algorithm != nullptr && value != nullptr && algorithm->mark == kAlgorithmMark, kInvalidValue,
            "an algorithm that was not begun, or no place for the value");
    attribute_row(kOfAlgorithm, attribute, bytes);
    Algorithm copy = *algorithm;
    std::memcpy(value, place_of(copy, attribute), bytes);
    if (written != nullptr) *written = bytes;
  });
}
EPL_BLAS cublasLtMatmulAlgoCheck(void* handle, void* operation, void* a, void* b, void* c, void* d,
                                 const Algorithm* algorithm, Choice* choice) {
  return call([&](Objects& objects) {
    check_handle(objects, handle);
    require(algorithm != nullptr && choice != nullptr, kInvalidValue, "no algorithm, or no place for what it needs");
    const Choice made = check(*algorithm, product_at(objects, operation, a, b, c, d));
    choice->workspace = made.workspace;  // the algorithm there is never written
    choice->state = kSuccess;
    choice->waves = made.waves;
  });
}

EPL_BLAS cublasLtMatmul(void* handle, void* operation, const void* alpha, const void* a, void* a_layout, const void* b,
                        void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                        const Algorithm* algorithm, void* workspace, size_t workspace_bytes, void* stream) {
  return call([&](Objects& objects) {
    check_handle(objects, handle);
    const Product product = product_at(objects, operation, a_layout, b_layout, c_layout, d_layout);
    const auto address = [](const void* pointer) { return reinterpret_cast<uint64_t>(pointer); };
    Algorithm chosen;
    if (algorithm != nullptr) {
      chosen = *algorithm;
    } else {
      Object preference;
      preference.set(kWorkspace, static_cast<uint64_t>(workspace_bytes));
      chosen = choose(product, preference, 1).at(0).algorithm;
    }
    multiply(product, chosen,
             {.alpha = static_cast<const float*>(alpha),
              .beta = static_cast<const float*>(beta),
              .a = address(a),
              .b = address(b),
              .c = address(c),
              .d = address(d),
              .workspace = address(workspace),
              .workspace_bytes = workspace_bytes,
              .stream = stream});
  });
}
