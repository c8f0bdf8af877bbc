#include "core/base/status.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <system_error>

#include "core/base/check.h"
#include "core/base/exception.h"
#include "core/base/memory.h"

namespace epl {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::invalid_argument:
      return "invalid argument";
    case Code::invalid_model:
      return "invalid model";
    case Code::unsupported:
      return "unsupported";
    case Code::not_found:
      return "not found";
    case Code::io:
      return "input/output";
    case Code::out_of_memory:
      return "out of memory";
    case Code::cancelled:
      return "cancelled";
    case Code::deadline_exceeded:
      return "deadline exceeded";
    case Code::peer_failed:
      return "peer failed";
    case Code::misuse:
      return "misuse";
    case Code::not_finite:
      return "not finite";
    case Code::internal:
      return "internal";
    case Code::data_loss:
      return "data loss";
    case Code::busy:
      return "busy";
    case Code::state_lost:
      return "state lost";
    case Code::exhausted:
      return "exhausted";
  }
  return "unknown";
}

const std::string& Status::empty() {
  static const std::string none;
  return none;
}

Status Status::no_memory() noexcept {
  // Never destroyed, and short enough for the texts to need no memory of their own.
  alignas(State) static unsigned char room[sizeof(State)];
  static const State& state = *new (room) State{Code::out_of_memory, "out of memory", {}, -1};
  Status out;
  out.state_ = std::shared_ptr<const State>(std::shared_ptr<const State>(), &state);  // owns nothing
  return out;
}

Status Status::at(std::string_view where) const {
  if (ok() || !state_->where.empty()) return *this;
  return Status(State{state_->code, state_->message, std::string(where), state_->rank});
}

Status Status::of_rank(int64_t rank) const {
  if (ok() || rank < 0 || state_->rank >= 0) return *this;
  return Status(State{state_->code, state_->message, state_->where, rank});
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return Status(State{state_->code, cat(context, ": ", state_->message), state_->where, state_->rank});
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  if (where().empty()) return cat(code_name(code()), ": ", message());
  return cat(code_name(code()), ": ", message(), " (at ", where(), ")");
}

void check_failed(const char* expression, const char* file, int line, const std::string& message) {
  throw InternalError(cat(file, ":", line, ": check failed: ", expression, message.empty() ? "" : ": ", message));
}

Status current_exception_status() noexcept {
  try {
    try {
      throw;
    } catch (const InternalError& e) {
      return Status(Code::internal, e.what());
    } catch (const OutOfMemory& e) {
      return error(Code::out_of_memory, "there is no memory for ",
                   grouped(static_cast<int64_t>(std::min<size_t>(e.bytes(), INT64_MAX))), " bytes");
    } catch (const std::bad_alloc&) {
      return Status(Code::out_of_memory, "there is no memory for what this call needs");
    } catch (const std::length_error&) {
      return Status(Code::out_of_memory, "a size is beyond what memory can hold");
    } catch (const std::system_error& e) {  // of threads, and nothing else of ours
      return Status(Code::exhausted, cat("the operating system gives no more threads: ", e.what()));
    } catch (const std::exception& e) {
      return Status(Code::internal, cat("unexpected: ", e.what()));
    } catch (...) {
      return Status(Code::internal, "unexpected exception");
    }
  } catch (...) {
    return Status::no_memory();  // not even the status fits
  }
}

}  // namespace epl
