// What the makers of dataset handles share.
#pragma once

#include <memory>
#include <vector>

#include "core/capi/objects.h"
#include "core/runtime/session_checkpoint.h"

namespace epl::capi {

using Tensors = std::vector<std::unique_ptr<epl_tensor>>;

// What `next` hands out, a tensor of each type.
void add_tensor(Tensors& tensors, const epl_dataset& dataset, const TensorType& type);
// Binds a dataset to an entry of the session's plan, to the samples that its process takes, unless it is bound to that
// plan already.
Status bind_for(epl_dataset& dataset, const Session& session, EntryKind kind);
// What a checkpoint is to know of it; of NULL nothing.
TrainingData training_data(const epl_dataset* dataset);

}  // namespace epl::capi
