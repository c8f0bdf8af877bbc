// The trained weights of a session, in the forms that others read. Over processes, each process calls these at the same
// time, and that of rank 0 writes.
#pragma once

#include <string>

#include "core/runtime/session.h"

namespace epl {

// The model's file with the session's weights, for inference or to train on.
Status export_model(Session& session, const std::string& path, bool for_inference);
// The weights by their names in the model, as safetensors.
Status export_weights(Session& session, const std::string& path);
// The low-rank adapters, as Hugging Face PEFT reads them.
Status export_adapters(Session& session, const std::string& folder);

}  // namespace epl
