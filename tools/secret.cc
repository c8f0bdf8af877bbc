#include "tools/secret.h"

#include <string.h>  // explicit_bzero
#include <sys/mman.h>
#include <sys/random.h>

#include <cstring>
#include <new>

#include "tools/api.h"

namespace epl::tools {

// Pages of its own, because a core dump leaves out whole pages.
class SecretText::Room {
 public:
  explicit Room(std::string_view text) : bytes_(text.size()) {
    data_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
    ::madvise(data_, bytes_, MADV_DONTDUMP);
    std::memcpy(data_, text.data(), bytes_);
  }
  Room(const Room&) = delete;
  ~Room() {
    ::explicit_bzero(data_, bytes_);
    ::munmap(data_, bytes_);
  }
  std::string_view view() const { return {static_cast<const char*>(data_), bytes_}; }

 private:
  void* data_ = nullptr;
  const size_t bytes_;
};

SecretText::SecretText(std::string&& text) {
  std::string_view kept = text;
  while (!kept.empty() && (kept.back() == '\n' || kept.back() == '\r')) kept.remove_suffix(1);
  if (!kept.empty()) room_ = std::make_shared<const Room>(kept);
  ::explicit_bzero(text.data(), text.size());
  text.clear();
}

std::string_view SecretText::view() const { return room_ ? room_->view() : std::string_view(); }

SecretText drawn_secret() {
  unsigned char bytes[32];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    throw ApiError(EPL_ERROR_IO, "the system gives no random numbers", "");
  std::string out;
  out.reserve(2 * sizeof bytes);
  for (const unsigned char byte : bytes) out += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  ::explicit_bzero(bytes, sizeof bytes);
  return SecretText(std::move(out));
}

}  // namespace epl::tools
