// Rows of safetensors files: every tensor has the samples (or the steps) as its first dimension.
#include "core/data/reader.h"
#include "core/data/safetensors.h"

namespace epl {
namespace {

class SafetensorsReader : public Reader {
 public:
  static Result<std::unique_ptr<Reader>> open(const std::string& path, const Attributes&) {
    auto reader = std::make_unique<SafetensorsReader>();
    EPL_ASSIGN(reader->file_, Safetensors::open(path));
    for (const SafetensorsEntry& entry : reader->file_->entries()) {
      if (entry.type.shape.empty()) return Status(Code::invalid_argument, cat("tensor \"", entry.name, "\" is a scalar; rows need a first dimension"), path);
      if (reader->fields_.empty()) reader->samples_ = entry.type.shape[0];
      if (entry.type.shape[0] != reader->samples_) {
        return Status(Code::invalid_argument, cat("tensor \"", entry.name, "\" has ", entry.type.shape[0], " rows, \"", reader->fields_[0].first, "\" has ", reader->samples_), path);
      }
      TensorType type = entry.type;
      type.shape.erase(type.shape.begin());
      reader->fields_.emplace_back(entry.name, type);
      reader->tensors_.push_back(reader->file_->tensor(entry));
    }
    if (reader->fields_.empty()) return Status(Code::invalid_argument, "the file holds no tensor", path);
    return std::unique_ptr<Reader>(std::move(reader));
  }

  const std::vector<std::pair<std::string, TensorType>>& fields() const override { return fields_; }
  int64_t samples() const override { return samples_; }
  Status read(int64_t index, int field, void* target) const override {
    const int64_t bytes = fields_[static_cast<size_t>(field)].second.bytes();
    return tensors_[static_cast<size_t>(field)].read(index * bytes, bytes, target);
  }

 private:
  std::shared_ptr<const Safetensors> file_;
  std::vector<std::pair<std::string, TensorType>> fields_;
  std::vector<Tensor> tensors_;
  int64_t samples_ = 0;
};

}  // namespace

EPL_READER(safetensors) {
  return {.doc = "Tensors whose first dimension counts samples; each is a field.",
          .suffixes = {".safetensors"},
          .open = SafetensorsReader::open};
}

}  // namespace epl
