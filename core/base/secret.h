// What nobody else may know: bytes that stand in no core dump and are overwritten when the last copy goes.
#pragma once

#include <string.h>  // explicit_bzero
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>

namespace epl {

class Secret {
 public:
  Secret() = default;
  // Implicit, so that a secret is set like a text. Throws std::bad_alloc.
  Secret(std::string_view text) : room_(text.empty() ? nullptr : std::make_shared<const Room>(text)) {}
  Secret(const std::string& text) : Secret(std::string_view(text)) {}
  Secret(const char* text) : Secret(std::string_view(text)) {}
  std::string_view view() const { return room_ ? room_->view() : std::string_view(); }
  bool empty() const { return view().empty(); }

 private:
  // Pages of its own, because a core dump leaves out whole pages.
  class Room {
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
  std::shared_ptr<const Room> room_;  // copies share it; none for an empty one
};

// Overwrites what stands there, and leaves it empty.
inline void wipe(std::string& text) {
  ::explicit_bzero(text.data(), text.size());
  text.clear();
}

// For messages: a text in which a secret may stand, as an id with a slip in it. Runs of six and more hexadecimal digits
// are left out, which is as epl_store_id writes one.
inline std::string without_secrets(std::string_view text) {
  constexpr size_t short_run = 6;
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t end = std::min(text.find_first_not_of("0123456789abcdefABCDEF", i), text.size());
    if (end - i < short_run) {
      out += text.substr(i, std::max<size_t>(end - i, 1));
    } else {
      out += "...";
    }
    i = std::max(end, i + 1);
  }
  return out;
}

}  // namespace epl
