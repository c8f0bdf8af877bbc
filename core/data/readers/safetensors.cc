// Rows of safetensors files: every tensor has the samples (or the steps) as its first dimension.
#include "core/formats/safetensors.h"

#include "core/data/array_reader.h"

namespace epl {
namespace {

Result<std::unique_ptr<Reader>> open_safetensors(const ReaderRequest& request) {
  EPL_ASSIGN(std::shared_ptr<const FileReader> file, FileReader::open(request.path));
  EPL_ASSIGN(const std::shared_ptr<const Safetensors> header, Safetensors::open(file));
  std::vector<SampleArray> arrays;
  for (const SafetensorsEntry& entry : header->entries()) {
    SampleArray array;
    array.name = entry.name;
    array.type = entry.type;
    array.file = file;
    array.offset = entry.offset;
    arrays.push_back(std::move(array));
  }
  return read_arrays(request.path, std::move(arrays), request.options.text("fields"));
}

// The length of a header, below the format's limit, and the header's first letters.
bool looks_like_safetensors(std::string_view head) {
  return head.size() >= 10 && head[8] == '{' && (head[9] == '"' || head[9] == '}') &&
         head.substr(4, 4) == std::string_view("\0\0\0\0", 4);
}

}  // namespace

EPL_READER(safetensors) {
  return {.doc = "Tensors whose first dimension counts samples; each is a field.",
          .options = {fields_option()},
          .suffixes = {".safetensors"},
          .recognises = looks_like_safetensors,
          .open = open_safetensors};
}

}  // namespace epl
