// What is known of the strategy's keys besides what people read: for those who draw strategies, and what a key needs.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/strategy/strategy.h"

namespace epl {

// Of the words that a key may take, those that this version runs.
std::vector<std::string> built_words(const ConfigKey& key);
// Whether the key is about where and when the work is done. Then it changes no bit at `reproducible.level` = `data`.
bool keeps_bits(const ConfigKey& key);

// Keys that do nothing unless another key is set. Such a key by itself is an error: who sets it believes that something
// is done.
// A key that several rows name needs one of them.
struct KeyNeed {
  std::string_view key;                 // does nothing
  std::string_view other;               // unless this one is
  std::vector<std::string_view> words;  // one of these; empty: anything but its default
};
std::span<const KeyNeed> key_needs();

// An error that names the first key that does nothing, and what it needs.
Status check_needs(const Strategy& strategy);

}  // namespace epl
