// Text as bytes: windows of `context` bytes with, for each, the byte that follows it.
#include <algorithm>
#include <cmath>

#include "core/base/file.h"
#include "core/base/shown.h"
#include "core/data/encoding.h"
#include "core/data/reader.h"

namespace epl {
namespace {

class TextFileReader : public Reader {
 public:
  static Result<std::unique_ptr<Reader>> open(const ReaderRequest& request) {
    const Attributes& options = request.options;
    auto reader = std::make_unique<TextFileReader>();
    EPL_ASSIGN(reader->file_, FileReader::open(request.path));
    EPL_TRY(reader->check_encoding(request.path));
    reader->context_ = options.integer("context");
    reader->stride_ = options.integer("stride");
    if (reader->context_ < 1 || reader->context_ > (int64_t{1} << 30))
      return invalid("option context of reader text is ", reader->context_);
    if (reader->stride_ < 0) return invalid("option stride of reader text is ", reader->stride_);
    if (reader->stride_ == 0) reader->stride_ = reader->context_;
    EPL_TRY(reader->choose(options));
    const int64_t size = reader->size_;
    if (size < reader->context_ + 1) {
      return Status(Code::invalid_argument,
                    cat("the ", options.text("split"), " part has ", size, " bytes; one window of context ",
                        reader->context_, " needs ", reader->context_ + 1),
                    request.path);
    }
    reader->samples_ = (size - reader->context_ - 1) / reader->stride_ + 1;
    TensorType type{DType::i64, {reader->context_}};
    reader->fields_ = {{options.text("input"), type}, {request.target_name, type}};
    return std::unique_ptr<Reader>(std::move(reader));
  }

  const std::vector<std::pair<std::string, TensorType>>& fields() const override { return fields_; }
  int64_t samples() const override { return samples_; }
  Status read(int64_t index, int field, void* target) const override {
    // The bytes go into the place of the numbers that they become, at its end, and are spread from the front.
    auto* to = static_cast<int64_t*>(target);
    auto* bytes = static_cast<unsigned char*>(target) + static_cast<size_t>(context_) * (sizeof(int64_t) - 1);
    const int64_t from = begin_ + index * stride_ + field;  // the target is one further
    EPL_TRY(file_->read(static_cast<uint64_t>(from), bytes, static_cast<size_t>(context_)));
    for (int64_t i = 0; i < context_; ++i) {
      const int64_t value = bytes[i];
      to[i] = value;
    }
    return {};
  }

 private:
  Status check_encoding(const std::string& path) const {
    char head[4] = {};
    const size_t size = std::min<size_t>(sizeof head, file_->size());
    EPL_TRY(file_->read(0, head, size));
    const std::string_view encoding = marked_encoding({head, size});
    return encoding.empty() ? Status() : Status(Code::invalid_argument, convert_from(encoding), path);
  }

  // The part of the file that the option `split` names.
  Status choose(const Attributes& options) {
    const std::string& part = options.text("split");
    const double share = options.number("held_out");
    const auto all = static_cast<int64_t>(file_->size());
    if (!(share >= 0 && share < 1))
      return invalid("option held_out of reader text is ", share, "; it is a share from 0 to 1");
    const int64_t cut = all - static_cast<int64_t>(std::floor(static_cast<double>(all) * share));
    if (part != "all" && part != "train" && part != "held_out")
      return invalid("option split of reader text is ", shown(part), "; it is all, train or held_out");
    begin_ = part == "held_out" ? cut : 0;
    size_ = (part == "train" ? cut : all) - begin_;
    return {};
  }

  std::shared_ptr<const FileReader> file_;
  int64_t begin_ = 0, size_ = 0;  // of the part
  int64_t context_ = 0, stride_ = 0, samples_ = 0;
  std::vector<std::pair<std::string, TensorType>> fields_;
};

}  // namespace

EPL_READER(text) {
  return {.doc =
              "Bytes of a text: `context` of them as the field named by `input`, and the byte after each as `target`. "
              "The last share `held_out` of the file "
              "is the split held_out, the rest the split train.",
          .options = {{.name = "context", .value = int64_t{64}, .doc = "bytes of a sample"},
                      {.name = "stride",
                       .value = int64_t{0},
                       .doc = "bytes from the start of a sample to that of the next; 0: `context`"},
                      {.name = "split", .value = std::string("all"), .doc = "`all`, `train` or `held_out`"},
                      {.name = "held_out",
                       .value = 0.05,
                       .doc = "the share of the file, at its end, that is the split held_out"},
                      {.name = "input", .value = std::string("input_ids"), .doc = "the name of the field of bytes"}},
          .suffixes = {".txt", ".text"},
          .open = TextFileReader::open};
}

}  // namespace epl
