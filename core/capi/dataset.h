// What the makers of dataset handles share.
#pragma once

#include <memory>
#include <vector>

#include "core/capi/objects.h"

namespace epl::capi {

using Tensors = std::vector<std::unique_ptr<epl_tensor>>;

// What `next` hands out, a tensor of each type.
void add_tensor(Tensors& tensors, const epl_dataset& dataset, const TensorType& type);

}  // namespace epl::capi
