// The trained weights of a session, in the forms that others read. Over processes, each process calls these at the same
// time, and that of rank 0 writes.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/base/file.h"
#include "core/runtime/session.h"

namespace epl {

// The model's file with the session's weights, for inference or to train on.
Status export_model(Session& session, const std::string& path, bool for_inference);
// The weights by their names in the model, as safetensors.
Status export_weights(Session& session, const std::string& path);
// The low-rank adapters, as Hugging Face PEFT reads them.
Status export_adapters(Session& session, const std::string& folder);

// The formats that are one stream of bytes, by name, and what each is.
struct ExportFormat {
  std::string_view name, doc;
  Status (*write)(Session& session, ByteWriter* out);
};
std::span<const ExportFormat> export_formats();
// The process of rank 0 writes, and finishes the stream; the others give no writer. An error of the writer is passed on
// as it is.
Status export_to(Session& session, std::string_view format, ByteWriter* out);

}  // namespace epl
