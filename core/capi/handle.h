// What every handle of the C API shares: counting, the boundary where exceptions end, and the check for two callers.
//
// A handle is a small struct on the heap that shares ownership of what it shows, so the order in which a host destroys
// handles does not matter.
#pragma once

#include <atomic>
#include <memory>
#include <new>
#include <string>

#include "core/base/host.h"
#include "core/base/status.h"
#include "core/base/tensor.h"
#include "core/runtime/executor.h"
#include "include/epl.h"

namespace epl::capi {

// Counts handles for epl_live_handles.
class Counted {
 public:
  Counted() { ++alive; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --alive; }
  static std::atomic<int64_t> alive;
};

// One caller at a time: the second gets an error instead of a data race.
class OneCaller {
 public:
  class Scope {
   public:
    explicit Scope(OneCaller& owner) : owner_(owner), entered_(!owner.busy_.exchange(true, std::memory_order_acquire)) {}
    ~Scope() {
      if (entered_) owner_.busy_.store(false, std::memory_order_release);
    }
    Scope(const Scope&) = delete;
    Status status(std::string_view what) const {
      if (entered_) return {};
      return error(Code::misuse, "this ", what, " is in use by another thread; a ", what, " has one caller at a time");
    }

   private:
    OneCaller& owner_;
    bool entered_;
  };

 private:
  std::atomic<bool> busy_{false};
};

// The error handle of a status; null for success. Never throws: without memory it is the static out-of-memory error.
epl_error* make_error(const Status& status) noexcept;
// The status of the exception being handled.
Status current_exception_status() noexcept;

// Every fallible entry point runs its body here: f returns a Status, and exceptions become one.
template <class F>
epl_error* guarded(F&& f) noexcept {
  try {
    return make_error(f());
  } catch (...) {
    return make_error(current_exception_status());
  }
}

// A text argument; null with length 0 is empty.
inline Result<std::string_view> text_argument(const char* data, size_t length, std::string_view name) {
  if (data == nullptr && length > 0) return invalid(name, " is NULL but its length is ", length);
  if (length > (size_t{1} << 40)) return invalid(name, " has an impossible length, ", length);
  return std::string_view(data ? data : "", length);
}
#define EPL_TEXT_ARGUMENT(name) EPL_ASSIGN(std::string_view name##_text, ::epl::capi::text_argument(name, name##_length, #name))
// A pointer that must not be NULL.
#define EPL_REQUIRE(name) \
  do { \
    if ((name) == nullptr) return ::epl::invalid(#name " is NULL"); \
  } while (0)

// Reads an option struct: copies what both sides know, and refuses bytes that are set but unknown here.
Status copy_options(const void* source, void* target, uint64_t known_size, std::string_view name);
template <class T>
Status copy_options(const T* source, T& target, std::string_view name) {
  return source ? copy_options(static_cast<const void*>(source), &target, sizeof(T), name) : Status();
}
// Writes the prefix of `source` that the caller's struct has room for; its struct_size stays.
Status write_output(const void* source, void* target, uint64_t known_size, std::string_view name);
template <class T>
Status write_output(const T& source, T* target, std::string_view name) {
  return write_output(static_cast<const void*>(&source), target, sizeof(T), name);
}

epl_text* make_text(std::string text);
Result<DType> dtype_argument(int32_t dtype);
inline int32_t dtype_constant(DType type) { return static_cast<int32_t>(type) + 1; }
Result<TensorType> type_argument(int32_t dtype, const int64_t* dims, int32_t ndim);
epl_port make_port(const std::string& name, DType dtype, const Shape& dims);

// The engine behind all handles that came from it.
struct Engine {
  Host host;
  epl_engine_options options{};
  ~Engine();
};
std::shared_ptr<const void> allocate_bytes(const std::shared_ptr<Engine>& engine, size_t bytes);

}  // namespace epl::capi

struct epl_error {
  epl::capi::Counted counted;
  int32_t code = 0;
  std::string message, where;
};
struct epl_text {
  epl::capi::Counted counted;
  std::string text;
};
struct epl_engine {
  epl::capi::Counted counted;
  std::shared_ptr<epl::capi::Engine> engine;
};
struct epl_tensor {
  epl::capi::Counted counted;
  std::shared_ptr<epl::capi::Engine> engine;
  epl::Tensor tensor;
  bool read_only = false;
};
struct epl_cancel {
  epl::capi::Counted counted;
  std::shared_ptr<epl::StopToken> token;
};
