// What the first field of the next batches holds.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "core/data/dataset.h"

namespace epl {

inline std::vector<int64_t> take(Dataset& dataset, int64_t batches) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < batches; ++i) {
    auto batch = dataset.next();
    EXPECT_TRUE(batch.ok()) << batch.status().to_string();
    for (int64_t value : (*batch)[0].as<int64_t>()) out.push_back(value);
  }
  return out;
}

}  // namespace epl
