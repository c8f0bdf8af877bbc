// The trained weights of a session, in the forms that others read.
#pragma once

#include <string>

#include "core/runtime/session.h"

namespace epl {

// The model's file with the session's weights, for inference or to train on.
Status export_model(const Session& session, const std::string& path, bool for_inference);
// The weights by their names in the model, as safetensors.
Status export_weights(const Session& session, const std::string& path);
// The low-rank adapters, as Hugging Face PEFT reads them.
Status export_adapters(const Session& session, const std::string& folder);

}  // namespace epl
