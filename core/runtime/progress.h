// How far a session is, for threads that only look: lock-free, and never a mixture of two steps.
// Thread safety: one writer at a time; any threads read.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace epl {

class Progress {
 public:
  struct Numbers {
    int64_t steps = 0;  // done
    // Of the last of them; before there is one, and after a checkpoint was loaded, as they are here.
    double loss = std::bit_cast<double>(uint64_t{0x7ff8000000000000});
    double gradient_norm = -1, learning_rate = 0, seconds = 0;
  };

  Progress() { write({}); }

  // A sequence lock: odd while the numbers change. A reader that has seen one new number sees the new sequence too.
  void write(const Numbers& numbers) {
    const uint64_t before = sequence_.load(std::memory_order_relaxed);
    sequence_.store(before + 1, std::memory_order_relaxed);
    const auto words = std::bit_cast<Words>(numbers);
    for (size_t i = 0; i < words.size(); ++i) words_[i].store(words[i], std::memory_order_release);
    sequence_.store(before + 2, std::memory_order_release);
  }

  Numbers read() const {
    for (;;) {
      const uint64_t before = sequence_.load(std::memory_order_acquire);
      Words words;
      for (size_t i = 0; i < words.size(); ++i) words[i] = words_[i].load(std::memory_order_acquire);
      if (before % 2 == 0 && sequence_.load(std::memory_order_relaxed) == before) return std::bit_cast<Numbers>(words);
    }
  }

 private:
  using Words = std::array<uint64_t, sizeof(Numbers) / sizeof(uint64_t)>;
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  std::atomic<uint64_t> sequence_{0};
  std::array<std::atomic<uint64_t>, std::tuple_size_v<Words>> words_{};
};

}  // namespace epl
