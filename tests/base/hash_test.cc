// XXH64 against the values that its own documentation gives.
#include "core/base/hash.h"

#include <gtest/gtest.h>

#include <string_view>

namespace epl::hash_test {
namespace {

uint64_t hash(std::string_view text) { return hash64(std::as_bytes(std::span(text.data(), text.size()))); }

TEST(Hash64, KnownValues) {
  EXPECT_EQ(hash(""), 0xef46db3751d8e999u);
  EXPECT_EQ(hash("a"), 0xd24ec4f1a98c6e5bu);
  EXPECT_EQ(hash("abc"), 0x44bc2cf5ad770999u);
  EXPECT_EQ(hash("Nobody inspects the spammish repetition"), 0xfbcea83c8a378bf1u);
}

TEST(Hash64, ChunksGiveWhatAllBytesGive) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 37 + i / 7);
  for (size_t first = 0; first <= text.size(); first += 13) {
    for (size_t second = first; second <= text.size(); second += 29) {
      Hash64 pieces;
      pieces.add(text.data(), first);
      pieces.add(text.data() + first, second - first);
      pieces.add(text.data() + second, text.size() - second);
      ASSERT_EQ(pieces.value(), hash(text)) << first << " " << second;
    }
  }
}

}  // namespace
}  // namespace epl::hash_test
