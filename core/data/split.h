// A share of a file's samples held out from training: the same ones for the same file, share and seed, whatever else is
// asked.
#pragma once

#include <memory>
#include <string_view>

#include "core/data/reader.h"

namespace epl {

// `part`: "all", "train" or "held_out", which has `share` of the samples, drawn by `seed`. Both parts must have some.
Result<std::unique_ptr<Reader>> split_reader(std::unique_ptr<Reader> full, std::string_view part, double share,
                                             uint64_t seed);

}  // namespace epl
