// The C API in C++ form, for this tool: handles that close themselves, errors as exceptions.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "include/epl.h"

namespace epl::tools {

class ApiError : public std::runtime_error {
 public:
  ApiError(int32_t code, const std::string& message, std::string where, int64_t rank = -1)
      : std::runtime_error(message), code(code), where(std::move(where)), rank(rank) {}
  int32_t code;
  std::string where;
  int64_t rank;  // of the job; -1: of none
};

// Something the person at the command line must change.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void check(epl_error* error) {
  if (error == nullptr) return;
  ApiError thrown(epl_error_code(error), epl_error_message(error, nullptr), epl_error_where(error, nullptr),
                  epl_error_rank(error));
  epl_error_destroy(error);
  throw thrown;
}

template <class T, void (*destroy)(T*)> struct Destroyer {
  void operator()(T* handle) const { destroy(handle); }
};
template <class T, void (*destroy)(T*)> using Handle = std::unique_ptr<T, Destroyer<T, destroy>>;

using Engine = Handle<epl_engine, epl_engine_destroy>;
using Model = Handle<epl_model, epl_model_destroy>;
using Trainer = Handle<epl_trainer, epl_trainer_destroy>;
using Strategy = Handle<epl_strategy, epl_strategy_destroy>;
using Plan = Handle<epl_plan, epl_plan_destroy>;
using Session = Handle<epl_session, epl_session_destroy>;
using Dataset = Handle<epl_dataset, epl_dataset_destroy>;
using TensorHandle = Handle<epl_tensor, epl_tensor_destroy>;
using Cancel = Handle<epl_cancel, epl_cancel_destroy>;
using Job = Handle<epl_job, epl_job_destroy>;

// make<Engine>(epl_engine_create, options): calls f(arguments..., &handle).
template <class H, class F, class... Args> H make(F f, Args... args) {
  typename H::pointer raw = nullptr;
  check(f(args..., &raw));
  return H(raw);
}

// The text that f(arguments..., &text) gives.
template <class F, class... Args> std::string text_of(F f, Args... args) {
  epl_text* raw = nullptr;
  check(f(args..., &raw));
  size_t length = 0;
  const char* data = epl_text_data(raw, &length);
  std::string out(data, length);
  epl_text_destroy(raw);
  return out;
}

struct Port {
  std::string name;
  int32_t dtype = 0;
  std::vector<int64_t> dims;
  int64_t elements() const {
    int64_t count = 1;
    for (int64_t dim : dims) count *= dim;
    return count;
  }
  std::string text() const;  // "f32[4,7]", "?" for what is not known
};

// f(arguments..., &port)
template <class F, class... Args> Port port_of(F f, Args... args) {
  epl_tensor_info raw = EPL_TENSOR_INFO_INIT;
  check(f(args..., &raw));
  return {std::string(raw.name, raw.name_length), raw.dtype, std::vector<int64_t>(raw.dims, raw.dims + raw.ndim)};
}

inline std::string Port::text() const {
  std::string out = std::string(epl_dtype_name(dtype)) + "[";
  for (size_t i = 0; i < dims.size(); ++i)
    out += (i ? "," : "") + (dims[i] < 0 ? std::string("?") : std::to_string(dims[i]));
  return out + "]";
}

}  // namespace epl::tools
