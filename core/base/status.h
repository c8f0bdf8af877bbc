// Errors as values. Expected failures are returned as `Status` or `Result<T>`; they never throw.
//
// A Status carries a code, a message that names what was wrong and what to do, and the place it concerns (a node, a
// file offset, a dimension). Thread safety: a Status is a value; copies are independent.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/text.h"

namespace epl {

// The values are those of EPL_ERROR_* in include/epl.h and never change.
enum class Code : int {
  ok = 0,
  invalid_argument = 1,  // the caller passed something wrong
  invalid_model = 2,     // a model file is damaged or contradicts itself
  unsupported = 3,       // known, but not built (yet) or not possible here
  not_found = 4,         // a file, key, name that does not exist
  io = 5,                // the operating system refused a read or a write
  out_of_memory = 6,
  cancelled = 7,
  deadline_exceeded = 8,
  peer_failed = 9,  // another rank died or returned an error
  misuse = 10,      // calls in an order or on threads that the rules forbid
  not_finite = 11,  // NaN or infinity where the step had to stop
  internal = 12,    // a bug of ours
  data_loss = 13,   // a checkpoint or plan file is damaged
  busy = 14,        // another thread is inside a call with this handle
  state_lost = 15,  // the state of a session is no longer that of one step
  exhausted = 16,   // no thread, descriptor or space on the disk
};
inline constexpr Code last_code = Code::exhausted;
std::string_view code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message, std::string where = {})
      : state_(std::make_shared<State>(State{code, std::move(message), std::move(where), -1})) {}

  // Out of memory, said without needing any: for where even a message would find no room.
  static Status no_memory() noexcept;

  bool ok() const { return state_ == nullptr; }
  Code code() const { return state_ ? state_->code : Code::ok; }
  const std::string& message() const { return state_ ? state_->message : empty(); }
  // The node, instruction or file the status concerns; empty when there is none.
  const std::string& where() const { return state_ ? state_->where : empty(); }
  // The rank of the job that it concerns; -1 when there is none.
  int64_t rank() const { return state_ ? state_->rank : -1; }
  // The same status naming a place, unless it already names a more precise one.
  Status at(std::string_view where) const;
  // The same status about a rank of the job, unless it is about one already; -1 changes nothing.
  Status of_rank(int64_t rank) const;
  // The same status with `context: ` in front of its message.
  Status with_context(std::string_view context) const;
  std::string to_string() const;

 private:
  struct State {
    Code code;
    std::string message;
    std::string where;
    int64_t rank;
  };
  explicit Status(State state) : state_(std::make_shared<State>(std::move(state))) {}
  static const std::string& empty();
  std::shared_ptr<const State> state_;
};

template <class... Args> Status error(Code code, const Args&... args) { return Status(code, cat(args...)); }
template <class... Args> Status invalid(const Args&... args) { return Status(Code::invalid_argument, cat(args...)); }
template <class... Args> Status unsupported(const Args&... args) { return Status(Code::unsupported, cat(args...)); }

// A value or the status that says why there is none.
template <class T> class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit on purpose
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

#define EPL_CONCAT_INNER(a, b) a##b
#define EPL_CONCAT(a, b) EPL_CONCAT_INNER(a, b)

// Evaluates a Status expression and returns it from the enclosing function if it is an error.
#define EPL_TRY(expression)                                                           \
  do {                                                                                \
    if (::epl::Status epl_status = (expression); !epl_status.ok()) return epl_status; \
  } while (0)

// EPL_ASSIGN(auto x, f()): x is the value of the Result, or the enclosing function returns its status.
#define EPL_ASSIGN(declaration, expression) EPL_ASSIGN_INNER(EPL_CONCAT(epl_result_, __LINE__), declaration, expression)
#define EPL_ASSIGN_INNER(result, declaration, expression) \
  auto result = (expression);                             \
  if (!result.ok()) return result.status();               \
  declaration = std::move(result).value()

}  // namespace epl
