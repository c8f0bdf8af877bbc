// What every handle of the C API shares: counting, a mark that shows whether a pointer is a live handle, the check for
// two callers, and the boundary where exceptions end.
//
// A handle is a small struct on the heap that shares ownership of what it shows, so the order in which a host destroys
// handles does not matter.
#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <new>
#include <string>

#include "core/base/exception.h"
#include "core/base/float_environment.h"
#include "core/base/host.h"
#include "core/base/status.h"
#include "core/base/stop.h"
#include "core/base/tensor.h"
#include "core/ir/host_op.h"
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

enum class HandleType : uint64_t {
  error = 1,
  text,
  engine,
  model,
  trainer,
  strategy,
  plan,
  session,
  dataset,
  tensor,
  cancel,
  evaluation,
  store,
  feed,
  event,
  predictor,
  folder_lock,
  job
};
// "error", ...: messages have no words of C, because every language has its own for epl_error and NULL.
std::string_view handle_name(HandleType type);

// The base of all handles. Its mark makes a handle of another type, and usually a destroyed one, an error instead of a
// crash. It is not the first member, because allocators overwrite the beginning of freed memory.
template <HandleType handle_type> class Handle {
 public:
  static constexpr HandleType type = handle_type;
  bool marked() const { return mark_.load(std::memory_order_relaxed) == live; }

 protected:
  Handle() = default;
  ~Handle() { mark_.store(0, std::memory_order_relaxed); }

 private:
  static constexpr uint64_t live = 0x45504c5f68616e00u + static_cast<uint64_t>(handle_type);
  [[maybe_unused]] uint64_t room_[2] = {};
  std::atomic<uint64_t> mark_{live};
  Counted counted_;
};

template <class H> bool alive(const H* handle) { return handle != nullptr && handle->marked(); }

// One caller at a time: the second gets an error instead of a data race. A destroy during a call is done by the call at
// its end. Handles of this kind may have threads, which a child of fork() does not have.
template <HandleType handle_type> class ExclusiveHandle : public Handle<handle_type> {
 public:
  bool enter() {
    State expected = State::idle;
    return state_.compare_exchange_strong(expected, State::busy, std::memory_order_acquire);
  }
  // True where the handle was destroyed meanwhile: who leaves it deletes it.
  bool leave() {
    State expected = State::busy;
    return !state_.compare_exchange_strong(expected, State::idle, std::memory_order_release, std::memory_order_acquire);
  }
  // True where the caller is to delete it now.
  bool doom() {
    for (;;) {
      State expected = State::idle;
      if (state_.compare_exchange_strong(expected, State::doomed, std::memory_order_acq_rel)) return true;
      if (expected == State::doomed) return false;
      if (state_.compare_exchange_strong(expected, State::doomed, std::memory_order_acq_rel)) return false;
    }
  }
  bool doomed() const { return state_.load(std::memory_order_relaxed) == State::doomed; }
  bool of_this_process() const { return process_ == ::getpid(); }

 private:
  enum class State : uint8_t { idle, busy, doomed };
  std::atomic<State> state_{State::idle};
  pid_t process_ = ::getpid();
};

// For calls that any thread may make.
template <class H> Status check_process(const H& handle) {
  if (handle.of_this_process()) return {};
  return error(Code::misuse, "this ", handle_name(H::type),
               " belongs to the process that called fork(); make a new one here");
}

// A call that has an exclusive handle to itself.
template <class H> class Caller {
 public:
  explicit Caller(H& handle) : handle_(handle), here_(handle.of_this_process()), entered_(here_ && handle.enter()) {}
  ~Caller() {
    if (entered_ && handle_.leave()) delete &handle_;
  }
  Caller(const Caller&) = delete;
  Status status() const {
    if (entered_) return {};
    const std::string_view name = handle_name(H::type);
    if (!here_) return check_process(handle_);
    if (handle_.doomed()) return error(Code::misuse, "this ", name, " was destroyed; the call that runs is its last");
    return error(Code::busy, "this ", name, " is in use by another thread; it has one caller at a time");
  }

 private:
  H& handle_;
  bool here_, entered_;
};

template <class H>
concept Exclusive = requires(H& handle) { handle.doom(); };

// What every epl_..._destroy does. NULL is accepted; what is not a live handle of the type is left alone.
template <class H> void destroy(H* handle) noexcept {
  if (!alive(handle)) return;
  if constexpr (Exclusive<H>) {
    if (!handle->of_this_process())
      handle->abandon();  // its threads do not exist in this process: waiting for them would never end
    else if (!handle->doom())
      return;
  }
  delete handle;
}

// A pointer that must not be NULL, and must be a live handle if it is one.
template <class T> Status check_pointer(const T* pointer, std::string_view name) {
  if (pointer == nullptr) return invalid(name, " is missing");
  if constexpr (requires { pointer->marked(); }) {
    if (!pointer->marked())
      return error(Code::misuse, name, " is not a live ", handle_name(T::type),
                   ": it was destroyed, or is an object of another type");
  }
  return {};
}
#define EPL_REQUIRE(name) EPL_TRY(::epl::capi::check_pointer(name, #name))

// The error handle of a status; null for success. Its texts are made UTF-8 here. Never throws: without memory it is the
// static out-of-memory error. The message of an out-of-memory status begins with `call`.
epl_error* make_error(const Status& status, const char* call) noexcept;

// Every entry point that can fail runs its body here: f returns a Status, exceptions become one, and numbers are
// computed in our floating-point environment. `call` is the entry point's own name.
template <class F> epl_error* guarded(F&& f, const char* call = __builtin_FUNCTION()) noexcept {
  FloatEnvironment environment;
  try {
    return make_error(f(), call);
  } catch (...) {
    return make_error(current_exception_status(), call);
  }
}

// An entry point that gives a handle: f returns a Result<std::unique_ptr<H>>. The caller's pointer is NULL until the
// call has succeeded.
template <class H, class F>
epl_error* giving(H** out, std::string_view name, F&& f, const char* call = __builtin_FUNCTION()) noexcept {
  if (out != nullptr) *out = nullptr;
  return guarded(
      [&]() -> Status {
        if (out == nullptr) return invalid(name, " is missing");
        EPL_ASSIGN(std::unique_ptr<H> made, f());
        *out = made.release();
        return {};
      },
      call);
}
// The same for a text: f returns a Result<std::string>.
template <class F>
epl_error* giving_text(epl_text** out, std::string_view name, F&& f, const char* call = __builtin_FUNCTION()) noexcept;

// An entry point of a handle with one caller at a time.
template <class H, class F> Status with_caller(H* handle, std::string_view name, F&& f) {
  EPL_TRY(check_pointer(handle, name));
  Caller<H> caller(*handle);
  EPL_TRY(caller.status());
  return f();
}

// A text argument; null with length 0 is empty.
inline Result<std::string_view> text_argument(const char* data, size_t length, std::string_view name) {
  if (data == nullptr && length > 0) return invalid(name, " is missing, but its length is ", length);
  if (length > (size_t{1} << 40)) return invalid(name, " has an impossible length, ", length);
  return std::string_view(data ? data : "", length);
}
#define EPL_TEXT_ARGUMENT(name) \
  EPL_ASSIGN(std::string_view name##_text, ::epl::capi::text_argument(name, name##_length, #name))
// Reads an option struct: copies what both sides know, and refuses bytes that are set but unknown here.
Status copy_options(const void* source, void* target, uint64_t known_size, std::string_view name);
template <class T> Status copy_options(const T* source, T& target, std::string_view name) {
  return source ? copy_options(static_cast<const void*>(source), &target, sizeof(T), name) : Status();
}
// Whether an output struct can be written, asked before anything is done.
Status check_output(const void* target, std::string_view name);
// Writes the prefix of `source` that the caller's struct has room for; its struct_size stays.
Status write_output(const void* source, void* target, uint64_t known_size, std::string_view name);
// The same where nothing can be said of a size that is none: then it writes nothing.
void put_output(const void* source, void* target, uint64_t known_size);
template <class T> Status write_output(const T& source, T* target, std::string_view name) {
  return write_output(static_cast<const void*>(&source), target, sizeof(T), name);
}

Result<DType> dtype_argument(int32_t dtype);
inline int32_t dtype_constant(DType type) { return static_cast<int32_t>(type) + 1; }
Result<TensorType> type_argument(int32_t dtype, const int64_t* dims, int32_t ndim);
// Fills the caller's struct.
Status write_info(const std::string& name, DType dtype, const Shape& dims, epl_tensor_info* info);
// That the host can read it.
Status check_on_host(const epl_tensor& tensor, std::string_view name);

// The engine behind all handles that came from it.
struct Engine {
  Host host;
  std::shared_ptr<HostOps> ops = std::make_shared<HostOps>();  // that the host has added
  epl_engine_options options{};
  ~Engine();
};

// What a call was given: how long it may take, and what may end it.
struct Call {
  Stop stop;
  std::shared_ptr<StopToken> token;  // kept alive while the call runs
  double started = 0;                // on the host's clock
  int64_t samples = 0;               // of slices: how many count; 0: all
  int64_t stream = 0;                // of the host program, for tensors on a GPU
};
// What the caller gives, and the same refused if the call should have ended already.
Result<Call> read_call(const Engine& engine, const epl_call_options* options);
Result<Call> begin_call(const Engine& engine, const epl_call_options* options);

std::shared_ptr<const void> allocate_bytes(const std::shared_ptr<Engine>& engine, size_t bytes);

}  // namespace epl::capi

struct epl_error : epl::capi::Handle<epl::capi::HandleType::error> {
  int32_t code = 0;
  int64_t rank = -1;
  std::string message, where;
};
struct epl_text : epl::capi::Handle<epl::capi::HandleType::text> {
  std::string text;
};
struct epl_engine : epl::capi::Handle<epl::capi::HandleType::engine> {
  std::shared_ptr<epl::capi::Engine> engine;
};
namespace epl {
class Dataset;
}

struct epl_tensor : epl::capi::Handle<epl::capi::HandleType::tensor> {
  const epl::Dataset* source = nullptr;  // of which this is tensor `asked` of a batch; it lives longer
  size_t asked = 0;
  std::shared_ptr<epl::capi::Engine> engine;
  epl::Tensor tensor;
  bool read_only = false;
};
struct epl_cancel : epl::capi::Handle<epl::capi::HandleType::cancel> {
  std::shared_ptr<epl::StopToken> token;
};

template <class F>
epl_error* epl::capi::giving_text(epl_text** out, std::string_view name, F&& f, const char* call) noexcept {
  return giving(
      out, name,
      [&]() -> Result<std::unique_ptr<epl_text>> {
        EPL_ASSIGN(std::string text, f());
        auto made = std::make_unique<epl_text>();
        made->text = to_utf8(text);
        return made;
      },
      call);
}
