// Text as bytes: windows of `context` bytes with, for each, the byte that follows it.
#include <cmath>

#include "core/base/file.h"
#include "core/data/reader.h"

namespace epl {
namespace {

class TextReader : public Reader {
 public:
  static Result<std::unique_ptr<Reader>> open(const std::string& path, const Attributes& options) {
    auto reader = std::make_unique<TextReader>();
    EPL_ASSIGN(reader->file_, MappedFile::open(path));
    reader->context_ = options.integer("context");
    reader->stride_ = options.integer("stride");
    if (reader->context_ < 1 || reader->context_ > (int64_t{1} << 30)) return invalid("option context of reader text is ", reader->context_);
    if (reader->stride_ < 0) return invalid("option stride of reader text is ", reader->stride_);
    if (reader->stride_ == 0) reader->stride_ = reader->context_;
    EPL_ASSIGN(reader->bytes_, split(reader->file_->bytes(), options));
    int64_t size = static_cast<int64_t>(reader->bytes_.size());
    if (size < reader->context_ + 1) {
      return Status(Code::invalid_argument, cat("the ", options.text("split"), " part has ", size, " bytes; one window of context ", reader->context_, " needs ", reader->context_ + 1), path);
    }
    reader->samples_ = (size - reader->context_ - 1) / reader->stride_ + 1;
    TensorType type{DType::i64, {reader->context_}};
    reader->fields_ = {{options.text("input"), type}, {"target", type}};
    return std::unique_ptr<Reader>(std::move(reader));
  }

  const std::vector<std::pair<std::string, TensorType>>& fields() const override { return fields_; }
  int64_t samples() const override { return samples_; }
  Status read(int64_t index, int field, void* target) const override {
    const std::byte* from = bytes_.data() + index * stride_ + field;   // the target is one further
    auto* to = static_cast<int64_t*>(target);
    for (int64_t i = 0; i < context_; ++i) to[i] = std::to_integer<int64_t>(from[i]);
    return {};
  }

 private:
  static Result<std::span<const std::byte>> split(std::span<const std::byte> bytes, const Attributes& options) {
    const std::string& part = options.text("split");
    double share = options.number("held_out");
    if (!(share >= 0 && share < 1)) return invalid("option held_out of reader text is ", share, "; it is a share from 0 to 1");
    size_t cut = bytes.size() - static_cast<size_t>(std::floor(static_cast<double>(bytes.size()) * share));
    if (part == "all") return bytes;
    if (part == "train") return bytes.first(cut);
    if (part == "held_out") return bytes.subspan(cut);
    return invalid("option split of reader text is \"", part, "\"; it is all, train or held_out");
  }

  std::shared_ptr<const MappedFile> file_;
  std::span<const std::byte> bytes_;
  int64_t context_ = 0, stride_ = 0, samples_ = 0;
  std::vector<std::pair<std::string, TensorType>> fields_;
};

}  // namespace

EPL_READER(text) {
  return {.doc = "Bytes of a text: `context` of them as the field named by `input`, and the byte after each as `target`. The last share `held_out` of the file "
                 "is the split held_out, the rest the split train.",
          .options = {{"context", int64_t{64}}, {"stride", int64_t{0}}, {"split", std::string("all")}, {"held_out", 0.05}, {"input", std::string("input_ids")}},
          .suffixes = {".txt", ".text"},
          .open = TextReader::open};
}

}  // namespace epl
