// Gloo's own all-reduce, for comparison in the same processes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/status.h"

namespace epl {

class GlooPeer {
 public:
  virtual ~GlooPeer() = default;
  virtual void all_reduce(float* values, int64_t count) = 0;
};

// `folder` is where the ranks meet. Gloo's reasons become the status's. Unsupported where it was built without Gloo.
Result<std::unique_ptr<GlooPeer>> join_gloo(const std::string& folder, int rank, int size);

}  // namespace epl
