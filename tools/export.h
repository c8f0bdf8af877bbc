// Files of trained weights: for inference, for further training, and of weights alone.
#pragma once

#include <string>

#include "tools/job.h"

namespace epl::tools {

// Writes the session's model to `path` and says in a sentence what the file is for.
std::string export_onnx(const Session& session, const Model& model, const JobOptions& o, const std::string& path,
                        bool for_training);

// The low-rank adapters alone.
void export_adapters(const Session& session, const std::string& folder);

}  // namespace epl::tools
