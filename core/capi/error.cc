// Errors and texts as handles, option structs, and where exceptions end.
#include <algorithm>
#include <cstring>

#include "core/base/shown.h"
#include "core/capi/handle.h"

namespace epl::capi {

std::atomic<int64_t> Counted::alive{0};

namespace {
// Given out when there is no memory for an error; it is never destroyed and not counted.
const char no_memory_message[] = "out of memory";
char no_memory_error;
epl_error* out_of_memory() { return reinterpret_cast<epl_error*>(&no_memory_error); }
bool is_static(const epl_error* e) { return reinterpret_cast<const char*>(e) == &no_memory_error; }
}  // namespace

std::string_view handle_name(HandleType type) {
  static constexpr std::string_view names[] = {"object",  "error",        "text",        "engine",  "model",
                                               "trainer", "strategy",     "plan",        "session", "dataset",
                                               "tensor",  "cancel token", "evaluation",  "store",   "feed",
                                               "event",   "predictor",    "folder lock", "job"};
  return names[static_cast<size_t>(type)];
}

namespace {

std::string_view without_prefix(std::string_view name) {
  for (const std::string_view prefix : {"epl_", "x_"}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  return name;
}

// "epl_session_save_to" as the user of any language knows it: "session.save_to".
std::string call_in_words(std::string_view call) {
  std::string out(without_prefix(call));
  for (auto type = static_cast<uint64_t>(HandleType::error); type <= static_cast<uint64_t>(HandleType::job); ++type) {
    const std::string_view name = handle_name(static_cast<HandleType>(type)), word = name.substr(0, name.find(' '));
    if (!out.starts_with(word) || out.size() <= word.size() || out[word.size()] != '_') continue;
    out[word.size()] = '.';
    break;
  }
  return out;
}

// "epl_plan_options": "plan options".
std::string struct_in_words(std::string_view name) {
  std::string out(without_prefix(name));
  std::ranges::replace(out, '_', ' ');
  return out;
}

}  // namespace

epl_error* make_error(const Status& status, const char* call) noexcept {
  if (status.ok()) return nullptr;
  try {
    auto made = std::make_unique<epl_error>();
    made->code = static_cast<int32_t>(status.code());
    made->message = full_message(status.message());
    // Nothing else says which call failed: memory may run out anywhere.
    if (status.code() == Code::out_of_memory && call != nullptr)
      made->message = cat(call_in_words(call), ": ", made->message);
    made->where = full_message(status.where());
    made->rank = status.rank();
    return made.release();
  } catch (...) {
    return out_of_memory();
  }
}

Status copy_options(const void* source, void* target, uint64_t known_size, std::string_view name) {
  uint64_t size = 0;
  std::memcpy(&size, source, sizeof size);
  if (size < sizeof size || size > 4096) {
    return invalid(name, ".struct_size is ", size, "; set it to sizeof(", name, ") or use its INIT macro");
  }
  const auto* bytes = static_cast<const unsigned char*>(source);
  for (uint64_t i = known_size; i < size; ++i) {
    if (bytes[i] != 0) {
      return unsupported("byte ", i, " of the ", struct_in_words(name), " is set, which this library (", known_size,
                         " bytes) does not know; use a newer library or leave it zero");
    }
  }
  std::memcpy(target, source, std::min(size, known_size));
  std::memcpy(target, &known_size, sizeof known_size);
  return {};
}

Status check_output(const void* target, std::string_view name) {
  uint64_t size = 0;
  std::memcpy(&size, target, sizeof size);
  if (size >= sizeof size && size <= 4096) return {};
  return invalid(name, ".struct_size is ", size, "; set it to sizeof(", name, ") or use its INIT macro");
}

void put_output(const void* source, void* target, uint64_t known_size) {
  uint64_t size = 0;
  std::memcpy(&size, target, sizeof size);
  if (size < sizeof size) return;
  std::memcpy(static_cast<char*>(target) + sizeof size, static_cast<const char*>(source) + sizeof size,
              std::min(size, known_size) - sizeof size);
}

Status write_output(const void* source, void* target, uint64_t known_size, std::string_view name) {
  EPL_TRY(check_output(target, name));
  put_output(source, target, known_size);
  return {};
}

}  // namespace epl::capi

using epl::capi::alive;
using epl::capi::is_static;

uint32_t epl_version(void) { return EPL_VERSION_MAJOR * 1000000 + EPL_VERSION_MINOR * 1000 + EPL_VERSION_PATCH; }
uint32_t epl_abi_version(void) { return EPL_ABI_VERSION; }
int64_t epl_live_handles(void) { return epl::capi::Counted::alive.load(); }

int32_t epl_error_code(const epl_error* error) {
  if (error == nullptr) return EPL_OK;
  if (!is_static(error) && !error->marked()) return EPL_ERROR_MISUSE;  // destroyed, or no error at all
  return is_static(error) ? EPL_ERROR_OUT_OF_MEMORY : error->code;
}

const char* epl_error_message(const epl_error* error, size_t* length) {
  const bool own = !is_static(error) && alive(error);
  const char* text = own ? error->message.c_str() : is_static(error) ? epl::capi::no_memory_message : "";
  if (length) *length = own ? error->message.size() : std::strlen(text);
  return text;
}

const char* epl_error_where(const epl_error* error, size_t* length) {
  const bool none = is_static(error) || !alive(error);
  if (length) *length = none ? 0 : error->where.size();
  return none ? "" : error->where.c_str();
}

int64_t epl_error_rank(const epl_error* error) { return is_static(error) || !alive(error) ? -1 : error->rank; }

int32_t epl_error_retryable(const epl_error* error) {
  switch (epl_error_code(error)) {
    case EPL_ERROR_BUSY:
    case EPL_ERROR_CANCELLED:
    case EPL_ERROR_DEADLINE_EXCEEDED:
    case EPL_ERROR_OUT_OF_MEMORY:
    case EPL_ERROR_EXHAUSTED:
      return 1;
    default:
      return 0;
  }
}

epl_error* epl_error_create(int32_t code, const char* message, size_t message_length) {
  const bool known = code > EPL_OK && code <= static_cast<int32_t>(epl::last_code);
  const std::string_view text(message ? message : "", message ? message_length : 0);
  try {
    return epl::capi::make_error(
        epl::Status(known ? static_cast<epl::Code>(code) : epl::Code::internal, std::string(text)), nullptr);
  } catch (...) {
    return epl::capi::out_of_memory();
  }
}

void epl_error_destroy(epl_error* error) {
  if (!is_static(error)) epl::capi::destroy(error);
}

const char* epl_error_code_name(int32_t code) {
  if (code < 0 || code > static_cast<int32_t>(epl::last_code)) return "unknown";
  return epl::code_name(static_cast<epl::Code>(code)).data();  // names are literals
}

const char* epl_text_data(const epl_text* text, size_t* length) {
  const bool there = alive(text);
  if (length) *length = there ? text->text.size() : 0;
  return there ? text->text.c_str() : "";
}
void epl_text_destroy(epl_text* text) { epl::capi::destroy(text); }
