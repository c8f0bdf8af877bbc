// What is known of the strategy's keys besides what people read: for those who draw strategies.
#pragma once

#include <string>
#include <vector>

#include "core/strategy/strategy.h"

namespace epl {

// Of the words that a key may take, those that this version runs.
std::vector<std::string> built_words(const ConfigKey& key);
// Whether the key is about where and when the work is done. Then it changes no bit at `reproducible.level` = `data`.
bool keeps_bits(const ConfigKey& key);

}  // namespace epl
