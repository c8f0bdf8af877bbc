// Text as bytes: windows of `context` bytes with, for each, the byte that follows it.
#include <cmath>
#include <cstring>

#include "core/base/file.h"
#include "core/data/reader.h"

namespace epl {
namespace {

class TextReader : public Reader {
 public:
  static Result<std::unique_ptr<Reader>> open(const std::string& path, const Attributes& options) {
    auto reader = std::make_unique<TextReader>();
    EPL_ASSIGN(reader->file_, FileReader::open(path));
    reader->context_ = options.integer("context");
    reader->stride_ = options.integer("stride");
    if (reader->context_ < 1 || reader->context_ > (int64_t{1} << 30)) return invalid("option context of reader text is ", reader->context_);
    if (reader->stride_ < 0) return invalid("option stride of reader text is ", reader->stride_);
    if (reader->stride_ == 0) reader->stride_ = reader->context_;
    EPL_ASSIGN(reader->part_, split(static_cast<int64_t>(reader->file_->size()), options));
    const int64_t size = reader->part_.end - reader->part_.begin;
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
    // The bytes come to lie at the end of the target and are widened from its beginning, so that none is overwritten
    // before it is read.
    auto* to = static_cast<int64_t*>(target);
    auto* from = reinterpret_cast<unsigned char*>(to + context_) - context_;
    EPL_TRY(file_->read(static_cast<uint64_t>(part_.begin + index * stride_ + field), from, static_cast<size_t>(context_)));   // the target is one further
    for (int64_t i = 0; i < context_; ++i) {
      const int64_t value = from[i];
      std::memcpy(to + i, &value, sizeof value);
    }
    return {};
  }

 private:
  struct Range {
    int64_t begin = 0, end = 0;   // bytes of the file
  };
  static Result<Range> split(int64_t size, const Attributes& options) {
    const std::string& part = options.text("split");
    double share = options.number("held_out");
    if (!(share >= 0 && share < 1)) return invalid("option held_out of reader text is ", share, "; it is a share from 0 to 1");
    const int64_t cut = size - static_cast<int64_t>(std::floor(static_cast<double>(size) * share));
    if (part == "all") return Range{0, size};
    if (part == "train") return Range{0, cut};
    if (part == "held_out") return Range{cut, size};
    return invalid("option split of reader text is \"", part, "\"; it is all, train or held_out");
  }

  std::shared_ptr<const FileReader> file_;
  Range part_;
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
