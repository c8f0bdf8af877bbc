// Outputs of a prediction: new tensors, or the host's own.
#pragma once

#include <vector>

#include "core/capi/objects.h"

namespace epl::capi {

// The host's tensors that a predict entry writes to; NULL: not wanted.
Status take_outputs(const CompiledPlan& plan, epl_tensor* const* outputs, size_t count, std::vector<Tensor>& room);
// Predicts into new tensors.
Status predict_new(const std::shared_ptr<Engine>& engine, Session& session, std::span<const Tensor> inputs,
                   const CallOptions& options, epl_tensor** outputs, size_t count);

}  // namespace epl::capi
